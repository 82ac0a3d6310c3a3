"""Tables and lines on what `retain.archive` takes out of archives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from jobs.clock import iso
from jobs.output.report import Result

Body = dict[str, Any]
_TOLD = {
    "tombstoned": "were given a tombstone: `bucketwise undelete` lifts it",
    "standing": "are under a tombstone: `bucketwise undelete` lifts it",
    "expired": "were removed for good",
    "lifted": "are past retain.archive, and stay since their tombstones were lifted",
}


def ending_lines(results: Sequence[Result]) -> Iterator[Text]:
    """Yields what a run did at the end of each policy's archive, if anything."""
    for result in results:
        body = result.body.get("archive_expiry", {})
        for name, told in _TOLD.items():
            amount = body.get(name, {})
            if amount.get("buckets"):
                days, buckets = amount["days"], amount["buckets"]
                yield Text(f"{result.policy}: {buckets:,} archived buckets of {days:,} days {told}")
        for hold, count in body.get("held", {}).items():
            yield Text(f"{result.policy}: {count:,} archived buckets stay: held by {hold}")
        if live := body.get("live"):
            told = "are past retain.archive, and stay while their originals are live"
            yield Text(f"{result.policy}: {live:,} archived buckets {told}")


def undelete_lines(results: Sequence[Result]) -> list[RenderableType]:
    """Returns how many tombstones were lifted, and until when."""
    return [
        Text(
            f"{it.policy}: tombstones of {it.body['days']:,} days were lifted, until {iso(it.body['until'])}"
            if it.body["days"]
            else f"{it.policy}: no tombstone stands there"
        )
        for it in results
        if "days" in it.body
    ]
