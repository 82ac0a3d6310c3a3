"""Two policy files compared: a table for each policy, and what follows from the difference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from bucketwise.jobs.output.report import Result
from bucketwise.jobs.output.text.cells import plain_table, printable

Body = dict[str, Any]
_ROWS = {
    "archived": "buckets archived", "deleted": "buckets deleted", "kept": "buckets kept",
    "bytes": "bytes archived", "readings": "readings archived", "days": "days archived",
    "quarantined": "buckets quarantined",
}  # fmt: skip
_COLUMNS = ("today", "against", "difference")


def against_tables(results: Sequence[Result]) -> list[RenderableType]:
    """Returns a table for each policy, with sentences below it."""
    shown: list[RenderableType] = []
    for result in (it for it in results if it.body):
        shown += [_table(result.policy, result.body), *_lines(result.policy, result.body)]
    return shown


def _table(policy: str, body: Body) -> Table:
    heads = [head + later for later in ("", " in 90 days") for head in _COLUMNS]
    table = plain_table(f"Policy {policy}", "", *heads, right=heads)
    for key, title in _ROWS.items():
        _row(table, title, [body[instant][it][key] for instant in ("now", "in_90_days") for it in _COLUMNS])
    for level in body["now"]["difference"]["summaries"]:
        found = [body[instant][it]["summaries"] for instant in ("now", "in_90_days") for it in _COLUMNS]
        _row(table, f"{level} summaries removed", [it.get(level, 0) for it in found])
    return table


def _row(table: Table, title: str, counts: Sequence[int]) -> None:
    cells = [f"{it:+,}" if place % 3 == 2 and it else f"{it:,}" for place, it in enumerate(counts)]
    table.add_row(title, *cells)


def _lines(policy: str, body: Body) -> Iterator[Text]:
    if body["only_in"]:
        has = {"today": "it is only in today's file", "against": "it is only in the other file"}
        yield Text(f"policy {policy}: {has[body['only_in']]}")
    for file, stops in body["stops"].items():
        name = "today's file" if file == "today" else "the other file"
        yield from (
            Text(printable(f"policy {policy}: a run by {name} stops: {it}"), style="bold red") for it in stops
        )
    if (anew := body["anew"]) is not None:
        count = (
            f"{anew['live_buckets']:,} live and {anew['archived_buckets']:,} archived buckets are read again"
        )
        yield Text(f"policy {policy}: rolled up again: {', '.join(anew['levels'])}; {count}")
    yield from (Text(printable(f"cannot be undone: {it}"), style="yellow") for it in body["irreversible"])
