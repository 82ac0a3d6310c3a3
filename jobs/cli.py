"""The command line: `bucketwise VERB`."""

from __future__ import annotations

from buckets import heap

heap.keep()  # first of all: with Arrow comes a thread, that would have a heap of its own already

import sys
import threading
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any

import typer

from config.errors import UsageError
from jobs import clock, logs
from jobs.execute import emit, failed
from jobs.failures import tell_of_thread
from jobs.options import Config, Json, Logs, Names, Now, Quiet, Yes, command, common
from jobs.output import streams
from jobs.output.report import Report
from jobs.stopping import settle
from jobs.verbs import VERBS
from jobs.version import VERSION

NAME = "bucketwise"

app = typer.Typer(
    name=NAME,
    help="Keeps time-series collections in MongoDB small: hourly and daily summaries, verified archives, "
    "guarded deletes.",
    epilog="Exit codes: 0 all done, 1 failed and safe to run again, 2 bad usage or config, 3 something was "
    "left alone, 4 a policy is not kept, 5 halted, 11 another run holds the lease, 130 interrupted.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"{NAME} {VERSION}")
        raise typer.Exit


@app.callback()
def _before_the_verb(
    context: typer.Context,
    config: Config = None,
    policy: Names = None,
    now: Now = None,
    json: Json = False,
    quiet: Quiet = False,
    log_format: Logs = None,
    yes: Yes = False,
    version: Annotated[  # noqa: ARG001  # its callback has the say
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    context.obj = common(config, policy, now, json, quiet, log_format, yes)


def _add(name: str, verb: Callable[..., Report], examples: list[str]) -> None:
    epilog = "\b\nExamples:\n" + "\n".join(f"  {example}" for example in examples)
    app.command(name, help=verb.__doc__, epilog=epilog)(command(verb, name))


for _name, (_verb, _examples) in VERBS.items():
    _add(_name, _verb, _examples)


def main() -> None:
    """Runs the program. Ends the process with the exit code."""
    heap.freeze()
    streams.secure()
    threading.excepthook = tell_of_thread
    code = _run(sys.argv[1:])
    settle(code)
    sys.exit(code)


@cache
def program() -> Any:
    """Returns the command that has all verbs."""
    return typer.main.get_command(app)


def _run(arguments: list[str]) -> int:
    if not arguments:
        program().main(["--help"], prog_name=NAME, standalone_mode=False)
        return 2
    try:
        code: Any = program().main(arguments, prog_name=NAME, standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except Exception as error:
        # typer has had its own click since 0.2x, so this relies on what the errors of both can do.
        if not hasattr(error, "format_message"):
            raise
        return _refuse(error.format_message().replace("Value error, ", ""), arguments)
    return code if isinstance(code, int) else 0


def _refuse(message: str, arguments: list[str]) -> int:
    verb = next((argument for argument in arguments if argument in VERBS), None)
    hint = f"See: {NAME} {verb} --help" if verb else f"See: {NAME} --help"
    report = failed(verb, UsageError(f"{message} {hint}"), clock.current())
    logs.configure(form=logs.asked_for(arguments), verb=verb)
    emit(report, as_json="--json" in arguments)
    return report.exit_code


if __name__ == "__main__":
    main()
