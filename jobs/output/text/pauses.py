"""Pauses, and windows that are closed, as text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from jobs.clock import iso
from jobs.output.report import Result
from jobs.output.text.tables import plain_table, printable


def pauses_table(results: Sequence[Result]) -> RenderableType:
    """Returns a row for each policy, paused or not."""
    table = plain_table("Pauses", "policy", "paused since", "by", "reason")
    for result in results:
        it = result.body.get("paused")
        row = (iso(it["since"]), it["by"], it["reason"]) if it else ("–", "–", "–")
        table.add_row(result.policy, *map(printable, row))
    return table


def pause_lines(results: Sequence[Result]) -> list[RenderableType]:
    """Returns a line for each policy that is paused, or whose window is closed. Where a pause cut a run off,
    the error says so."""
    found = [(it.policy, it.paused or it.body.get("paused")) for it in results if it.error is None]
    told = [
        f"{policy}: paused since {iso(it['since'])} by {it['by']}: {it['reason']}"
        for policy, it in found
        if it
    ]
    closed = ((it.policy, it.stopped, it.next_window) for it in results)
    told += [f"{policy}: {why}; the next one opens {iso(at)}" for policy, why, at in closed if why and at]
    return [Text(printable(line), style="yellow") for line in told]
