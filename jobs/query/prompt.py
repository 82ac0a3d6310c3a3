"""The prompt of `bucketwise query --interactive`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.command import emit, failed
from bucketwise.jobs.core.stopping import interruptible
from bucketwise.jobs.output.report import Report, worst_exit_code
from bucketwise.jobs.query.answers import Answers

if TYPE_CHECKING:
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
