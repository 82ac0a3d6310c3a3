"""stdout and stderr that are no longer read, lie on a full disk, or were closed at the start.

The work of a run matters more than its output: nothing is cut off because stderr fails.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TextIO

from rich.console import Console, RenderableType
from rich.text import Text


def protect_streams() -> None:
    """Makes sure that both streams exist, and that a failing write to stderr raises nothing."""
    if sys.stdout is None:
        sys.stdout = _null_stream()
    sys.stderr = _ErrorIgnoringStream(sys.stderr or _null_stream())


def discard_buffer(stream: TextIO) -> None:
    """Discards what is left in a stream's buffer: Python would try to write it at its end."""
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


def _null_stream() -> TextIO:
    return Path(os.devnull).open("w")


class _ErrorIgnoringStream:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError:
            discard_buffer(self._stream)
            return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            discard_buffer(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def write_atomically(path: Path) -> Iterator[IO[bytes]]:
    """Yields a file that gets its name once it is whole. A link, a pipe or a device is written as it is."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        with path.open("wb") as file:
            yield file
        return
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with unfinished.open("w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


_WIDTH_OF_FILES = 2000  # where output is no terminal, nothing is folded


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise  # rich would end the process with 1, whatever the report says


def print_tables(tables: Iterable[RenderableType], out: TextIO) -> None:
    """Print tables and lines. Raises BrokenPipeError where nobody reads."""
    width = None if out.isatty() else _WIDTH_OF_FILES
    console = _Console(file=out, width=width, markup=False, highlight=False)
    for table in tables:
        console.print(table, soft_wrap=isinstance(table, Text))  # whole lines, to be copied from
