"""Changes to Iceberg tables, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from jobs.output.report import Result
from jobs.output.text.tables import printable


def lake_lines(results: Sequence[Result]) -> Iterator[RenderableType]:
    """Yields a line for each table that has changed, or could not."""
    for result in results:
        body = result.body.get("lake") or {}
        if "error" in body:
            told = f"{result.policy}: its Iceberg table is behind: {body['error']}"
            yield Text(printable(told), style="yellow")
        elif body.get("added") or body.get("removed"):
            yield _line(result.policy, body["added"], body["removed"], body["snapshot"])


def sync_lines(results: Sequence[Result]) -> list[RenderableType]:
    """Returns a line for each table that was compared with its archive."""
    bodies = ((it.policy, it.body) for it in results if "added" in it.body)
    return [
        Text(f"{policy}: nothing is archived offline, so it has no Iceberg table")
        if body["snapshot"] is None
        else _line(policy, body["added"], body["removed"], body["snapshot"])
        for policy, body in bodies
    ]


def _line(policy: str, added: int, removed: int, snapshot: int) -> Text:
    return Text(f"{policy}: Iceberg table: {added:,} parts added, {removed:,} taken out; snapshot {snapshot}")
