"""A job: its record, and its command with the options that several take."""

from __future__ import annotations

import copy
import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.models import OptionInfo, ParameterInfo

from bucketwise.config import DEFAULT_PATH, PATH_VARIABLE
from bucketwise.config.amounts import MOST_WORKERS
from bucketwise.config.errors import UsageError
from bucketwise.config.problems import InvalidValueError
from bucketwise.config.times import parse_duration
from bucketwise.jobs.core.logs import OPTION, VARIABLE, LogFormat

if TYPE_CHECKING:
    from bucketwise.config.policies import Policy
    from bucketwise.jobs.core.call import Call
    from bucketwise.jobs.output.report import Report

#: A shell waits so long for MongoDB.
_PATIENCE_MS = 1000


def _config(ctx: typer.Context) -> Path:
    return Path(ctx.params.get("config") or os.environ.get(PATH_VARIABLE) or DEFAULT_PATH)


def policy_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Returns the names of policies that begin so: those of the policy file, if it can be read as TOML."""
    import tomllib

    try:
        names = tomllib.loads(_config(ctx).read_text("utf-8")).get("policies", {})
    except (OSError, ValueError):
        return []
    return [it for it in names if it.startswith(incomplete)]


def collection_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Returns the names of collections that begin so, of the database that the URI of the command line names,
    else the policy file; none where MongoDB does not answer at once."""
    from pymongo import MongoClient

    try:
        uri, database = _database(ctx)
        with MongoClient[dict[str, object]](uri, serverSelectionTimeoutMS=_PATIENCE_MS) as client:
            source = client.get_default_database(database)
            found = source.list_collection_names(maxTimeMS=_PATIENCE_MS)
    except Exception:  # noqa: BLE001  # whatever it is, there is nothing to complete
        return []
    taken = ctx.params.get("collections") or ()
    own = ("system.", "bucketwise_")
    return sorted(
        it for it in found if it.startswith(incomplete) and not it.startswith(own) and it not in taken
    )


def _database(ctx: typer.Context) -> tuple[str, str | None]:
    """Returns a URI, and the name of the database if the URI does not have it."""
    if given := ctx.params.get("uri"):
        return os.path.expandvars(given), None
    from bucketwise.config.load import load

    mongodb = load(_config(ctx), os.environ, needs_policies=False).mongodb
    return mongodb.uri.get_secret_value(), mongodb.database


Severity = Literal["ok", "warning", "error"]


@dataclass(frozen=True)
class Code:
    """A code of findings, with the severities that it may have. `remedy`: what to do about it, as audits
    say."""

    code: str
    remedy: str = ""
    severities: tuple[Severity, ...] = ("error",)


PAUSED = Code("paused", "Once the reason is gone: `bucketwise resume`.", severities=("warning",))


@dataclass(frozen=True)
class Job:
    """One job. `verb`: the function of the command line; its name is that of the command, its docstring the
    help, and its parameters beside the call are options, or dataclasses of options that belong together.

    `body` and `beside`: the types of what its JSON has for each policy, and beside `policies`; None: nothing
    of its own. `title` and `columns`: its table for people, and the keys of the JSON that are columns of it.
    `rights`: what it does in collections of bucketwise, by their names. `answers`: what it prints is what it
    was asked for, and stays with --quiet. `checked` and `audited`: findings that a check and an audit may
    have because of this job."""

    verb: Callable[..., Report]
    examples: Sequence[str]
    body: type | None = None
    beside: type | None = None
    title: str = ""
    columns: Sequence[str] = ()
    is_pausable: bool = False  # not while the policy is paused, or its window closed
    is_measured: bool = False  # adds its runs to the metrics
    has_workers: bool = False  # takes --workers and --executor
    reads_departed: bool = False  # also works on a policy that has left the file
    answers: bool = False
    asks: bool = False  # has a prompt, which --yes answers
    former: Mapping[str, str] = field(default_factory=dict)  # its options by deprecated names
    unused: Sequence[str] = ()  # common options that it takes and does not use; its help leaves them out
    rights: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    checked: Sequence[Code] = ()
    audited: Sequence[Code] = ()

    @property
    def name(self) -> str:
        """Returns the name of its command."""
        return self.verb.__name__

    @property
    def _parameters(self) -> list[inspect.Parameter]:
        return list(inspect.signature(self.verb, eval_str=True).parameters.values())[1:]

    @property
    def options(self) -> list[inspect.Parameter]:
        """Returns the options that the verb has of its own."""
        return [option for it in self._parameters for option in _grouped(it) or [it]]

    def bind(self, given: Mapping[str, Any]) -> Callable[[Call], Report]:
        """Returns the verb with options given by their names."""
        single = dict(given)
        groups = {
            it.name: it.annotation(**{one.name: single.pop(one.name) for one in options if one.name in given})
            for it in self._parameters
            if (options := _grouped(it))
        }
        return functools.partial(self.verb, **single, **groups)


