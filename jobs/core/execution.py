"""Executes one command: signals, failures, and what is printed where."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from bucketwise.config.problems import ConfigError
from bucketwise.jobs.core import clock, logs
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.failures import failure_of
from bucketwise.jobs.core.job import Job
from bucketwise.jobs.core.logs import log
from bucketwise.jobs.core.notify import Notifier
from bucketwise.jobs.core.stopping import Stop, fix_exit_code, signals_to
from bucketwise.jobs.output.progress import ProgressDisplay
from bucketwise.jobs.output.report import Report, Result, worst_exit_code
from bucketwise.jobs.output.streams import discard_buffer


class Execution:
    """One call of a job's verb: it makes the call, and tells those who want to know that it began and how it
    ended. `given`: the common options."""

    def __init__(self, job: Job, given: Mapping[str, Any], stop: Stop) -> None:
        self._job, self._given, self._stop = job, given, stop
        self._notifier: Notifier | None = None
        self._undelivered: list[str] = []
        self.call: Call | None = None

    def run(self, verb: Callable[[Call], Report], progress: ProgressDisplay | None = None) -> Report:
        """Returns what the verb, with its own options, reports. Raises what keeps it from working at all."""
        self.call = call = make_call(self._job, self._given, self._stop)
        call.display = progress
        if call.is_measured:
            self._notifier = Notifier(call.settings.notify, self._undelivered.append)
            self._notifier.started()
        report = verb(call)
        _tell_reads_from_copies(call, report)
        return report

    def failed(self, error: BaseException) -> Report:
        """Returns the report of a call that could not do its work."""
        now, hosts = (self.call.now, self.call.hosts) if self.call else (clock.current(), "")
        return failed(self._job.name, error, now, hosts)

    def measure(self, report: Report) -> None:
        """Adds the run to the file with its metrics. No data depends on it: a failure to write is reported,
        and the exit code stays that of the run."""
        try:
            file = None if self.call is None else self.call.metrics_file
        except ConfigError:  # told of already, and no option says where metrics go
            return
        if file is None:
            return
        from bucketwise.jobs.core import metrics  # it brings the client of Prometheus

        results = report.results or [Result("", report.exit_code)]  # no policy had its turn
        if complaint := metrics.add(file, self._job.name, results):
            logs.complain(complaint)

    def notify(self, report: Report) -> list[str]:
        """Announces how a run has ended; returns a line for each notification that could not be delivered."""
        if self._notifier is not None:
            self._notifier.ended(report)
            self._notifier.wait()
        return self._undelivered


def execute(job: Job, given: dict[str, Any], verb: Callable[[Call], Report]) -> int:
    """Runs `verb`, that of the job with its own options, with the common options `given`; prints what it
    reports, and returns the exit code."""
    logs.configure(quiet=given.get("quiet", False), form=given.get("log_format", "text"), verb=job.name)
    stop = Stop()
    execution = Execution(job, given, stop)
    with signals_to(stop):  # one that comes when all is done keeps nobody from being told
        try:
            report = execution.run(verb)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  # no traceback reaches a user
            report = execution.failed(error)
        if given.get("quiet") and not (job.answers or given.get("is_dry")):
            report.hush()
        emit(report, as_json=given.get("json", False))
        execution.measure(report)
        fix_exit_code(report.exit_code)
    # All is done: a signal that comes now only ends the wait for notifications.
    for line in execution.notify(report):
        logs.complain(line)
    if logs.is_json():
        log.info("ended", exit_code=report.exit_code)
    return report.exit_code


def _tell_reads_from_copies(call: Call, report: Report) -> None:
    """Adds to a report what was read from copies beside the turns of policies."""
    if call.opened_store is None:
        return
    from bucketwise.jobs.core.call import take_reads_from_copies  # these bring archives
    from bucketwise.jobs.core.turn import LEFT_SOMETHING

    if read := take_reads_from_copies(call.opened_store):
        report.extra |= read
        report.error_code = worst_exit_code([report.error_code, LEFT_SOMETHING])


def make_call(job: Job, given: Mapping[str, Any], stop: Stop) -> Call:
    """Returns the call of a job with its common options. Raises UsageError if --now is not a valid
    timestamp."""
    text = given.get("now")
    return Call(
        command=job.name,
        config=given.get("config"),
        names=tuple(given.get("policy", ())),
        now=clock.current() if text is None else clock.parse_now(text),
        is_now_given=text is not None,
        json=given.get("json", False),
        quiet=given.get("quiet", False),
        yes=given.get("yes", False),
        stop=stop,
        metrics_option=given.get("metrics_file"),
        no_throttle=given.get("no_throttle", False),
        workers=given.get("workers"),
        executor=given.get("executor"),
        arguments=given.get("arguments", ()),
        is_measured=given.get("is_measured", False),
        is_pausable=job.is_pausable,
        reads_departed=job.reads_departed,
    )


def failed(name: str | None, error: BaseException, now: datetime, hosts: str = "") -> Report:
    """Returns the report of a command that could not start its work."""
    failure = failure_of(error, hosts)
    extra = {"problems": error.as_dicts()} if isinstance(error, ConfigError) else {}
    return Report(name, now, error=failure.message, error_code=failure.exit_code, extra=extra)


def emit(report: Report, *, as_json: bool) -> None:
    """Prints results to stdout, and complaints to stderr."""
    try:
        _print(report, as_json=as_json)
    except BrokenPipeError:  # who reads has enough: `head`, for one
        discard_buffer(sys.stdout)
    except OSError as error:
        discard_buffer(sys.stdout)
        report.error = f"the result could not be written to stdout: {error.strerror}. What was done is kept"
        report.error_code = 1
    for line, policies in report.complaints:
        about = {"policy": policies[0]} if len(policies) == 1 else {"policies": policies} if policies else {}
        logs.complain(line, **about, exit_code=report.exit_code)


def _print(report: Report, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(report.as_json() + "\n")
    else:
        from bucketwise.jobs.output.tables import print_tables

        print_tables(report.tables, sys.stdout)
    sys.stdout.flush()
