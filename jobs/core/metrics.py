"""The metrics of runs, and the file that they add up in."""

from __future__ import annotations

import fcntl
import math
import os
import stat
import time
from collections import Counter as Tally
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from bucketwise.config.errors import InterruptedRun
from bucketwise.jobs.core import clock
from bucketwise.jobs.core.gauges import GAUGES
from bucketwise.jobs.core.ledger import COMPLETED, SCHEDULED
from bucketwise.jobs.output.report import OUTCOMES, Measures, Result

_PREFIX = "bucketwise_"


disable_created_metrics()  # type: ignore[no-untyped-call]  # a series more for each counter, which says when it was made


class Metrics:
    """The metrics, by policy. They have a registry of their own, without metrics of this process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._by_sample: dict[str, tuple[Counter | Gauge, set[str]]] = {}
        self._runs = self._counter("runs", "Runs by outcome", "verb", "outcome")
        self._seconds = self._counter("step_seconds", "Time that steps took, in seconds", "step")
        self._rolled_up = self._counter("rolled_up_readings", "Readings rolled up")
        self._archived = {
            "buckets": self._counter("archived_buckets", "Buckets copied to the archive and verified"),
            "readings": self._counter("archived_readings", "Readings copied to the archive and verified"),
            "bytes": self._counter("archived_bytes", "Bytes written to the archive"),
            "deleted": self._counter("deleted_buckets", "Buckets deleted after a verified copy"),
        }
        self._repaired = self._counter("repaired_objects", "Objects put back from a copy of the store")
        self._requests = self._counter("store_requests", "Requests to the store", "operation")
        self._retries = self._counter("store_retries", "Requests to the store that were retries")
        self._last_seconds = self._gauge("last_step_seconds", "Time that a step took last", "step")
        self._last_run = self._gauge("last_run_timestamp_seconds", "End of the last run", "verb")
        self._last_success = self._gauge(
            "last_success_timestamp_seconds", "End of the last successful run", "verb"
        )
        self._exit_code = self._gauge("last_run_exit_code", "Exit code of the last run", "verb")
        self._left = self._gauge("left_buckets", "Expired buckets that the last run left")
        self._quarantined = self._gauge("quarantined_buckets", "Buckets that break their model, last run")
        self._findings = self._gauge("audit_findings", "Findings of the last audit", "severity")
        self._differing = self._gauge("drill_differing_buckets", "Buckets that the last drill found changed")
        self._waits = self._gauge("waits_for_window", "Whether the next run waits for its window to open")
        self._gauges = {name: self._gauge(name, text) for name, text in GAUGES.items()}

    def record(self, verb: str, result: Result) -> None:
        """Counts one run of one policy; of none, where it is called "": the command could not start."""
        policy, now = result.policy, (result.measures.ended or clock.current()).timestamp()
        if policy and result.has_window:
            self._waits.labels(policy).set(result.next_window is not None)
        if result.is_idle:  # no run, but its lags grow
            self._record_measures(policy, result.measures)
            return
        # A run that its window ended has the outcome of its ledger entry.
        code = InterruptedRun.exit_code if result.stopped else result.exit_code
        self._runs.labels(policy, verb, OUTCOMES[code]).inc()
        self._last_run.labels(policy, verb).set(now)
        self._exit_code.labels(policy, verb).set(result.exit_code)
        if code in COMPLETED:
            self._last_success.labels(policy, verb).set(now)
        if policy:  # the last command did start
            self._last_run.remove("", verb)
            self._exit_code.remove("", verb)
        bodies = result.body if verb == SCHEDULED else {verb: result.body}
        done = {step: body for step, body in bodies.items() if body}
        for step, body in done.items():
            self._record_step(policy, step, body)
        if policy:
            self._repaired.labels(policy).inc(sum(body.get("repaired", 0) for body in done.values()))
        if broken := [body["quarantined"] for body in done.values() if "quarantined" in body]:
            self._quarantined.labels(policy).set(max(broken))
        self._record_measures(policy, result.measures)

    def _record_step(self, policy: str, step: str, body: dict[str, Any]) -> None:
        if step == "rollup":
            self._rolled_up.labels(policy).inc(body["readings"])
        elif step == "archive":
            for key, counter in self._archived.items():
                counter.labels(policy).inc(body[key])
            if "left" in body:  # else the run was stopped
                self._left.labels(policy).set(body["left"])
        elif step == "audit":
            found = Tally(it["severity"] for it in body["findings"])
            for severity in ("error", "warning"):
                self._findings.labels(policy, severity).set(found[severity])
        elif step == "drill":
            self._differing.labels(policy).set(body["differing"])

    def _record_measures(self, policy: str, measures: Measures) -> None:
        for step, seconds in measures.seconds.items():
            self._seconds.labels(policy, step).inc(seconds)
            self._last_seconds.labels(policy, step).set(seconds)
        for operation, count in measures.requests.items():
            self._requests.labels(policy, operation).inc(count)
        if measures.requests:
            self._retries.labels(policy).inc(measures.retries)
        for name, gauge in self._gauges.items():
            if name in measures.gauges:
                gauge.labels(policy).set(measures.gauges[name])
            elif measures.gauges:  # it is known that there is none
                gauge.remove(policy)

    def restore(self, text: str) -> None:
        """Continues from what `text()` gave, also that of another release. Raises ValueError where it is
        something else."""
        for family in text_string_to_metric_families(text):
            if not family.name.startswith(_PREFIX):
                raise ValueError(family.name)
            for sample in family.samples:
                metric, labels = self._by_sample.get(sample.name, (None, set[str]()))
                if metric is None or labels != set(sample.labels):
                    continue
                if not math.isfinite(sample.value):
                    raise ValueError(sample.name)
                one = metric.labels(**sample.labels)
                one.inc(sample.value)  # from 0

    def audits(self) -> dict[str, dict[str, float]]:
        """Returns, by policy, how many findings of each severity the last audit had, and when (`at`)."""
        found: dict[str, dict[str, float]] = {}
        for gauge, key in ((self._findings, "severity"), (self._last_run, "verb")):
            for metric in gauge.collect():
                for it in metric.samples:
                    found.setdefault(it.labels["policy"], {})[it.labels[key]] = it.value
        return {name: {**it, "at": it["audit"]} for name, it in found.items() if "audit" in it}

    def text(self) -> bytes:
        """Returns the metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        it = Counter(f"{_PREFIX}{name}", help_text, ["policy", *labels], registry=self._registry)
        self._by_sample[f"{_PREFIX}{name}_total"] = it, {"policy", *labels}
        return it

    def _gauge(self, name: str, help_text: str, *labels: str) -> Gauge:
        it = Gauge(f"{_PREFIX}{name}", help_text, ["policy", *labels], registry=self._registry)
        self._by_sample[f"{_PREFIX}{name}"] = it, {"policy", *labels}
        return it


