"""Executes one command: signals, failures, and what is printed where."""

from __future__ import annotations

import sys
from collections.abc import Callable
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
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.streams import discard_buffer


def execute(job: Job, given: dict[str, Any], verb: Callable[[Call], Report]) -> int:
    """Runs `verb`, that of the job with its own options, with the common options `given`; prints what it
    reports, and returns the exit code."""
    name = job.name
    as_json, quiet = given.get("json", False), given.get("quiet", False)
    logs.configure(quiet=quiet, form=given.get("log_format", "text"), verb=name)
    call: Call | None = None
    notifier: Notifier | None = None
    undelivered: list[str] = []
    stop = Stop()
    with signals_to(stop):  # one that comes when all is done keeps nobody from being told
        try:
            call = make_call(job, given, stop)
            if call.is_measured:
                notifier = Notifier(call.settings.notify, undelivered.append)
                notifier.started()
            report = verb(call)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  # no traceback reaches a user
            report = failed(name, error, call.now if call else clock.current(), call.hosts if call else "")
        emit(report, as_json=as_json)
        if call is not None and call.is_measured:
            measure(call, report)
        fix_exit_code(report.exit_code)
    # All is done: a signal that comes now only ends the wait for notifications.
    if notifier is not None:
        notifier.ended(report)
        notifier.wait()
        for line in undelivered:
            logs.complain(line)
    if logs.is_json():
        log.info("ended", exit_code=report.exit_code)
    return report.exit_code


def make_call(job: Job, given: dict[str, Any], stop: Stop) -> Call:
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


def measure(call: Call, report: Report) -> None:
    """Adds the run to the file with its metrics. No data depends on it: a failure to write is reported, and
    the exit code stays that of the run."""
    try:
        file = call.metrics_file
    except ConfigError:  # told of already, and no option says where metrics go
        return
    if file is None:
        return
    from bucketwise.jobs.core import metrics  # it brings the client of Prometheus

    results = report.results or [Result("", report.exit_code)]  # no policy had its turn
    if complaint := metrics.add(file, call.command, results):
        logs.complain(complaint)


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
    failed = [it.policy for it in report.results if it.error is not None]
    for number, line in enumerate(report.complaints):  # those of policies come first
        policy = {"policy": failed[number]} if number < len(failed) else {}
        logs.complain(line, **policy, exit_code=report.exit_code)


def _print(report: Report, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(report.as_json() + "\n")
    else:
        from bucketwise.jobs.output.tables import print_tables

        print_tables(report.tables, sys.stdout)
    sys.stdout.flush()
