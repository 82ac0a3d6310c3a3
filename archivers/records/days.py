"""Finds offline commits by the UTC day on which they begin: those that a compaction or a drill has yet to
look at."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import bson

from bucketwise.archivers.records.faults import shaped
from bucketwise.archivers.records.receipts import Receipts

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