def with_current_names(
    arguments: Sequence[str], former: Mapping[str, str]
) -> tuple[list[str], list[tuple[str, str]]]:
    """Returns the arguments with their options as these are called now, and which were not: the name that
    was used, and the one that replaces it."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    parts = [it.partition("=") for it in arguments[:end]]
    uses = [(name, former[name]) for name, _, _ in parts if name in former]
    sound = [f"{former.get(name, name)}{equals}{value}" for name, equals, value in parts]
    return [*sound, *arguments[end:]], uses


def _grouped(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    """Returns the options that a parameter of a verb stands for, if it is a dataclass of them."""
    kind: type = parameter.annotation
    return list(inspect.signature(kind, eval_str=True).parameters.values()) if is_dataclass(kind) else []


#: Common options by deprecated names.
FORMER_COMMON: dict[str, str] = {}

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
    typer.Option(
        "--policy",
        "-p",
        metavar="NAME",
        help="Run only this policy. Can be repeated.",
        autocompletion=policy_names,
    ),
]

Now = Annotated[
    str | None, typer.Option("--now", metavar="INSTANT", help="Use this time (ISO 8601) as the current time.")
]

Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]

Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print no progress, and nothing where a job finds all well.")
]

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
    if path is None:
        return None
    from bucketwise.config.checks.settings import metrics_file_fault

    if fault := metrics_file_fault(str(path)):
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

SINCE: Any = typer.Option(
    "--since",
    metavar="WHEN",
    help="Start of the range, inclusive: an instant (ISO 8601), a day or month such as 2018-06, "
    "today, yesterday, or a time ago such as -7d.",
)
UNTIL: Any = typer.Option(
    "--until",
    metavar="WHEN",
    help="End of the range, exclusive; as --since. A day or month is its first instant.",
)
Since = Annotated[str | None, SINCE]
Until = Annotated[str | None, UNTIL]

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


def _options(default: bool | None = None, **annotations: Any) -> list[inspect.Parameter]:
    kind = inspect.Parameter.KEYWORD_ONLY
    return [inspect.Parameter(name, kind, default=default, annotation=it) for name, it in annotations.items()]


#: Options that every verb has. They may stand before the verb as well.
COMMON = [
    *_options(config=Config, policy=Names, now=Now),
    *_options(False, json=Json, quiet=Quiet),
    *_options(log_format=Logs),
    *_options(False, yes=Yes),
]
_WORKERS = _options(workers=WorkerCount, executor=Executor)
_METRICS_FILE = _options(metrics_file=MetricsFile)
_NO_THROTTLE = _options(False, no_throttle=NoThrottle)


def with_options(function: Callable[..., Any], parameters: Sequence[inspect.Parameter]) -> Callable[..., Any]:
    """Returns the function with these parameters as its own, as typer reads them."""
    taken = [it.replace(kind=inspect.Parameter.KEYWORD_ONLY) for it in parameters]
    function.__signature__ = inspect.Signature(taken)  # type: ignore[attr-defined]
    function.__annotations__ = {it.name: it.annotation for it in taken}
    return function


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
    own = job.options
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    working = _WORKERS if job.has_workers else []
    running = [*(_METRICS_FILE if job.is_measured else []), *(_NO_THROTTLE if job.is_pausable else [])]

    @functools.wraps(job.verb)
    def run(context: typer.Context, **given: Any) -> int:
        before: dict[str, Any] = context.obj or {}  # common options that stood before the verb
        after = {it.name: value for it in COMMON if (value := given.pop(it.name))}
        policies = (*before.get("policy", ()), *after.get("policy", ()))
        merged = before | after | {"policy": policies}
        merged["is_measured"] = job.is_measured and not given.get("dry_run")
        merged["is_dry"] = bool(given.get("dry_run"))
        merged["arguments"] = _arguments_to_repeat([*own, *working], given)
        merged |= {it.name: given.pop(it.name) for it in (*working, *running)}
        from bucketwise.jobs.core.execution import execute  # it brings the driver, and more

        return execute(job, merged, job.bind(given))

    unused = {*job.unused, *(() if job.asks else ("yes",))}
    common = [_hidden(it) if it.name in unused else it for it in COMMON]
    return with_options(run, (context, *own, *working, *running, *common))


def _hidden(option: inspect.Parameter) -> inspect.Parameter:
    """Returns an option that is taken, and not in the help."""
    (info,) = (it for it in option.annotation.__metadata__ if isinstance(it, OptionInfo))
    unshown = copy.copy(info)
    unshown.hidden = True
    return option.replace(annotation=Annotated[option.annotation.__origin__, unshown])


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


Every = Annotated[
    str | None,
    typer.Option("--every", metavar="DURATION", help="Answer on an even grid of such steps: 15m, 1d."),
]

Filled = Annotated[
    Literal["previous", "linear", "null"] | None,
    typer.Option("--fill", help="What steps without readings show: the value before, one between, or null."),
]


@dataclass(frozen=True)
class Steps:
    """The options that ask for an even grid."""

    every: Every = None
    fill: Filled = None

    def length(self) -> timedelta | None:
        """Returns the length of the steps; None where no grid is asked for. Raises UsageError where it is no
        length, or where there is something to fill and no grid."""
        if self.every is None:
            if self.fill is not None:
                raise UsageError(
                    f"--fill {self.fill} fills steps: say how long they are with --every, such as --every 15m"
                )
            return None
        try:
            length = parse_duration(self.every)
        except InvalidValueError as error:
            raise UsageError(f"--every {self.every}: {error.fault.message}; {error.fault.remedy}") from None
        if not length:
            raise UsageError(f"--every {self.every}: write a length such as 15m, 1h or 1d")
        return length


#: No grid.
NO_STEPS = Steps()
