"""Removes what is past `retain.archive`, and lifts tombstones before they are due."""

from __future__ import annotations

from functools import partial
from typing import Any

from pymongo.client_session import ClientSession

from archivers.context import ArchiveContext
from archivers.expiring.offline import OfflineExpiry
from archivers.expiring.online import OnlineExpiry
from archivers.expiring.report import ExpiryReport
from archivers.expiring.rule import RetentionRule, lifted
from archivers.moving.archive import recover
from archivers.records.receipts import TOMBSTONE
from buckets.fields.times import DAY_MS, EVER, TimeRange
from rollups.guarded import transaction

Document = dict[str, Any]
#: Tombstones that one transaction lifts.
AT_ONCE = 1000


def expire_archive(context: ArchiveContext) -> ExpiryReport:
    """Puts tombstones on what is past `retain.archive`, and removes what has had one for long enough. Returns
    what was done. Raises HaltedError where the archive is damaged."""
    has_expiry = context.to == "offline" and RetentionRule.of(context.policy, context.now) is not None
    if has_expiry and not context.state.is_recovered:
        recover(context)
    return _run(context, writes=True)


def plan_expiry(context: ArchiveContext) -> ExpiryReport:
    """Returns what `expire_archive` would do. Changes nothing."""
    return _run(context, writes=False)


def _run(context: ArchiveContext, *, writes: bool) -> ExpiryReport:
    rule = RetentionRule.of(context.policy, context.now)
    if rule is None:
        return ExpiryReport()
    if context.to == "online":
        return OnlineExpiry(context, rule, writes).run()
    archive = context.offline(context.keys)
    return ExpiryReport() if archive is None else OfflineExpiry(context, archive, rule, writes).run()


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
        step = partial(_lift, context, [it["_id"] for it in found])
        transaction(context.database, context.guard, step)
        days.update(day for it in found for day in it.get("days", [it.get("day")]))
    return days


def _lift(context: ArchiveContext, names: list[Any], session: ClientSession) -> None:
    """Lifts tombstones in a transaction, except of what has been removed meanwhile."""
    under_tombstone = {"_id": {"$in": names}, "tombstone.due": {"$exists": True}}
    update = {"$set": {"tombstone": lifted(context.now)}}
    context.receipts.collection.update_many(under_tombstone, update, session=session)
