"""When the days of an online archive were drilled."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from archivers.records.receipts import Receipts
from buckets.fields.times import DAY_MS, FIRST_MS
from buckets.source import Source

#: Kind of the document that tells when a day was drilled.
DRILLED = "drilled"


def days_of(archived: Source) -> Iterator[int]:
    """Yields the UTC days, since 1970, on which archived buckets end by their fields."""
    at = archived.earliest_ending(FIRST_MS)
    while at is not None:
        yield (day := at // DAY_MS)
        at = archived.earliest_ending((day + 1) * DAY_MS)
        at = None if at is None else max(at, (day + 1) * DAY_MS)


class DrilledDays:
    """The days of one policy's online archive, and their drills."""

    def __init__(self, receipts: Receipts, archived: Source) -> None:
        self._receipts = receipts
        self._archived = archived

    def all(self) -> dict[int, datetime | None]:
        """Returns the days of the archive, each with its last drill; None where there was none."""
        mine = {"_id.policy": self._receipts.policy, "kind": DRILLED}
        known = {it["day"]: it["drilled"] for it in self._receipts.collection.find(mine)}
        return {day: known.get(day) for day in days_of(self._archived)}

    def note(self, day: int, now: datetime) -> None:
        """Records that a day was restored and compared."""
        facts = {"kind": DRILLED, "day": day, "drilled": now}
        self._receipts.update(f"drilled-{day}", {"$set": facts})
