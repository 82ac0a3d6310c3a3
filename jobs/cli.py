"""The command line: `bucketwise VERB`."""

from __future__ import annotations

from bucketwise.buckets import heap

heap.keep_freed_memory()  # first of all: with Arrow comes a thread, that would have a heap of its own already

import sys
import threading
from functools import cache
from typing import Annotated, Any

import typer

from bucketwise import __version__
from bucketwise.config.errors import UsageError
from bucketwise.jobs.core import clock, logs
from bucketwise.jobs.core.command import (
    Config,
    Json,
    Logs,
    Names,
    Now,
    Quiet,
    Yes,
    command,
    common,
    emit,
    failed,
)
from bucketwise.jobs.core.failures import log_thread_error
from bucketwise.jobs.core.stopping import fix_exit_code
from bucketwise.jobs.output import streams
from bucketwise.jobs.suite import VERBS, load

NAME = "bucketwise"


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"{NAME} {__version__}")
        raise typer.Exit


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


def main() -> None:
    """Runs the program. Ends the process with the exit code."""
    verb = _verb_in(sys.argv[1:])
    named = program(*([verb] if verb else VERBS))
    heap.freeze_objects()
    streams.protect_streams()
    threading.excepthook = log_thread_error
    code = _run(named, verb, sys.argv[1:])
    fix_exit_code(code)
    sys.exit(code)


@cache
def program(*names: str) -> Any:
    """Returns the command that has these verbs."""
    app = typer.Typer(
        name=NAME,
        help="Keeps time-series collections in MongoDB small: hourly and daily summaries, verified archives, "
        "guarded deletes.",
        epilog="Exit codes: 0 all done, 1 failed and safe to run again, 2 bad usage or config, 3 something "
        "was left alone, 4 a policy is not kept, 5 halted, 11 another run holds the lease, 130 interrupted.",
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    app.callback()(_before_the_verb)
    for name in names:
        verb, examples = load(name)
        epilog = "\b\nExamples:\n" + "\n".join(f"  {example}" for example in examples)
        app.command(name, help=verb.__doc__, epilog=epilog)(command(verb, name))
    return typer.main.get_command(app)


def _verb_in(arguments: list[str]) -> str | None:
    """Returns the verb that the arguments name, read as the command line itself reads them; None where they
    name none, or help on the program is asked for."""
    group = program()
    context = group.context_class(group, ignore_unknown_options=True, **group.context_settings)
    parser = group.make_parser(context)
    try:
        options, rest, _ = parser.parse_args(list(arguments))
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        return None  # refused once more where it is run
    word = next((it for it in rest if not it.startswith("-")), None)
    return word if word in VERBS and not options.get("help") else None


def _run(program: Any, verb: str | None, arguments: list[str]) -> int:
    if not arguments:
        program.main(["--help"], prog_name=NAME, standalone_mode=False)
        return 2
    try:
        code: Any = program.main(arguments, prog_name=NAME, standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except Exception as error:
        # typer has had its own click since 0.2x, so this relies on what the errors of both can do.
        if not hasattr(error, "format_message"):
            raise
        return _refuse(error.format_message().replace("Value error, ", ""), verb, arguments)
    return code if isinstance(code, int) else 0


def _refuse(message: str, verb: str | None, arguments: list[str]) -> int:
    hint = f"See: {NAME} {verb} --help" if verb else f"See: {NAME} --help"
    report = failed(verb, UsageError(f"{message} {hint}"), clock.current())
    logs.configure(form=logs.requested_format(arguments), verb=verb)
    emit(report, as_json="--json" in arguments)
    return report.exit_code


if __name__ == "__main__":
    main()
