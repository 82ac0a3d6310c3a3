"""When the days of an online archive were drilled."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from bucketwise.archivers.records.receipts import Receipts
from bucketwise.buckets.fields.times import DAY_MS, FIRST_MS, as_ms
from bucketwise.buckets.source import Source
from bucketwise.rollups.calendar.due import Spans

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

    def due(self, since: datetime) -> dict[int, datetime | None]:
        """Returns the days of which something left its source before an instant, and that were not drilled
        since then; each with its last drill."""
        query = {"_id.policy": self._receipts.policy, "kind": "delete", "ids": {"$exists": True}}
        old = self._receipts.collection.find({**query, "at": {"$lt": since}}, {"first": 1, "last": 1})
        spans = Spans((as_ms(it["first"]), as_ms(it["last"]) + 1) for it in old)
        known = ((day, at) for day, at in self.all().items() if at is None or at < since)
        return {day: at for day, at in known if spans.touch(day * DAY_MS, (day + 1) * DAY_MS)}

    def note(self, day: int, now: datetime) -> None:
        """Records that a day was restored and compared."""
        facts = {"kind": DRILLED, "day": day, "drilled": now}
        self._receipts.update(f"drilled-{day}", {"$set": facts})
