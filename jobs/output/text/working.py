"""What the verbs that work have done, as tables and lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from bucketwise.jobs.clock import iso
from bucketwise.jobs.output.report import Result
from bucketwise.jobs.output.text.cells import plain_table, printable, table_of

Body = dict[str, Any]
_ENDED = {
    "tombstoned": "were given a tombstone: `bucketwise undelete` lifts it",
    "standing": "are under a tombstone: `bucketwise undelete` lifts it",
    "expired": "were removed for good",
    "lifted": "are past retain.archive, and stay since their tombstones were lifted",
}


def archive_expiry_lines(results: Sequence[Result]) -> Iterator[Text]:
    """Yields what a run did at the end of each policy's archive, if anything."""
    for result in results:
        body = result.body.get("archive_expiry", {})
        for name, what in _ENDED.items():
            amount = body.get(name, {})
            if amount.get("buckets"):
                days, buckets = amount["days"], amount["buckets"]
                yield Text(f"{result.policy}: {buckets:,} archived buckets of {days:,} days {what}")
        for hold, count in body.get("held", {}).items():
            yield Text(f"{result.policy}: {count:,} archived buckets stay: held by {hold}")
        if live := body.get("live"):
            stay = "are past retain.archive, and stay while their originals are live"
            yield Text(f"{result.policy}: {live:,} archived buckets {stay}")


def undelete_lines(results: Sequence[Result]) -> list[RenderableType]:
    """Returns how many tombstones were lifted, and until when."""
    return [Text(_lifted(it)) for it in results if "days" in it.body]


def _lifted(it: Result) -> str:
    days, summaries = it.body["days"], it.body["summaries"]
    what = [f"{days:,} archived days"] * bool(days) + [f"{summaries:,} summaries"] * bool(summaries)
    if not what:
        return f"{it.policy}: no tombstone stands there"
    return f"{it.policy}: tombstones of {' and of '.join(what)} were lifted, until {iso(it.body['until'])}"


def erase_tables(results: Sequence[Result]) -> list[RenderableType]:
    """Returns the tables: what was erased, or would be; and where something remains, or may."""
    left = plain_table("Remaining", "place", "why")
    for result in results:
        for it in result.body.get("remaining", []):
            left.add_row(it["place"], it["why"], style="yellow" if it["found"] else None)
    none = not any(result.body.get("buckets") or result.body.get("summaries") for result in results)
    is_dry = any(result.body.get("dry_run") for result in results)
    notes = (
        [Text("Nothing was changed. Add --confirm and the policy's name to erase this.")] if is_dry else []
    )
    if none and all(result.body for result in results):
        notes.insert(0, Text("Nothing of this series was found: is --series correct?"))
    keys = ("buckets", "live", "online", "archived", "commits_rewritten", "summaries")
    return [table_of("Erase", results, *keys), *notes, left]


UNTOLD = "repeat it as it was given: the ledger does not record which series it named"


def failed_lines(results: Sequence[Result]) -> list[Text]:
    """Returns two lines for each run: what happened, and the command."""
    lines = [
        line
        for result in results
        for it in result.body.get("failed", ())
        for line in _failed_lines(result, it)
    ]
    if not lines and all(result.error is None for result in results):
        return [Text("No run needs to be repeated", style="green")]
    return lines


def _failed_lines(result: Result, it: dict[str, Any]) -> Iterator[Text]:
    error = (it["error"] or "it never finished").partition("\n")[0]
    what = f"{result.policy}: {it['verb']} of {iso(it['started'])}: {it['outcome']}: {error}"
    yield Text(printable(what), style="bold red")
    yield Text(f"    {printable(it['command'] or UNTOLD)}")


def lake_lines(results: Sequence[Result]) -> Iterator[RenderableType]:
    """Yields a line for each table that has changed, or could not."""
    for result in results:
        body = result.body.get("lake") or {}
        if "error" in body:
            behind = f"{result.policy}: its Iceberg table is behind: {body['error']}"
            yield Text(printable(behind), style="yellow")
        elif body.get("added") or body.get("removed"):
            yield _lake_line(result.policy, body["added"], body["removed"], body["snapshot"])


def sync_lines(results: Sequence[Result]) -> list[RenderableType]:
    """Returns a line for each table that was compared with its archive."""
    bodies = ((it.policy, it.body) for it in results if "added" in it.body)
    return [
        Text(f"{policy}: nothing is archived offline, so it has no Iceberg table")
        if body["snapshot"] is None
        else _lake_line(policy, body["added"], body["removed"], body["snapshot"])
        for policy, body in bodies
    ]


def _lake_line(policy: str, added: int, removed: int, snapshot: int) -> Text:
    return Text(f"{policy}: Iceberg table: {added:,} parts added, {removed:,} taken out; snapshot {snapshot}")


def publish_lines(results: Sequence[Result]) -> list[RenderableType]:
    """Returns a line for each policy that a run has published, or could not."""
    bodies = [(it.policy, it.body["publish"]) for it in results if "publish" in it.body]
    return [
        Text(printable(f"{policy}: not published: {body['error']}"), style="yellow")
        if "error" in body
        else Text(f"{policy}: {body['keys']:,} keys published")
        for policy, body in bodies
    ]
