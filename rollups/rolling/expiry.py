"""Expiry of summaries: what is past its `retain` goes."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from bson.datetime_ms import DatetimeMS
from bson.raw_bson import RawBSONDocument
from pymongo.collection import Collection
from pymongo.database import Database

from config.policies import Policy
from rollups.calendar.levels import expired_before, levels_of
from rollups.progress import load, note_gone
from rollups.summaries.targets import target

Document = dict[str, Any]
_AT_ONCE = 1000


def expire_summaries(
    database: Database[Document], policy: Policy, now: datetime, *, dry_run: bool = False
) -> dict[str, int]:
    """Deletes summaries whose window ended before now − retain, but for those that a coarser level is yet to
    be made of. Returns how many, by level."""
    gone: dict[str, int] = {}
    levels, through = levels_of(policy), load(database, policy).through
    for level in levels:
        before = expired_before(level, levels, now, through)
        if before is None:
            gone[level.name] = 0
            continue
        limit = {"$lt": DatetimeMS(before)}
        # A start before the limit is implied; it is there because it has an index. Only summaries have such
        # an `_id`: were the collection somebody's by mistake, their documents stay.
        expired = {"start": limit, "end": limit, "_id.series": {"$exists": True}}
        collection = target(database, level.collection)
        if dry_run:
            gone[level.name] = collection.count_documents(expired)
            continue
        note_gone(database, policy, {level.name: before})
        gone[level.name] = _delete(collection, expired)
    return gone


def _delete(collection: Collection[RawBSONDocument], expired: Document) -> int:
    deleted = 0
    while ids := [found["_id"] for found in collection.find(expired, {"_id": 1}).limit(_AT_ONCE)]:
        deleted += collection.delete_many({"_id": {"$in": ids}}).deleted_count
    return deleted
