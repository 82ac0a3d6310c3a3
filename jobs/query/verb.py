"""`bucketwise query`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bucketwise.config.errors import UsageError
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.job import Job
from bucketwise.jobs.core.stopping import interruptible, waking
from bucketwise.jobs.output.bodies import asking
from bucketwise.jobs.output.progress import ProgressDisplay
from bucketwise.jobs.output.report import Report, worst_exit_code
from bucketwise.jobs.output.streams import check_output

if TYPE_CHECKING:
    from bucketwise.jobs.query.answers import Answers
    from bucketwise.jobs.query.engine import Engine

_HELP = """\
SQL ends with a semicolon, and may take several lines.
.tables         list the views
.schema [VIEW]  show the columns of a view, or of all
.explain SQL;   show what a statement would read
.exit           leave (also Ctrl-D)
"""

_MOST_HISTORY = 1_000


def prompt(call: Call, engine: Engine, answers: Answers) -> Report:
    """Answer statement after statement, until the end of input or `.exit`. Errors are shown, and it goes on;
    Ctrl-C ends the statement in hand. Without a terminal the exit code is that of the worst."""
    from bucketwise.jobs.core.execution import emit

    codes = []
    with _history():
        for text in _statements():
            if text == ".exit":
                break
            report = _answer(call, engine, answers, text)
            if report is not None:
                emit(report, as_json=call.json)
                codes.append(report.exit_code)
    code = 0 if sys.stdin.isatty() else worst_exit_code(codes)
    return Report(call.command, call.now, error_code=code)


def _answer(call: Call, engine: Engine, answers: Answers, text: str) -> Report | None:
    from bucketwise.jobs.core.execution import failed

    word, _, rest = text.partition(" ")
    try:
        if word == ".tables":
            sys.stdout.write("".join(f"{name}\n" for name in engine.views))
        elif word == ".schema":
            for name in [rest.strip()] if rest.strip() else engine.views:
                sys.stdout.write(f"{engine.schema(name)}\n")
        elif word == ".explain":
            return answers.explained(rest)
        elif word.startswith("."):
            sys.stdout.write(_HELP)
        else:
            return answers.found(text)
        return None
    except Exception as error:  # noqa: BLE001  # no traceback reaches a user
        call.stop.is_requested = False  # of this statement alone
        report = failed(call.command, error, call.now, call.hosts)
        return Report(call.command, call.now, error=report.error, error_code=report.error_code)


def _statements() -> Iterator[str]:
    """Lines that begin with a dot, and what ends with a semicolon. Nobody is prompted without a terminal."""
    held, is_terminal = "", sys.stdin.isatty()
    while True:
        try:
            with interruptible():
                line = input(("   ...> " if held else "bucketwise> ") if is_terminal else "")
        except EOFError:
            sys.stdout.write("\n" if is_terminal else "")
            break
        except KeyboardInterrupt:
            sys.stdout.write("\n")
            line = held = ""
        held = f"{held}\n{line}" if held else line
        if held.strip().endswith(";") or (held.startswith(".") and not held.startswith(".explain")):
            yield held.strip().rstrip(";")
            held = ""
        elif not held.strip():
            held = ""
    if held.strip():
        yield held.strip()


@contextmanager
def _history() -> Iterator[None]:
    """Lines of earlier sessions at hand, in a file that this user alone may read."""
    if not sys.stdin.isatty():
        yield
        return
    import readline  # changes what `input` does

    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    file = Path(state) / "bucketwise" / "query_history"
    with suppress(OSError):
        readline.read_history_file(file)
    try:
        yield
    finally:
        readline.set_history_length(_MOST_HISTORY)
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file.touch(mode=0o600)
            readline.write_history_file(file)


Format = Literal["table", "csv", "json", "parquet", "arrow"]
_OF_FILES: tuple[Format, ...] = ("csv", "json", "parquet", "arrow")

Sql = Annotated[
    str | None,
    typer.Argument(metavar="SQL", help="One statement that reads. Default: what comes in on stdin."),
]

How = Annotated[
    Format | None,
    typer.Option("--format", help="Output format. Default: that of FILE by its name, or a table."),
]

Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write to this file, which appears once it is complete. One that exists is replaced with --yes "
        "only.",
    ),
]

Explain = Annotated[bool, typer.Option("--explain", help="Print what would be read, and read nothing.")]
Interactive = Annotated[bool, typer.Option("--interactive", help="Read statements from a prompt.")]


def query(
    call: Call,
    *,
    sql: Sql = None,
    form: How = None,
    output: Output = None,
    explain: Explain = False,
    interactive: Interactive = False,
) -> Report:
    """Query readings and summaries in SQL.

    DuckDB over a view per policy, such as ticks: every reading, live and archived, each once. ticks_hourly
    and so on are its summaries, ticks_coverage is where each day is. Filters on time and series decide what
    is read of MongoDB and of the archive. Nothing is written but the result.
    """
    from bucketwise.jobs.query import answers

    _check(call, form, output)
    text = None if interactive else _text(sql)
    chosen = _format(form, output)
    if output is None and chosen != "table" and sys.stdout.isatty():
        call = replace(call, quiet=True)  # a moving bar among the rows
    progress = call.progress
    with _engine(call, progress) as engine, waking(engine.connection.interrupt):
        given = answers.Answers(call, engine, progress, answers.Format(chosen), output)
        if text is None:
            return prompt(call, engine, given)
        return given.explained(text) if explain else given.found(text)


def _format(form: Format | None, output: Path | None) -> Format:
    if form is not None or output is None:
        return form or "table"
    named = output.suffix.removeprefix(".").lower()
    return next((it for it in _OF_FILES if it == named), "table")


def _check(call: Call, form: Format | None, output: Path | None) -> None:
    if call.json and form is not None and output is None:
        raise UsageError(f"--json prints a report, and --format {form} other output. Give one of the two")
    if output is None:
        if form == "parquet" and sys.stdout.isatty():
            raise UsageError("--format parquet: a terminal can't show it; name a file with --output")
        return
    if form is None and _format(form, output) == "table":
        raise UsageError(f"--output {output}: say with --format how it is written: {', '.join(_OF_FILES)}")
    check_output(output)
    if output.exists() and not call.yes:
        raise UsageError(f"--output {output}: the file exists. Name another one, or give --yes to replace it")


def _text(sql: str | None) -> str:
    if sql is None and sys.stdin.isatty():
        raise UsageError(
            "there is no SQL: give it as an argument or on stdin, or ask for a prompt with --interactive"
        )
    found = sys.stdin.read() if sql is None else sql
    if not found.strip():
        raise UsageError('the SQL is empty: write a statement, such as "SELECT count(*) FROM ticks"')
    return found


@contextmanager
def _engine(call: Call, progress: ProgressDisplay) -> Iterator[Engine]:
    from bucketwise.archivers.context import Connections

    try:
        from bucketwise.archivers.preconditions import OF_READERS, require
        from bucketwise.jobs.query.engine import Engine
        from bucketwise.jobs.query.rewriting import read_context
    except ImportError as error:
        raise UsageError(str(error)) from None
    policies, memory = call.policies, int(call.settings.work.memory)
    with call.database() as database:
        connections = Connections(database, call.store, keys=call.keys)
        known = tuple(call.settings.policies.values())
        contexts = [
            read_context(connections, it, call.now, call.stop.check, progress, known) for it in policies
        ]
        for context in contexts:
            require(context, OF_READERS)
        with Engine(contexts, memory) as engine:
            yield engine


JOB = Job(
    query,
    body=asking.Query,
    beside=asking.QueryWhole,
    asks=True,
    examples=(
        "bucketwise query \"SELECT symbol, max(p) FROM ticks WHERE time >= '2018-06-30' GROUP BY symbol\"",
        'bucketwise query "FROM ticks_daily" --format csv',
        "bucketwise query --output june.parquet \"FROM ticks WHERE time < '2018-07-01'\"",
        'bucketwise query --explain "SELECT count(*) FROM ticks"',
        "bucketwise query --interactive",
    ),
    reads_departed=True,
    answers=True,
)
