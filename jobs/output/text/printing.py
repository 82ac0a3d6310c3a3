"""Prints what people see, to a terminal or a file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TextIO

from rich.console import Console, RenderableType
from rich.text import Text

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