#: Seconds; another run is at it for some milliseconds.
_PATIENCE = 10.0
_MODE = 0o644  # node_exporter is another user


def add(file: Path, verb: str, results: Sequence[Result]) -> str | None:
    """Adds how a run of `verb` went. Returns a complaint where that can't be written: nothing else depends on
    it."""
    try:
        path = file.resolve()
        with _folder_lock(path.parent):
            metrics, mode = Metrics(), _MODE
            if path.exists():
                found = path.stat()
                if not stat.S_ISREG(found.st_mode):
                    return _complaint(file, "it is not a regular file")
                mode = stat.S_IMODE(found.st_mode)
                metrics.restore(path.read_text(encoding="utf-8"))
            for result in results:
                metrics.record(verb, result)
            _replace(path, metrics.text(), mode)
    except ValueError as error:
        remedy = "bucketwise overwrites nothing else: move it away, or name another"
        return _complaint(file, f"it contains something other than metrics of bucketwise ({error}). {remedy}")
    except OSError as error:
        return _complaint(file, error.strerror or str(error))
    return None


def _complaint(file: Path, reason: str) -> str:
    return f"the metrics could not be written to {file}: {reason}. The run is not affected"


@contextmanager
def _folder_lock(folder: Path) -> Iterator[None]:
    """Keeps other runs from writing metrics into the folder inside the block. Raises OSError; TimeoutError
    after a while."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        until = clock.steady() + _PATIENCE
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if clock.steady() > until:
                    raise TimeoutError(f"another process has locked {folder}") from None
                time.sleep(0.02)
        yield
    finally:
        os.close(handle)


def _replace(path: Path, data: bytes, mode: int) -> None:
    """Puts `data` in the file's place, whole. Others don't read what is not called `.prom`."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)  # of a run that was killed
    try:
        with temporary.open("xb") as sink:
            os.fchmod(sink.fileno(), mode)
            sink.write(data)
            sink.flush()
            os.fsync(sink.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
