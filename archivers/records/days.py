"""Finds offline commits by the UTC day on which they begin: those that a compaction or a drill has yet to
look at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import bson

from bucketwise.archivers.records.faults import shaped
from bucketwise.archivers.records.receipts import Receipts
from bucketwise.buckets.fields.times import DAY_MS, FIRST_MS, as_ms
from bucketwise.buckets.source import Source
from bucketwise.rollups.calendar.due import Spans

Document = dict[str, Any]


class CommitDays:
    """Finds commits of one policy by the day on which they begin."""

    def __init__(self, receipts: Receipts) -> None:
        self._receipts = receipts

    def to_compact(self, first: int, last: int, committed_by: datetime | None) -> list[int]:
        """Returns the days, from the first to the last, on which commits begin that no compaction has looked
        at, and that were made by an instant; None: on which any begin."""
        query: Document = {**self._receipts.is_current, "first_day": {"$gte": first, "$lte": last}}
        if committed_by is not None:
            query |= {"compacted": False, "committed": {"$lte": committed_by}}
        found = self._receipts.collection.aggregate([{"$match": query}, {"$group": {"_id": "$first_day"}}])
        return sorted(int(it["_id"]) for it in found)

    def commits_of(self, day: int) -> list[Document]:
        """Returns the receipts of current commits that begin on a UTC day."""
        query = {**self._receipts.is_current, "first_day": day}
        found = self._receipts.collection.find(query, {"live": 0, "parts": 0})
        return [shaped(it, left_out=frozenset({"live", "parts"})) for it in found]

    def note_compacted(self, names: Sequence[str]) -> None:
        """Records that a compaction has looked at these commits, and left them as they are."""
        named = {"_id": {"$in": [self._receipts.identity(name) for name in names]}}
        self._receipts.collection.update_many(named, {"$set": {"compacted": True}})

    def drilled(self, not_since: datetime | None = None) -> dict[int, datetime | None]:
        """Returns the UTC days on which current commits begin, each with its oldest drill; None where one of
        its commits was never drilled. `not_since`: only of commits that were made before an instant, and not
        drilled since then."""
        query = self._receipts.is_current
        if not_since is not None:
            query |= {"committed": {"$lt": not_since}, "drilled": {"$not": {"$gte": not_since}}}
        oldest = {"$min": {"$ifNull": ["$drilled", bson.MinKey()]}}
        group = {"$group": {"_id": "$first_day", "oldest": oldest}}
        found = self._receipts.collection.aggregate([{"$match": query}, group])
        return {int(it["_id"]): it["oldest"] if isinstance(it["oldest"], datetime) else None for it in found}

    def note_drilled(self, names: Sequence[str], now: datetime) -> None:
        """Records that these commits were restored and compared."""
        named = {"_id": {"$in": [self._receipts.identity(name) for name in names]}}
        self._receipts.collection.update_many(named, {"$set": {"drilled": now}})


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
