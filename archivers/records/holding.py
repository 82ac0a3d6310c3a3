"""Places and releases holds. A receipt in the chain of those of deletes records each: by whom, when, why, and
the digest of the hold, which names no series.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pymongo.client_session import ClientSession
from pymongo.database import Database

from bucketwise.archivers.records.deletions import Deletions
from bucketwise.archivers.records.hold_files import HoldFiles, facts_of
from bucketwise.archivers.records.receipts import HELD, REPLACED, TOMBSTONE, Receipts
from bucketwise.buckets.fields.times import DAY_MS, as_text
from bucketwise.config.errors import UsageError
from bucketwise.rollups.context import Guard, transaction
from bucketwise.rollups.holds import Hold, Holds

Document = dict[str, Any]


class HoldWriter:
    """Places and releases the holds on one policy. `guard` makes its transactions conflict with those of a
    run, so that each sees what the other has done. Both raise DamagedError where receipts are signed, and
    not by one of the keys."""

    def __init__(
        self,
        database: Database[Document],
        policy: str,
        deletions: Deletions,
        guard: Guard,
        files: HoldFiles,
    ) -> None:
        self._database = database
        self._policy = policy
        self._deletions = deletions
        self._guard = guard
        self._files = files
        self._holds = Holds(database, policy)

    def place(self, hold: Hold) -> bool:
        """Places a hold. Returns False where the same hold is already active. Raises UsageError where another
        hold has its name. The store is told first: what a crash leaves there keeps, until it is looked at."""

        def step(session: ClientSession) -> bool:
            self._deletions.check_last(session)
            if self._is_active(hold, session):
                return False
            self._holds.put(hold, session)
            self._deletions.record_event("hold", facts_of(hold), session)
            return True

        self._deletions.check_last()
        told, active = self._files.standing(), self._holds.active()
        added = [] if self._is_active(hold) else [hold]
        self._files.put([*active, *added], {it.hold_sha256 for it in told})
        placed = transaction(self._database, self._guard, step)
        standing = {it.digest for it in self._holds.active()}
        self._files.remove(it for it in self._files.standing(hold.name) if it.hold_sha256 not in standing)
        return placed

    def release(self, name: str, by: str, reason: str | None = None) -> bool:
        """Releases a hold. Returns whether there was one. The next run may remove what it kept. One that the
        database lacks, and the store tells of, is released for a `reason`."""
        told = self._files.standing(name)

        def step(session: ClientSession) -> bool:
            hold = self._named(name, session)
            found = [facts_of(hold)] if hold else [it.facts for it in told]
            if found and hold is None and reason is None:
                raise UsageError(
                    f"hold release {name}: policy {self._policy}: the store tells of this hold, and the "
                    "database does not have it. If it is over, say why with --reason TEXT; receipts keep it"
                )
            self._deletions.check_last(session)
            if hold is not None:
                self._holds.remove(name, session)
                _note_released(Receipts(self._database, self._policy), hold, session)
            why = {} if reason is None else {"release_reason": reason}
            for facts in found:
                self._deletions.record_event("release", {**facts, "by": by, **why}, session)
            return bool(found)

        released = transaction(self._database, self._guard, step)
        self._files.remove(told)
        return released

    def _is_active(self, hold: Hold, session: ClientSession | None = None) -> bool:
        before = self._named(hold.name, session)
        if before is not None and not before.is_same(hold):
            raise UsageError(
                f"policy {self._policy}: another hold named {hold.name} stands since "
                f"{as_text(before.placed_at)}. Release it first, or take another name"
            )
        return before is not None

    def _named(self, name: str, session: ClientSession | None = None) -> Hold | None:
        return next((it for it in self._holds.active(session) if it.name == name), None)


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
