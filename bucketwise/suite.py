"""The jobs from Python: a `Suite` has a method for each, which returns what its command prints as JSON."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from pydantic import TypeAdapter, ValidationError

from bucketwise.buckets.fields.selectors import series_text
from bucketwise.config import deprecated
from bucketwise.config.errors import BucketwiseError, UsageError, hide_secrets
from bucketwise.config.problems import nearest
from bucketwise.errors import of_code
from bucketwise.jobs.core.clock import iso
from bucketwise.jobs.core.execution import Execution
from bucketwise.jobs.core.job import Job
from bucketwise.jobs.core.stopping import Stop
from bucketwise.jobs.output.progress import ProgressDisplay
from bucketwise.jobs.output.report import Report
from bucketwise.jobs.suite import load

if TYPE_CHECKING:
    from bucketwise.jobs.output.bodies import asking, keeping, proving, running

__all__ = ["Outcome", "PolicyOutcome", "Progress", "Suite"]

Instant = datetime | str
Series = Mapping[str, object]
#: What a command tells of a policy: a type of `bucketwise.jobs.output.bodies`.
Body = TypeVar("Body")


@dataclass(frozen=True)
class Progress:
    """What a job has done since it last told: `count` of `what`. `share` of the step that is done, 0 to 1;
    None where it is not known."""

    what: str
    count: int
    share: float | None


@dataclass(frozen=True)
class PolicyOutcome(Generic[Body]):
    """What a job did for one policy. `exit_code` and `error` as its command has them. `body`: its JSON, whose
    type tells the keys; they are attributes and items as well."""

    policy: str
    exit_code: int
    error: str | None
    body: Body = field(repr=False)

    def __getattr__(self, name: str) -> Any:
        told = self.__dict__.get("body", {})  # there is none while it is unpickled
        if name not in told:
            raise AttributeError(f"{self.__dict__.get('policy')} has no {name}; it has {', '.join(told)}")
        return told[name]

    def __getitem__(self, key: str) -> Any:
        told: Any = self.body
        return told[key]


@dataclass(frozen=True)
class Outcome(Generic[Body]):
    """What a job did: the JSON of its command. `json` is the whole object; what it has beside the fields of
    this class are attributes as well."""

    command: str
    exit_code: int
    now: datetime
    policies: tuple[PolicyOutcome[Body], ...]
    error: str | None
    json: Mapping[str, Any] = field(repr=False)

    def __getattr__(self, name: str) -> Any:
        told = self.__dict__.get("json", {})
        if name not in told:
            raise AttributeError(f"{self.__dict__.get('command')} told no {name}; it told {', '.join(told)}")
        return told[name]

    def __getitem__(self, policy: str) -> PolicyOutcome[Body]:
        """Returns the outcome of a policy. Raises KeyError."""
        found = {it.policy: it for it in self.policies}
        return found[policy]

    def check(self) -> Self:
        """Returns itself where the exit code is 0; else raises the error of `bucketwise.errors` with it."""
        if self.exit_code:
            told = [f"{it.policy}: {it.error}" for it in self.policies if it.error]
            left = [it.policy for it in self.policies if it.exit_code and not it.error]
            told += [f"{', '.join(left)} ended with {self.exit_code}; see the outcome"] if left else []
            raise of_code(self.exit_code, "\n".join([*told, *([self.error] if self.error else [])]))
        return self


class Suite:
    """The jobs of a policy file.

    `config`: the file; None: that of BUCKETWISE_CONFIG, or ./bucketwise.toml. `policies`: the names of those
    to work on; None: all. `now`: takes this instant as the present. `progress` is called from the thread
    that works. What happens to policies (exit codes 1, 3, 4, 5, 11, and 2 where one can't be asked that) is
    in the outcome. Methods raise UsageError or ConfigError for bad usage or config, InterruptedRun after
    `cancel`, BucketwiseError where no policy could be worked on. Several suites may work at once, in threads
    of their own."""

    def __init__(
        self,
        config: str | Path | None = None,
        policies: Sequence[str] | None = None,
        *,
        now: Instant | None = None,
        progress: Callable[[Progress], object] | None = None,
    ) -> None:
        if isinstance(policies, str):
            raise UsageError(f"policies: {policies!r} is one text; write [{policies!r}]")
        self._given = {
            "config": None if config is None else Path(config),
            "policy": tuple(policies or ()),
            "quiet": True,
            "now": _text_of("now", now),
        }
        self._progress = progress
        self._working: set[Stop] = set()
        self._lock = threading.Lock()

    def check(self) -> Outcome[keeping.Check]:
        """Returns what `bucketwise check` finds: would a run work, and would it be safe?"""
        return self._do("check")

    def plan(self, against: str | Path | None = None) -> Outcome[running.Plan]:
        """Returns what `run` would do now, or by another policy file. Changes nothing."""
        return self._do("plan", against=None if against is None else Path(against))

    def run(self, *, allow_large: bool = False) -> Outcome[running.Run]:
        """Rolls up, archives, and expires, for every policy."""
        return self._do("run", allow_large=allow_large)

    def rollup(
        self, since: Instant | None = None, until: Instant | None = None, *, restart: bool = False
    ) -> Outcome[running.Rollup]:
        """Rolls up what is due; a range is rolled up again even where nothing has changed."""
        return self._do("rollup", **_within(since, until), restart=restart)

    def archive(
        self,
        since: Instant | None = None,
        until: Instant | None = None,
        *,
        dry_run: bool = False,
        allow_large: bool = False,
    ) -> Outcome[running.Archive]:
        """Archives what is due, of a range if one is given."""
        return self._do("archive", **_within(since, until), dry_run=dry_run, allow_large=allow_large)

    def audit(self, *, full: bool = False, html: str | Path | None = None) -> Outcome[proving.Audit]:
        """Returns whether every policy is kept: `findings` of each. `html`: also writes a page."""
        return self._do("audit", full=full, html=None if html is None else Path(html))

    def verify(self, since: Instant | None = None, until: Instant | None = None) -> Outcome[proving.Verify]:
        """Reads the archive again, and compares it with its manifests and receipts."""
        return self._do("verify", **_within(since, until))

    def restore(
        self,
        to: str | None = None,
        since: Instant | None = None,
        until: Instant | None = None,
        series: Series | None = None,
        **options: Any,
    ) -> Outcome[keeping.Restore]:
        """Brings archived buckets back into a collection as they were. `options`: the others of the command,
        such as `keep_for="7d"`; `dry_run=True` counts what would be restored, and needs no `to`."""
        return self._do("restore", to=to, **_within(since, until), series=_pairs(series), **options)

    def readings(
        self,
        output: str | Path,
        since: Instant | None = None,
        until: Instant | None = None,
        series: Series | None = None,
    ) -> Outcome[asking.Readings]:
        """Writes the readings of one policy into a Parquet file. For readings in memory, or one batch after
        another, see `bucketwise.scan`."""
        from bucketwise.archivers.reading.formats import Format  # it brings Arrow

        within, form = _within(since, until), Format.parquet
        return self._do("readings", **within, series=_pairs(series), output=Path(output), form=form)

    def summarize(
        self,
        since: Instant,
        until: Instant,
        series: Series | None = None,
        **options: Any,
    ) -> Outcome[asking.Summarize]:
        """Returns statistics of a range, from summaries and, at its edges, readings. `options`: the others of
        the command, such as `percentiles="50,99.9"`."""
        return self._do("summarize", **_within(since, until), series=_pairs(series), **options)

    def coverage(
        self,
        since: Instant | None = None,
        until: Instant | None = None,
        series: Series | None = None,
        by: str = "day",
    ) -> Outcome[asking.Coverage]:
        """Returns where the readings of each day, or hour, are."""
        return self._do("coverage", **_within(since, until), series=_pairs(series), by=by)

    def cancel(self) -> None:
        """Asks the jobs of this suite that are at work, in other threads, to stop after the step in hand."""
        with self._lock:
            for stop in self._working:
                stop.request()

    def _do(self, name: str, **given_options: Any) -> Outcome[Any]:
        job = load(name)
        options = _sound_options(job, given_options)
        measured = job.is_measured and not options.get("dry_run")
        given = self._given | {"is_measured": measured}
        with self._stoppable() as stop:
            execution = Execution(job, given, stop)
            try:
                report = execution.run(job.bind(options), _Telling(self._progress))
            except BaseException as error:
                report = execution.failed(error)
                if not isinstance(error, Exception):
                    raise
                if isinstance(error, BucketwiseError):
                    error.args = tuple(hide_secrets(it) if isinstance(it, str) else it for it in error.args)
                    raise
                raise of_code(report.exit_code, str(report.error)) from error
            finally:
                execution.measure(report)
                execution.notify(report)
        outcome = _outcome(report)
        if stop.is_requested:
            outcome.check()
        return outcome

    @contextmanager
    def _stoppable(self) -> Iterator[Stop]:
        stop = Stop()
        with self._lock:
            self._working.add(stop)
        try:
            yield stop
        finally:
            with self._lock:
                self._working.discard(stop)


class _Telling(ProgressDisplay):
    """Tells a function instead of a terminal."""

    def __init__(self, tell: Callable[[Progress], object] | None) -> None:
        super().__init__(quiet=True)
        self._tell = tell

    def __call__(self, what: str, count: int, share: float | None = None, /) -> None:
        super().__call__(what, count, share)
        if self._tell is not None:
            self._tell(Progress(what, count, share))


def _sound_options(job: Job, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options as the verb takes them. Raises UsageError for those that it does not."""
    known = {it.name: it for it in job.options}
    former = {_attribute(name): _attribute(now) for name, now in job.former.items()}
    deprecated.warn((name, former[name]) for name in given if name in former)
    sound = {}
    for name, value in ((former.get(name, name), value) for name, value in given.items()):
        if name not in known:
            near = nearest(name, known)
            remedy = f"did you mean {near}?" if near else f"it takes {', '.join(known)}"
            raise UsageError(f"{job.name} takes no option {name}: {remedy}")
        try:
            sound[name] = TypeAdapter(known[name].annotation).validate_python(value)
        except ValidationError as error:
            raise UsageError(f"{name}: {value!r}: {error.errors()[0]['msg']}") from None
    return sound


def _attribute(option: str) -> str:
    """Returns the parameter of an option: `keep_for` of `--keep-for`."""
    return option.lstrip("-").replace("-", "_")


def _outcome(report: Report) -> Outcome[Any]:
    plain = report.plain()
    policies = tuple(
        PolicyOutcome(it["policy"], it["exit_code"], it.get("error"), it) for it in plain["policies"]
    )
    return Outcome(str(report.command), report.exit_code, report.now, policies, plain.get("error"), plain)


def _text_of(name: str, at: Instant | None) -> str | None:
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise UsageError(f"{name}: {at} has no time zone; write such as datetime(…, tzinfo=UTC)")
        return iso(at)
    return at


def _within(since: Instant | None, until: Instant | None) -> dict[str, str | None]:
    return {"since": _text_of("since", since), "until": _text_of("until", until)}


def _pairs(series: Series | None) -> list[str] | None:
    return None if series is None else [f"{name}={series_text(value)}" for name, value in series.items()]
