"""A verb as a command of the command line: the options that several take, and how it is executed."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import structlog
import typer
from typer.models import OptionInfo, ParameterInfo

from bucketwise.config.checks.settings import metrics_file_fault
from bucketwise.config.errors import UsageError
from bucketwise.config.policies import Policy
from bucketwise.config.problems import ConfigError
from bucketwise.config.values import MOST_WORKERS
from bucketwise.jobs.core import clock, logs
from bucketwise.jobs.core import metrics as metrics_file
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.failures import failure_of
from bucketwise.jobs.core.job import Job
from bucketwise.jobs.core.logs import OPTION, VARIABLE, LogFormat
from bucketwise.jobs.core.notify import Notifier
from bucketwise.jobs.core.stopping import Stop, fix_exit_code, signals_to
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.streams import discard_buffer, print_tables

Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="Path of the policy file. Default: BUCKETWISE_CONFIG, then ./bucketwise.toml.",
    ),
]


Names = Annotated[
    list[str] | None,
    typer.Option("--policy", "-p", metavar="NAME", help="Run only this policy. Can be repeated."),
]


Now = Annotated[
    str | None, typer.Option("--now", metavar="INSTANT", help="Use this time (ISO 8601) as the current time.")
]


Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]


Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress.")]


Logs = Annotated[
    LogFormat | None,
    typer.Option(
        OPTION,
        envvar=VARIABLE,
        help="Format of lines on stderr: text, or json (one object per line). Default: text.",
    ),
]


Yes = Annotated[bool, typer.Option("--yes", "-y", help="Answer yes to all prompts.")]


def _check_metrics_file(path: Path | None) -> Path | None:
    if path is not None and (fault := metrics_file_fault(str(path))):
        raise typer.BadParameter(f"{path}: {fault.message}; {fault.remedy}.")
    return path


MetricsFile = Annotated[
    Path | None,
    typer.Option(
        "--metrics-file",
        envvar="BUCKETWISE_METRICS_FILE",
        metavar="FILE",
        callback=_check_metrics_file,
        help="Add this run to the Prometheus metrics in FILE (NAME.prom, for node_exporter).",
    ),
]


Since = Annotated[
    str | None, typer.Option("--since", metavar="INSTANT", help="Start of the range (ISO 8601), inclusive.")
]


Until = Annotated[
    str | None, typer.Option("--until", metavar="INSTANT", help="End of the range (ISO 8601), exclusive.")
]


Series = Annotated[
    list[str] | None,
    typer.Option("--series", metavar="FIELD=VALUE", help="Only series with this value. Can be repeated."),
]


AllowLarge = Annotated[
    bool,
    typer.Option("--allow-large", help="Delete more buckets in this run than archive.max_delete allows."),
]


NoThrottle = Annotated[
    bool, typer.Option("--no-throttle", help="Ignore the policy file's throttle: run now, at full speed.")
]


WorkerCount = Annotated[
    int | None,
    typer.Option("--workers", min=1, max=MOST_WORKERS, metavar="N", help="Number of worker processes."),
]


Executor = Annotated[
    str | None,
    typer.Option(
        "--executor", metavar="URL", help="Scheduler of a dask cluster that does the work: dask://host:port."
    ),
]


def common(  # noqa: PLR0913  (the options that every verb has)
    config: Config = None,
    policy: Names = None,
    now: Now = None,
    json: Json = False,
    quiet: Quiet = False,
    log_format: Logs = None,
    yes: Yes = False,
) -> dict[str, Any]:
    """Returns the common options as given, without those that were not."""
    given = {"config": config, "policy": policy, "now": now, "json": json, "quiet": quiet}
    given |= {"log_format": log_format, "yes": yes}
    return {name: value for name, value in given.items() if value}


_COMMON = list(inspect.signature(common, eval_str=True).parameters.values())


def _options(**annotations: Any) -> list[inspect.Parameter]:
    kind = inspect.Parameter.KEYWORD_ONLY
    return [inspect.Parameter(name, kind, default=None, annotation=it) for name, it in annotations.items()]


_WORKERS = _options(workers=WorkerCount, executor=Executor)
_METRICS_FILE = _options(metrics_file=MetricsFile)
_NO_THROTTLE = [it.replace(default=False) for it in _options(no_throttle=NoThrottle)]


#: Options for one run only: a repetition first checks whether it would delete too much, and continues where
#: the run before was cut off.
_ONCE = ("allow_large", "restart")


def _arguments_to_repeat(
    own: Sequence[inspect.Parameter], given: Mapping[str, Any]
) -> tuple[str, ...] | None:
    """Returns the options and arguments of a verb, as the ledger keeps them to repeat the run; None if
    they name series, which may be personal. Leaves out those in `_ONCE`."""
    if given.get("series"):
        return None
    typed: list[str] = []
    for it in own:
        value = given[it.name]
        if value in (None, it.default, []) or it.name in _ONCE:
            continue
        (kind,) = (that for that in it.annotation.__metadata__ if isinstance(that, ParameterInfo))
        is_option = isinstance(kind, OptionInfo)
        name = [kind.param_decls[0] if kind.param_decls else f"--{it.name.replace('_', '-')}"]
        for one in value if isinstance(value, list) else [value]:
            typed += [*(name if is_option else []), *([] if one is True else [str(one)])]
    return tuple(typed)


def command(job: Job) -> Callable[..., int]:
    """Returns the verb of a job with the options added that it shares with others, as typer takes it; it
    returns the exit code."""
    own = list(inspect.signature(job.verb, eval_str=True).parameters.values())[1:]
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    working = _WORKERS if job.has_workers else []
    running = [*(_METRICS_FILE if job.is_measured else []), *(_NO_THROTTLE if job.is_pausable else [])]

    @functools.wraps(job.verb)
    def run(context: typer.Context, **given: Any) -> int:
        before: dict[str, Any] = context.obj or {}  # common options that stood before the verb
        after = common(**{parameter.name: given.pop(parameter.name) for parameter in _COMMON})
        policies = (*before.get("policy", ()), *after.get("policy", ()))
        merged = before | after | {"policy": policies}
        merged["is_measured"] = job.is_measured and not given.get("dry_run")
        merged["arguments"] = _arguments_to_repeat([*own, *working], given)
        merged |= {it.name: given.pop(it.name) for it in (*working, *running)}
        return execute(job, merged, functools.partial(job.verb, **given))

    taken = (context, *own, *working, *running, *_COMMON)
    parameters = [it.replace(kind=inspect.Parameter.KEYWORD_ONLY) for it in taken]
    run.__signature__ = inspect.Signature(parameters, return_annotation=int)  # type: ignore[attr-defined]
    run.__annotations__ = {it.name: it.annotation for it in parameters}
    return run


def one_policy(call: Call) -> Policy:
    """Returns the policy of the call. Raises UsageError where --policy does not name exactly one, and there
    are more."""
    if len(call.policies) != 1:
        known = ", ".join(call.settings.policies)
        raise UsageError(f"{call.command} works on one policy: name it with --policy. There are: {known}")
    return call.policies[0]


def parse_series(pairs: list[str] | None) -> dict[str, str]:
    """Returns series fields and their values, as given. Raises UsageError."""
    parsed: dict[str, str] = {}
    for pair in pairs or []:
        field, equals, value = pair.partition("=")
        if not equals or not field:
            raise UsageError(f"--series {pair}: write FIELD=VALUE, such as --series symbol=MDB")
        if field in parsed:
            raise UsageError(f"--series {pair}: the field {field} was given before")
        parsed[field] = value
    return parsed


log = structlog.get_logger()


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
        now=clock.current() if text is None else clock.parse_instant(text, "--now"),
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
    results = report.results or [Result("", report.exit_code)]  # no policy had its turn
    if file is not None and (complaint := metrics_file.add(file, call.command, results)):
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
        print_tables(report.tables, sys.stdout)
    sys.stdout.flush()
