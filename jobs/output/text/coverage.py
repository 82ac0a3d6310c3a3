"""Where each day is: as a strip, as a table, and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from bucketwise.jobs.clock import iso
from bucketwise.jobs.output.report import Result
from bucketwise.jobs.output.text.cells import number, plain_table

Body = dict[str, Any]
#: How the strip shows a state: its letter, and the style of it.
_SHOWN = {
    "live": ("L", "green"),
    "both": ("B", "cyan"),
    "archived": ("A", "blue"),
    "online": ("O", "blue"),
    "summarised": ("s", "yellow"),
    "expired": ("x", "dim"),
    "gap": (".", "bold red"),
}
_COUNTED = (
    "readings", "live", "archived", "online", "summarised", "live_buckets", "pinned", "held", "quarantined",
)  # fmt: skip


def coverage_tables(results: Sequence[Result]) -> list[RenderableType]:
    """Returns a strip and a table for each policy."""
    shown: list[RenderableType] = []
    for result in results:
        if days := result.body.get("days"):
            shown += [_table(result.policy, days), *strip(days), _legend(days)]
            if any(it[key] is None for it in days for key in _COUNTED):
                shown.append(Text("? unknown: neither in manifests nor in summaries"))
        elif "days" in result.body:
            shown.append(Text(f"{result.policy}: nothing is known about this range"))
    return shown


def coverage_csv(results: Sequence[Result]) -> list[RenderableType]:
    """Returns coverage as CSV: a line a row, empty where a count can't be told."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    by_hour = any("hour" in it for result in results for it in result.body.get("days", ()))
    keys = ("day", *(("hour",) if by_hour else ()), "state", *_COUNTED)
    writer.writerow(("policy", *keys, "commits", "expires_at"))
    for result in results:
        for it in result.body.get("days", ()):
            commits = " ".join(commit["commit"] for commit in it["commits"])
            expires = iso(it["expires_at"]) if it["expires_at"] else None
            writer.writerow((result.policy, *(it[key] for key in keys), commits, expires))
    return [Text(text.getvalue().removesuffix("\n"))]


def _table(policy: str, days: Sequence[Body]) -> Table:
    has_ends = any(it["expires_at"] for it in days)
    heads = [it.replace("_", " ") for it in (*_COUNTED, "commits", *(["expires"] if has_ends else []))]
    table = plain_table(f"Coverage of {policy}", "day", "state", *heads, right=heads)
    for it in days:
        counts = [number(it[key], "?") for key in _COUNTED]
        state = Text(it["state"], style=_SHOWN[it["state"]][1])
        ends = [f"{it['expires_at']:%Y-%m-%d}" if it["expires_at"] else ""] if has_ends else []
        table.add_row(_name(it), state, *counts, f"{len(it['commits']):,}", *ends)
    return table


def _name(it: Body) -> str:
    return f"{it['day']} {it['hour']:02}h" if "hour" in it else str(it["day"])


def strip(days: Sequence[Body]) -> Iterator[Text]:
    """Yields a line a month, a letter a day; or a line a day, a letter an hour."""
    by_hour = "hour" in days[0]
    for line, some in groupby(days, lambda it: it["day"] if by_hour else it["day"][:7]):
        first, *rest = some
        before = first["hour"] if by_hour else int(first["day"][8:]) - 1
        shown = Text(f"{line}  {' ' * before}")
        for it in (first, *rest):
            shown.append(*_SHOWN[it["state"]])
        yield shown


def _legend(days: Sequence[Body]) -> Text:
    states = {it["state"] for it in days}
    return Text("  ".join(f"{letter} {name}" for name, (letter, _) in _SHOWN.items() if name in states))
