"""The records of an online archive: its heads, and when the last buckets of each of its days were archived.

Heads are the collections that hold it, and how many documents must stay in each. They are recorded beside the
receipts, and change in the transactions that delete originals, or remove copies whose originals are gone. The
receipt of each such transaction tells them as well: they count as far as the last one does. A collection that
is gone, another one, or emptied is noticed before it is used.

Of each UTC day a document among the receipts says when it was archived. It is written in the transaction that
writes the copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
from pymongo.client_session import ClientSession
from pymongo.database import Database

from bucketwise.archivers.format.keys import UNSIGNED, Keys
from bucketwise.archivers.format.manifest import DamagedError
from bucketwise.archivers.records.copies import CopyReceipts
from bucketwise.archivers.records.deletions import COLLECTIONS, Deletions
from bucketwise.archivers.records.policies import PolicyRecord
from bucketwise.archivers.records.receipt_checks import sealed_receipt
from bucketwise.archivers.records.receipt_files import seal_of
from bucketwise.archivers.records.receipts import CODEC, COLLECTION, REMEDY, Receipts, reading, record_fault
from bucketwise.archivers.writes import archived_source
from bucketwise.buckets.bson.cursor import is_sharded, uuid_of
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.fields.times import DAY_MS, as_date
from bucketwise.config.policies import ArchiveCollections, Policy
from bucketwise.rollups.context import Guard, transaction
from bucketwise.rollups.progress import COLLECTION as PROGRESS

Document = dict[str, Any]
#: Kind of these documents.
ARCHIVED = "archived"
_PREFIX = "archived-"


class ArchivedDays:
    """The days of one policy's online archive, and when the last of their buckets was archived."""

    def __init__(self, receipts: Receipts, policy: Policy) -> None:
        self._receipts = receipts
        self._policy = policy

    def note(self, buckets: Batch, now: datetime, session: ClientSession) -> None:
        """Records, in the transaction that archives them, that these buckets were archived at `now`."""
        self.note_days(self._days(buckets), now, session)

    def note_days(self, days: Iterable[int], now: datetime, session: ClientSession) -> None:
        """Records that something of these UTC days, since 1970, was archived at `now`. Raises DamagedError
        where a record of one is not as it was written."""
        wanted = {archived_name(day): day for day in sorted(set(days))}
        known = self._receipts.get_all(wanted, session) if wanted else {}
        updates = []
        for name, day in wanted.items():
            newest = max(now, self._newest_in(known[name])) if name in known else now
            updates.append(self._receipts.update_of(name, {"$set": self._record(day, newest)}))
        if updates:
            self._receipts.collection.bulk_write(updates, session=session)

    def _record(self, day: int, newest: datetime) -> Document:
        """Returns the record of a day, with the SHA-256 of all of it."""
        facts = {"kind": ARCHIVED, "day": day, "last": as_date(day * DAY_MS), "newest": newest}
        return {**facts, "sha256": seal_of({"_id": self._receipts.identity(archived_name(day)), **facts})}

    def _newest_in(self, record: Document) -> datetime:
        name = record["_id"]["name"]
        with reading(name):
            day, newest = int(name.removeprefix(_PREFIX)), record["newest"]
            wanted = self._record(day, newest)
        if {key: record.get(key) for key in wanted} != wanted:
            raise record_fault(name, "it does not match its own SHA-256")
        assert isinstance(newest, datetime)
        return newest

    def faults(self) -> Iterator[DamagedError]:
        """Yields an error for each record that is not as it was written."""
        for record in self._find({}):
            try:
                self._newest_in(record)
            except DamagedError as error:
                yield error

    def _days(self, buckets: Batch) -> Iterator[int]:
        """Yields the days on which buckets end, by their readings and as queries find them: where times are
        text, these need not be the same."""
        decoded = decode(buckets, self._policy)
        yield from (decoded.last // DAY_MS).tolist()
        source = archived_source(self._receipts.collection.database, self._policy)
        if source.model.own_times:
            yield from (source.time_of(document) // DAY_MS for document in buckets.main)

    def newest(self, end_ms: int, session: ClientSession | None = None) -> dict[int, datetime]:
        """Returns the days that begin before an instant (milliseconds), each with when the last of its
        buckets was archived. Raises DamagedError where a record is not as it was written."""
        found = self._find({"last": {"$lt": as_date(end_ms)}}, session)
        return {it["day"]: self._newest_in(it) for it in found}

    def of(self, day: int) -> datetime | None:
        """Returns when the last bucket of a day was archived; None where no record tells. Raises
        DamagedError where it is not as it was written."""
        found = self._receipts.get(archived_name(day))
        return None if found is None else self._newest_in(found)

    def _find(self, which: Document, session: ClientSession | None = None) -> Iterator[Document]:
        mine = {"_id.policy": self._receipts.policy, "kind": ARCHIVED, **which}
        yield from self._receipts.collection.with_options(codec_options=CODEC).find(mine, session=session)


def archived_name(day: int) -> str:
    """Returns the name of the record of a UTC day, since 1970."""
    return f"{_PREFIX}{day}"


_KEEP = (
    "Nothing was written. Put the collection back: rename it back, restore it from a backup, or correct "
    "archive.collection; `bucketwise verify` then names what is missing. Where it was restored on purpose: "
    "`bucketwise adopt`"
)


def _differs(what: str) -> DamagedError:
    remedy = f"{REMEDY}. Where an earlier version has run meanwhile: `bucketwise adopt`"
    return DamagedError("record-differs", f"{COLLECTION}, {COLLECTIONS}", what, remedy)


def _lost() -> DamagedError:
    what = f"it is gone, and originals were deleted into the archive, as {PROGRESS} says"
    remedy = (
        f"Nothing was written. Restore {COLLECTION} from a backup. Where there is none: `bucketwise adopt` "
        "takes the archive over as it is"
    )
    return DamagedError("record-differs", f"{COLLECTION}, {COLLECTIONS}", what, remedy)


class Head(NamedTuple):
    """One collection as it was left. `least`: how many documents it has at least."""

    name: str
    uuid: str
    least: int


class OnlineRecord(NamedTuple):
    """The record of an archive. `heads`: by what each collection holds. `receipt`: the number of the
    receipt that tells them; 0 where nothing must stay yet, None where an earlier version has written them.
    `baseline`: when they were recorded, if the archive was there before."""

    heads: Mapping[str, Head]
    receipt: int | None
    baseline: datetime | None


class OnlineState(NamedTuple):
    """Which collections of an archive are there; whether a receipt tells its heads, and these of all; and
    whether any document must stay."""

    present: frozenset[str]
    is_recorded: bool
    must_stay: bool


class OnlineHeads:
    """The heads of one policy's online archive."""

    def __init__(self, database: Database[Document], policy: Policy, keys: Keys = UNSIGNED) -> None:
        """Without a key nothing is said about signatures."""
        assert policy.archive_collections is not None
        self._database = database
        self._policy = policy
        self._named: ArchiveCollections = policy.archive_collections
        self._receipts = Receipts(database, policy.identity)
        self._keys = keys.for_reading

    def read(self, session: ClientSession | None = None) -> OnlineRecord:
        """Returns what is recorded."""
        found = self._receipts.get(COLLECTIONS, session) or {}
        with reading(COLLECTIONS):
            heads = {what: Head(**it) for what, it in found.get("held", {}).items()}
            number = None if "receipt" not in found else int(found["receipt"])
        return OnlineRecord(heads, number, found.get("baseline"))

    def check(self, said: PolicyRecord | None = None) -> OnlineState:
        """Returns what is there. Raises DamagedError where a collection is gone, is another one than was
        left, or has fewer documents; or as `told` does. `said`: what the policy said last, which may tell
        that there must be heads."""
        record = self.told()
        if said is not None and said.has_deleted and not record.heads and record.receipt is None:
            raise _lost()
        heads, there = record.heads, self._there()
        if not heads:
            self._check_unrecorded(there)
        for what, head in heads.items():
            self._check(what, head, there)
        owed = {what: name for what, name in self._collections() if what != "versions" or name in there}
        known = {what: head.name for what, head in heads.items()}
        is_recorded = record.receipt is not None and owed.items() <= known.items()
        must_stay = any(it.least for it in heads.values())
        return OnlineState(frozenset(there), is_recorded, must_stay)

    def told(self) -> OnlineRecord:
        """Returns what is recorded. Raises DamagedError where it is not what the last receipt tells."""
        record = self.read()
        while (fault := self._fault(record)) is not None:
            before, record = record, self.read()
            if record == before:
                raise fault  # else a concurrent run has moved them
        return record

    def _fault(self, record: OnlineRecord) -> DamagedError | None:
        """Returns why the heads are not those that the last receipt tells; None where they are. Raises
        DamagedError where that receipt is not as it was written."""
        number = record.receipt or 0
        told = self._telling(number, most=2)
        if not number and not told:  # an earlier version has written the heads, or nothing must stay
            is_known = record.receipt is None or not any(it.least for it in record.heads.values())
            return None if is_known else _differs("no receipt tells how many must stay")
        if not number or not told or told[0].get("sequence") != number:
            return _differs("it does not name the receipt that tells how many must stay")
        with reading(told[0]["_id"]["name"]):
            heads = {what: Head(**it) for what, it in told[0]["heads"].items()}
        if heads != record.heads:
            return _differs(f"it is not what receipt {number} tells")
        if len(told) > 1:
            what = f"it names receipt {number}, and a later one tells how many must stay"
            return _differs(what)
        sealed_receipt(told[0], self._keys)
        return None

    def _telling(self, since: int, most: int) -> list[Document]:
        """Returns the first receipts from this number on that tell heads."""
        query = {"_id.policy": self._receipts.policy, "sequence": {"$gte": since}, "heads": {"$exists": True}}
        there = self._receipts.collection.with_options(codec_options=CODEC)
        return list(there.find(query, limit=most).sort("sequence"))

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

    def record(self, deletions: Deletions, guard: Guard) -> None:
        """Records the collections that are not recorded yet, or have got other names. What an archive holds
        that was there before is its baseline, and so are heads that no receipt tells."""
        before = self.read()
        mine = {"_id.policy": self._receipts.policy, "kind": "online"}
        is_old = not before.heads and self._receipts.collection.find_one(mine, {"kind": 1}) is not None
        is_unsealed = bool(before.heads) and before.receipt is None
        facts = {"is_baseline": True} if is_old or is_unsealed else {}
        self._write(before.heads, deletions, guard, facts, counts=is_old)

    def adopt(self, deletions: Deletions, guard: Guard) -> None:
        """Records the collections as they are, in place of what was recorded: they were restored from a
        backup, or moved, on purpose."""
        self._write({}, deletions, guard, {}, counts=True)

    def _write(
        self, known: Mapping[str, Head], deletions: Deletions, guard: Guard, facts: Document, *, counts: bool
    ) -> None:
        held, there = {}, self._there()
        waiting = sum(len(it["ids"]) for it in self._receipts.in_state("copied", "online")) if counts else 0
        for what, name in self._collections():
            if name in there:
                least = known[what].least if what in known else 0
                # Versions may become fewer; and which overflow belongs to live buckets is not known.
                if counts and (what == "buckets" or (what == "overflow" and not waiting)):
                    least = max(0, self._database[name].count_documents({}) - waiting)
                held[what] = Head(name, there[name], least)._asdict()

        is_told = bool(self._telling(0, most=1))
        must_stay = is_told or any(it["least"] for it in held.values())

        def step(session: ClientSession) -> None:
            if must_stay:
                deletions.record_of_copies(COLLECTIONS, {"heads": held, **facts}, session)
            else:  # so that a run which archives nothing records no time
                found = {"kind": COLLECTIONS, "held": held, "receipt": 0}
                self._receipts.update(COLLECTIONS, {"$set": found}, session)

        transaction(self._database, guard, step)

    def added(self, deleted: Batch, session: ClientSession) -> Document:
        """Returns what the receipt tells, in the transaction that deletes the originals of these copies: that
        they must stay."""
        return self.moved(session, len(deleted), len(deleted.extra))

    def uncounted(self, copies: Batch) -> set[bytes]:
        """Returns the `_id`s, as `Docs.raw_ids` gives them, of those of these archived buckets that no
        receipt names: somebody else has put them there, and they need not stay. A baseline has counted such
        ones as well, and an adoption those that can't be read. Ask it before the transaction that removes
        them, since it may read many receipts."""
        record = self.read()
        if record.receipt is None or record.baseline is not None:
            return set()
        unknown = CopyReceipts(self._database, self._policy, None).unknown(copies)
        readable = np.intersect1d(unknown, decode(copies, self._policy).units)
        return {copies.main.raw_id(i) for i in readable.astype(np.int64).tolist()}

    def subtracted(
        self, copies: Batch, session: ClientSession, uncounted: Set[bytes] = frozenset()
    ) -> Document:
        """Returns what the receipt tells, in the transaction that removes these copies or makes their
        originals live again: that they need not stay. Call it before receipts say so: those with live
        originals were never counted, nor were those that are `uncounted`."""
        out = uncounted | self._receipts.copied(copies.main.ids, session).keys()
        counted = np.array([raw_id not in out for raw_id in copies.main.raw_ids], dtype=np.bool_)
        return self.moved(session, -int(counted.sum()), -int(counted[copies.owner].sum()))

    def moved(self, session: ClientSession, buckets: int, overflow: int) -> Document:
        """Returns what the receipt of a transaction tells, in which so many more documents must stay, or
        fewer where negative: the heads from then on; nothing where they stay as they are."""
        more = {what: count for what, count in (("buckets", buckets), ("overflow", overflow)) if count}
        record = self.read(session) if more else None
        if record is None or not record.heads:  # a baseline counts what is there
            return {}
        moved = {it: head._replace(least=head.least + more.get(it, 0)) for it, head in record.heads.items()}
        told = {what: head._asdict() for what, head in moved.items()}
        if record.receipt is None:  # the next run has a receipt tell all of it
            self._receipts.update(COLLECTIONS, {"$set": {"held": told}}, session)
            return {}
        return {"heads": told}

    def _collections(self) -> Iterator[tuple[str, str]]:
        """Yields what each collection of the archive holds, and its name."""
        return ((what, name) for what, name in self._named._asdict().items() if name is not None)

    def _there(self) -> dict[str, str]:
        """Returns the UUIDs of the collections that are there, by name. Asks anew each time: originals go on
        the strength of what is found."""
        names = [name for _, name in self._collections()]
        found = self._database.list_collections(filter={"name": {"$in": names}})
        return {it["name"]: uuid_of(it) or "" for it in found}
