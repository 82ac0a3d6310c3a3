"""Holds as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType

from jobs.clock import iso
from jobs.output.report import Result
from jobs.output.text.tables import plain_table, printable


def holds_table(results: Sequence[Result]) -> RenderableType:
    """Returns a row for each hold of each policy."""
    heads = ("policy", "name", "series", "since", "until", "freezes", "placed", "by", "reason")
    table = plain_table("Holds", *heads)
    for result in results:
        for it in result.body.get("holds", ()):
            series = " ".join(f"{field}={value}" for field, value in it["series"].items()) or "all"
            since, until = (iso(it[key]) if it[key] else "–" for key in ("since", "until"))
            what = (it["name"], series, since, until, "yes" if it["freeze"] else "no")
            row = (result.policy, *what, iso(it["placed_at"]), it["by"], it["reason"])
            table.add_row(*map(printable, row))
    return table
