"""Run in a process of the command line before it starts: what it prints is drawn at several widths."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TextIO

from rich.console import RenderableType

from bucketwise.jobs.output import tables
from bucketwise.jobs.query import answers

#: Between the same report in one width and in the next.
BREAK = "\f"


def install(widths: Sequence[int]) -> None:
    """The first one is that of a pipe."""
    draw, of_pipes = tables.print_tables, tables._WIDTH_OF_FILES

    def draw_at_each(shown: Iterable[RenderableType], out: TextIO) -> None:
        kept = list(shown)
        for width in (of_pipes, *widths):
            tables._WIDTH_OF_FILES = width
            draw(kept, out)
            out.write(BREAK)

    tables.print_tables = draw_at_each  # type: ignore[assignment]
    answers.print_tables = draw_at_each  # type: ignore[assignment,attr-defined]
