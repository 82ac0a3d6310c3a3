"""Places and releases holds. A receipt in the chain of those of deletes records each: by whom, when, why, and
the digest of the hold, which names no series.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pymongo.client_session import ClientSession
from pymongo.database import Database

from archivers.records.deletions import Deletions
from archivers.records.receipts import HELD, REPLACED, TOMBSTONE, Receipts
from buckets.fields.times import DAY_MS, as_text
from config.errors import UsageError
from rollups.guarded import Guard, transaction
from rollups.holds import Hold, Holds

Document = dict[str, Any]


class HoldWriter:
    """Places and releases the holds on one policy. `guard` makes its transactions conflict with those of a
    run, so that each sees what the other has done."""

    def __init__(self, database: Database[Document], policy: str, deletions: Deletions, guard: Guard) -> None:
        self._database = database
        self._policy = policy
        self._deletions = deletions
        self._guard = guard
        self._holds = Holds(database, policy)

    def place(self, hold: Hold) -> bool:
        """Places a hold. Returns False where the same hold is already active. Raises UsageError where another
        hold has its name."""

        def step(session: ClientSession) -> bool:
            before = self._named(hold.name, session)
            if before is not None:
                if before.is_same(hold):
                    return False
                raise UsageError(
                    f"policy {self._policy}: another hold named {hold.name} stands since "
                    f"{as_text(before.placed_at)}. Release it first, or take another name"
                )
            self._holds.put(hold, session)
            self._deletions.record_event("hold", _facts_of(hold), session)
            return True

        return transaction(self._database, self._guard, step)

    def release(self, name: str, by: str) -> bool:
        """Releases a hold. Returns whether it was active. The next run may remove what it kept."""

        def step(session: ClientSession) -> bool:
            hold = self._named(name, session)
            if hold is None:
                return False
            self._holds.remove(name, session)
            _note_released(Receipts(self._database, self._policy), hold, session)
            self._deletions.record_event("release", {**_facts_of(hold), "by": by}, session)
            return True

        return transaction(self._database, self._guard, step)

    def _named(self, name: str, session: ClientSession) -> Hold | None:
        return next((it for it in self._holds.active(session) if it.name == name), None)


def _facts_of(hold: Hold) -> Document:
    return {
        "hold": hold.name,
        "since": hold.within.since,
        "until": hold.within.until,
        "freeze": hold.freeze,
        "reason": hold.reason,
        "by": hold.by,
        "hold_sha256": hold.digest,
    }


def note_held(receipts: Receipts, names: Iterable[str], session: ClientSession) -> None:
    """Records that these replaced commits are not dropped until a hold is released."""
    named = {"_id": {"$in": [receipts.identity(name) for name in names]}, "state": REPLACED}
    receipts.collection.update_many(named, {"$set": {"state": HELD}}, session=session)


def _note_released(receipts: Receipts, hold: Hold, session: ClientSession) -> None:
    """Allows replaced commits to be dropped again, what is under a tombstone to go, and others of the range
    to be merged."""
    within, kept = hold.within, {"kind": {"$in": ["offline", TOMBSTONE]}, "tombstone.held": hold.name}
    free = {"$unset": {"tombstone.held": ""}}
    receipts.collection.update_many({"_id.policy": receipts.policy, **kept}, free, session=session)
    held = {"_id.policy": receipts.policy, "kind": "offline", "state": HELD}
    receipts.collection.update_many(held, {"$set": {"state": REPLACED}}, session=session)
    days = {"$gte": within.start_ms // DAY_MS, "$lte": (within.end_ms - 1) // DAY_MS}
    looked_at = {**receipts.is_current, "first_day": days, "compacted": True}
    receipts.collection.update_many(looked_at, {"$set": {"compacted": False}}, session=session)
