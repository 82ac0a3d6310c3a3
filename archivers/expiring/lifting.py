"""Lifts tombstones before they are due."""

from __future__ import annotations

from functools import partial
from typing import Any

from pymongo.client_session import ClientSession

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.expiring.rule import lifted
from bucketwise.archivers.expiring.sealed import record_lifted
from bucketwise.archivers.records.receipts import TOMBSTONE
from bucketwise.buckets.fields.times import DAY_MS, EVER, TimeRange
from bucketwise.rollups.guarded import transaction

Document = dict[str, Any]
#: Tombstones that one transaction lifts.
AT_ONCE = 1000


def undelete(context: ArchiveContext, within: TimeRange = EVER) -> set[int]:
    """Lifts the tombstones on what touches the range. Returns the UTC days that were under them, since 1970.
    If it is cut off, the next call finishes it."""
    receipts, days = context.receipts, set[int]()
    first, last = within.start_ms // DAY_MS, (within.end_ms - 1) // DAY_MS
    touching = {"$elemMatch": {"$gte": first, "$lte": last}}
    query: Document = {
        "_id.policy": receipts.policy,
        "tombstone.due": {"$exists": True},
        "$or": [
            {"kind": "offline", "state": {"$in": ["open", "closed"]}, "days": touching},
            {"kind": TOMBSTONE, "day": {"$gte": first, "$lte": last}},
        ],
    }
    while found := list(receipts.collection.find(query, {"day": 1, "days": 1}).limit(AT_ONCE)):
        context.check()
        step = partial(_lift, context, found)
        transaction(context.database, context.guard, step)
        days.update(day for it in found for day in it.get("days", [it.get("day")]))
    return days


def _lift(context: ArchiveContext, found: list[Document], session: ClientSession) -> None:
    """Lifts tombstones in a transaction, except of what has been removed meanwhile."""
    under_tombstone = {"_id": {"$in": [it["_id"] for it in found]}, "tombstone.due": {"$exists": True}}
    names = [it["_id"]["name"] for it in found]
    context.deletions.check_last(session)
    update = {"$set": {"tombstone": record_lifted(context.deletions, names, lifted(context.now), session)}}
    context.receipts.collection.update_many(under_tombstone, update, session=session)
