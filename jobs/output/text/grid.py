"""A table of cells, as people see it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from rich import box
from rich.table import Table
from rich.text import Text


def grid(
    title: str, heads: Sequence[str], rows: Iterable[Sequence[str | Text]], *, texts: Collection[str]
) -> Table:
    """Returns a table with these columns. `texts`: the heads of those that are to the left, and fold."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for head in heads:
        is_text = head in texts
        table.add_column(
            head, justify="left" if is_text else "right", overflow="fold" if is_text else "ellipsis"
        )
    for row in rows:
        table.add_row(*row)
    return table
