"""The command line: `bucketwise VERB`."""

from __future__ import annotations

from bucketwise.buckets import heap

heap.keep_freed_memory()  # first of all: with Arrow comes a thread, that would have a heap of its own already

import inspect
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Annotated, Any

import typer
from typer.core import CompletionItem, TyperGroup  # type: ignore[attr-defined]

from bucketwise.config import VERSION
from bucketwise.config.deprecated import DeprecatedWarning
from bucketwise.config.deprecated import warn as warn_of_former
from bucketwise.config.errors import UsageError
from bucketwise.jobs.core.job import COMMON, FORMER_COMMON, command, with_current_names, with_options
from bucketwise.jobs.core.stopping import fix_exit_code
from bucketwise.jobs.output import streams
from bucketwise.jobs.suite import ENTRIES, GROUPS, load

NAME = "bucketwise"
_HELP = {"help_option_names": ["--help", "-h"]}
_WIDTH = max(map(len, ENTRIES))
_EXTRA = re.compile(r"unexpected extra argument(?:s|\(s\))? \(([^\s)]+)")


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"{NAME} {VERSION}")
        raise typer.Exit


_Version = Annotated[
    bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
]


def _before_the_verb(context: typer.Context, **given: Any) -> None:
    context.obj = {it.name: value for it in COMMON if (value := given[it.name])}


class _Commands(Mapping[str, Any]):
    """The commands of the jobs by their names; each is imported when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        return _command(name)

    def __iter__(self) -> Iterator[str]:
        return iter(ENTRIES)

    def __len__(self) -> int:
        return len(ENTRIES)


class _Suite(TyperGroup):
    """The program: it lists the jobs without importing them."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Commands()  # type: ignore[assignment]

    def format_commands(self, _context: Any, formatter: Any) -> None:
        """Writes the jobs in their groups."""
        for group, entries in GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(name.ljust(_WIDTH), it.summary) for name, it in entries.items()])

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Returns the jobs, and the options of the program, that begin so."""
        jobs = [CompletionItem(name, help=it.summary) for name, it in ENTRIES.items()]
        options = super(TyperGroup, self).shell_complete(ctx, incomplete)
        return [*(it for it in jobs if it.value.startswith(incomplete)), *options]


def main() -> None:
    """Runs the program. Ends the process with the exit code."""
    streams.protect_streams()
    warnings.showwarning = partial(_show_warning, warnings.showwarning)
    arguments = _current(None, sys.argv[1:], FORMER_COMMON)
    verb = _verb_in(arguments)
    if verb is not None:
        arguments = _current(verb, arguments, load(verb).former)
    heap.freeze_objects()
    threading.excepthook = _log_thread_error
    code = _run(verb, arguments)
    fix_exit_code(code)
    heap.freeze_objects()  # also what came since: else Python searches all of it for garbage as it ends
    sys.exit(code)


@cache
def program() -> Any:
    """Returns the command that has all others."""
    app = typer.Typer(
        name=NAME,
        cls=_Suite,
        help="Keeps time-series collections in MongoDB small: hourly and daily summaries, verified archives, "
        "guarded deletes.",
        epilog="Exit codes: 0 all done, 1 failed and safe to run again, 2 bad usage or config, 3 something "
        "was left alone, 4 a policy is not kept, 5 halted, 11 another run holds the lease, 130 interrupted.",
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings=_HELP,
    )
    kind = inspect.Parameter.KEYWORD_ONLY
    before = inspect.Parameter("context", kind, annotation=typer.Context)
    version = inspect.Parameter("version", kind, default=False, annotation=_Version)
    app.callback()(with_options(_before_the_verb, (before, *COMMON, version)))
    return typer.main.get_command(app)


@cache
def _command(name: str) -> Any:
    if name not in ENTRIES:
        raise KeyError(name)
    job = load(name)
    app = typer.Typer(rich_markup_mode=None, add_completion=False, context_settings=_HELP)
    epilog = "\b\nExamples:\n" + "\n".join(f"  {example}" for example in job.examples)
    app.command(name, help=job.verb.__doc__, epilog=epilog)(command(job))
    return typer.main.get_command(app)


def _current(verb: str | None, arguments: list[str], former: Mapping[str, str]) -> list[str]:
    """Returns the arguments with options as they are called now. Warns of those that had another name."""
    sound, uses = with_current_names(arguments, former)
    if uses:
        from bucketwise.jobs.core import logs

        logs.configure(form=logs.requested_format(sound), verb=verb)
        warn_of_former(uses)
    return sound


def _show_warning(show: Callable[..., None], message: Warning | str, kind: type[Warning], *more: Any) -> None:
    """Shows what is deprecated as a line on stderr, and other warnings as `show` does."""
    if not issubclass(kind, DeprecatedWarning):
        return show(message, kind, *more)
    from bucketwise.jobs.core import logs

    logs.complain(str(message))


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
    return word if word in ENTRIES and not options.get("help") else None


def _run(verb: str | None, arguments: list[str]) -> int:
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
        return _refuse(error.format_message().replace("Value error, ", ""), verb, arguments)
    return code if isinstance(code, int) else 0


def _log_thread_error(ended: threading.ExceptHookArgs) -> None:
    from bucketwise.jobs.core.failures import log_thread_error

    log_thread_error(ended)


def _refuse(message: str, verb: str | None, arguments: list[str]) -> int:
    from bucketwise.jobs.core import clock, logs
    from bucketwise.jobs.core.execution import emit, failed

    see = f"See: {NAME} {verb} --help" if verb else f"See: {NAME} --help"
    extra = _EXTRA.search(message)
    hint = f"A policy is named with -p: {NAME} {verb} -p {extra[1]}. {see}" if verb and extra else see
    report = failed(verb, UsageError(f"{message} {hint}"), clock.current())
    logs.configure(form=logs.requested_format(arguments), verb=verb)
    emit(report, as_json="--json" in arguments)
    return report.exit_code


if __name__ == "__main__":
    main()
