"""The cells and frames of tables for people."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from bucketwise.jobs.clock import iso
from bucketwise.jobs.output.report import Result

#: Columns that are not called as their keys.
_HEADS = {
    "bytes": "size", "bytes_before": "size before", "bytes_after": "after",
    "output": "to", "pinned_until": "until",
}  # fmt: skip


def printable(text: str) -> str:
    """Returns text with escapes for whatever moves a terminal's cursor, changes its colours, or reverses the
    line."""
    if text.isprintable():
        return text
    return "".join(it if it.isprintable() else it.encode("unicode_escape").decode() for it in text)


def plain_table(title: str, *heads: str, right: Collection[str] = ()) -> Table:
    """Returns one that has no rows yet. Those at the `right` are columns of numbers."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for head in heads:
        table.add_column(head, justify="right" if head in right else "left", overflow="fold")
    return table


def outcome_table(title: str, *heads: str) -> Table:
    """Returns one without rows, whose last column is the outcome."""
    texts = ("policy", "to", "verb", "started", "ended", "error", "by")
    return plain_table(title, *heads, "outcome", right=[it for it in heads if it not in texts])


def table_of(title: str, results: Sequence[Result], *keys: str, step: str = "") -> Table:
    """Returns a row for each policy with the values of these keys; `step`: that of the step, where there are
    several."""
    table = outcome_table(title, "policy", *(_HEADS.get(it, it.replace("_", " ")) for it in keys))
    for result in results:
        body = result.body.get(step, result.body)
        table.add_row(result.policy, *(cell(key, body.get(key)) for key in keys), outcome(result))
    return table


def cell(key: str, value: Any) -> str:
    """Returns the value of a key as text."""
    if isinstance(value, int):
        return size(value) if key.startswith("bytes") else f"{value:,}"
    return value if isinstance(value, str) else instant(value)


def outcome(result: Result) -> Text:
    """Returns how a policy's turn ended, in its colour."""
    style = "green" if result.outcome == "done" else "yellow" if result.exit_code in (0, 3) else "bold red"
    return Text(result.outcome, style=style)


def number(value: int | None, none: str = "–") -> str:
    """Returns a number with commas between thousands; `none` where there is none."""
    return none if value is None else f"{value:,}"


def instant(value: Any) -> str:
    """Returns an instant as text; a dash for none."""
    return "–" if value is None else iso(value)


def size(count: int | None) -> str:
    """Returns bytes as text, in the unit that suits them."""
    if count is None:
        return "–"
    scaled, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):  # noqa: B007  # the last one stands for all above
        if scaled < 1000:
            break
        scaled /= 1000
    return f"{scaled:.0f} {unit}" if unit == "B" else f"{scaled:.1f} {unit}"
