"""The heads of an online archive: the collections that hold it, and how many documents must stay in each.

They are recorded beside the receipts, and change in the transactions that delete originals, or remove copies
whose originals are gone. A collection that is gone, another one, or emptied is noticed before it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
from pymongo.client_session import ClientSession
from pymongo.database import Database

from bucketwise.archivers.format.manifest import DamagedError
from bucketwise.archivers.records.receipts import Receipts
from bucketwise.buckets.bson.cluster import is_sharded, uuid_of
from bucketwise.buckets.bson.raw import Batch
from bucketwise.config.policies import ArchiveCollections, Policy
from bucketwise.rollups.guarded import Guard, transaction

Document = dict[str, Any]
#: The document among the receipts that names the collections.
HEADS = "collections"
_KEEP = (
    "Nothing was written. Put the collection back: rename it back, restore it from a backup, or correct "
    "archive.collection; `bucketwise verify` then names what is missing. Where it was restored on purpose: "
    "`bucketwise adopt`"
)


class Head(NamedTuple):
    """One collection as it was left. `least`: how many documents it has at least."""

    name: str
    uuid: str
    least: int


class OnlineState(NamedTuple):
    """Which collections of an archive are there, and whether its heads tell of all."""

    present: frozenset[str]
    is_recorded: bool


class OnlineHeads:
    """The heads of one policy's online archive."""

    def __init__(self, database: Database[Document], policy: Policy) -> None:
        assert policy.archive_collections is not None
        self._database = database
        self._policy = policy
        self._named: ArchiveCollections = policy.archive_collections
        self._receipts = Receipts(database, policy.identity)

    def read(self) -> tuple[dict[str, Head], datetime | None]:
        """Returns the heads by what each collection holds; and when they were recorded, if the archive was
        there before."""
        found = self._receipts.get(HEADS) or {}
        return {what: Head(**it) for what, it in found.get("held", {}).items()}, found.get("baseline")

    def check(self) -> OnlineState:
        """Returns what is there. Raises DamagedError where a collection is gone, is another one than was
        left, or has fewer documents."""
        heads, _ = self.read()
        there = self._there()
        if not heads:
            self._check_unrecorded(there)
        for what, head in heads.items():
            self._check(what, head, there)
        owed = {what: name for what, name in self._collections() if what != "versions" or name in there}
        known = {what: head.name for what, head in heads.items()}
        return OnlineState(frozenset(there), owed.items() <= known.items())

    def _check(self, what: str, head: Head, there: Mapping[str, str]) -> None:
        named = self._named._asdict()[what]
        if named is None:
            if head.least:
                what = f"it holds {what} of the archive, and the policy names no such collection"
                raise DamagedError("archive-missing", self._place(head.name), what, _KEEP)
        elif there.get(named) == head.uuid:
            self._check_count(named, head)
        elif named != head.name:
            what = f"archive.collection names it, and the archive is {head.name}"
            raise DamagedError("archive-missing", self._place(named), what, _KEEP)
        elif named not in there:
            what = f"it is gone; it held {what} of the archive, {head.least:,} at least"
            raise DamagedError("archive-missing", self._place(named), what, _KEEP)
        else:
            what = f"it is another collection (UUID {there[named]}) than the archive was ({head.uuid})"
            raise DamagedError("archive-replaced", self._place(named), what, _KEEP)

    def _check_count(self, name: str, head: Head) -> None:
        """Compares with the count that MongoDB keeps, and counts only where that is too low."""
        collection = self._database[name]
        if head.least and not is_sharded(self._database):
            count = collection.estimated_document_count()
            if count >= head.least:
                return
        if head.least and (count := collection.count_documents({})) < head.least:
            what = f"it has {count:,} documents, and {head.least:,} must stay: their originals are deleted"
            raise DamagedError("archive-short", self._place(name), what, _KEEP)

    def _check_unrecorded(self, there: dict[str, str]) -> None:
        """An archive from before there were heads must be where its last receipt says."""
        mine = {"_id.policy": self._receipts.policy, "kind": "delete", "ids": {"$exists": True}}
        last = self._receipts.collection.find_one(mine, {"held_by": 1}, sort=[("_id", -1)])
        held_by = last["held_by"] if last else {}
        name = held_by.get("merged_into") or held_by.get("collection")
        if name is None:
            return
        if name != self._named.buckets:
            what = f"archive.collection names it, and receipts say that the archive is {name}"
            raise DamagedError("archive-missing", self._place(self._named.buckets), what, _KEEP)
        if name not in there:
            what = "it is gone, and receipts say that it holds the archive"
            raise DamagedError("archive-missing", self._place(name), what, _KEEP)

    def _place(self, name: str) -> str:
        return f"{self._database.name}.{name}"

    def record(self, now: datetime, guard: Guard) -> None:
        """Records the collections that are not recorded yet, or have got other names. What an archive holds
        that was there before is its baseline."""
        before, _ = self.read()
        mine = {"_id.policy": self._receipts.policy, "kind": "online"}
        is_old = not before and self._receipts.collection.find_one(mine, {"kind": 1}) is not None
        self._write(before, guard, {"baseline": now} if is_old else {}, counts=is_old)

    def adopt(self, guard: Guard) -> None:
        """Records the collections as they are, in place of what was recorded: they were restored from a
        backup, or moved, on purpose."""
        self._write({}, guard, {}, counts=True)

    def _write(self, before: Mapping[str, Head], guard: Guard, facts: Document, *, counts: bool) -> None:
        held, there = {}, self._there()
        waiting = sum(len(it["ids"]) for it in self._receipts.in_state("copied", "online")) if counts else 0
        for what, name in self._collections():
            if name in there:
                least = before[what].least if what in before else 0
                # Versions may become fewer; and which overflow belongs to live buckets is not known.
                if counts and (what == "buckets" or (what == "overflow" and not waiting)):
                    least = max(0, self._database[name].count_documents({}) - waiting)
                held[what] = Head(name, there[name], least)._asdict()
        update = {"$set": {"kind": HEADS, "held": held, **facts}}
        transaction(self._database, guard, lambda session: self._receipts.update(HEADS, update, session))

    def add(self, deleted: Batch, session: ClientSession) -> None:
        """Counts, in the transaction that deletes the originals of these copies, that they must stay."""
        self.count(session, len(deleted), len(deleted.extra))

    def subtract(self, copies: Batch, session: ClientSession) -> None:
        """Counts, in the transaction that removes these copies or makes their originals live again, that they
        need not stay. Call it before receipts say so: those with live originals were never counted."""
        live = self._receipts.copied(copies.main.ids, session)
        counted = np.array([raw_id not in live for raw_id in copies.main.raw_ids], dtype=np.bool_)
        self.count(session, -int(counted.sum()), -int(counted[copies.owner].sum()))

    def count(self, session: ClientSession, buckets: int, overflow: int) -> None:
        """Counts, in a transaction, how many more documents must stay, or fewer where negative."""
        changes = {"held.buckets.least": buckets, "held.overflow.least": overflow}
        if changes := {field: more for field, more in changes.items() if more}:
            mine = {"_id": self._receipts.identity(HEADS)}
            self._receipts.collection.update_one(mine, {"$inc": changes}, session=session)

    def _collections(self) -> Iterator[tuple[str, str]]:
        """Yields what each collection of the archive holds, and its name."""
        return ((what, name) for what, name in self._named._asdict().items() if name is not None)

    def _there(self) -> dict[str, str]:
        """Returns the UUIDs of the collections that are there, by name. Asks anew each time: originals go on
        the strength of what is found."""
        names = [name for _, name in self._collections()]
        found = self._database.list_collections(filter={"name": {"$in": names}})
        return {it["name"]: uuid_of(it) or "" for it in found}
