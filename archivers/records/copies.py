"""Checks the copies in an online archive against receipts: each bucket that left its source must lie there as
it was then."""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import bson
from bson.binary import Binary
from pymongo import DESCENDING
from pymongo.client_session import ClientSession
from pymongo.database import Database

from bucketwise.archivers.format.keys import Keys
from bucketwise.archivers.format.manifest import DamagedError
from bucketwise.archivers.records.deletions import (
    KEPT,
    OF_COPIES,
    REWRITTEN,
    SUPERSEDED,
    Deletions,
    facts_of_archived,
    unpacked_names,
)
from bucketwise.archivers.records.pins import SIZE
from bucketwise.archivers.records.receipt_checks import sealed_receipt
from bucketwise.archivers.records.receipts import AS_QUERIED, CODEC, MERGING, Receipts
from bucketwise.archivers.writes import archived_source, same_id, units
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.fields.selectors import extended_json
from bucketwise.buckets.fields.times import FIRST_MS, LAST_MS, as_date
from bucketwise.buckets.source import Source
from bucketwise.config.policies import Policy

Document = dict[str, Any]
#: Kind of the receipts of copies that were removed: by an erasure, or since the bucket is live again.
GONE = "gone"
_REMEDY = "Restore it from a backup of the collection, or find out who changed it"
_PAGE = 1000
_FIELDS = ("kind", "sequence", "ids", "fingerprints", "versions", "held_by", "first", "last")


def marks(policy: Policy, batch: Batch) -> list[bytes]:
    """Returns the fingerprint of each bucket, with its overflow."""
    return [hashlib.sha256(unit).digest()[:SIZE] for unit in units(policy, batch)]


def id_hashes(batch: Batch) -> list[int]:
    """Returns a hash of the `_id` of each bucket, the same where MongoDB takes two of them for equal."""
    return [hash(same_id(raw_id)) for raw_id in batch.main.raw_ids]


def packed_marks(policy: Policy, batch: Batch) -> Binary:
    """Returns the fingerprints of buckets, one after the other."""
    return Binary(b"".join(marks(policy, batch)))


def cut(packed: bytes) -> list[bytes]:
    """Returns the fingerprints that `packed_marks` has packed."""
    return [packed[at : at + SIZE] for at in range(0, len(packed), SIZE)]


def record_gone(
    deletions: Deletions,
    target: str,
    ids: Sequence[bytes],
    session: ClientSession,
    heads: Document | None = None,
) -> None:
    """Records, in the transaction that removes copies, that they need not be there any more. `ids`: of
    `Docs.raw_ids`; digests of them are kept. `heads`: what `OnlineHeads` has the receipt tell."""
    if ids:
        digests = b"".join(_digest(same_id(it)) for it in ids)
        facts = {"collection": target, "buckets": len(ids), "digests": Binary(digests), **(heads or {})}
        deletions.record_event(GONE, facts, session)


def record_rewritten(deletions: Deletions, policy: Policy, copies: Batch, session: ClientSession) -> None:
    """Records, in the transaction that rewrites archived buckets, what they are from then on."""
    if len(copies):
        facts = facts_of_archived(copies.main.ids, copies, decode(copies, policy).spans())
        deletions.record_of_copies(REWRITTEN, {"buckets": len(copies), **facts}, session)


def note_marks(
    receipts: Receipts, policy: Policy, before: Batch, copies: Batch, state: str, session: ClientSession
) -> set[bytes]:
    """Notes in the receipts of a state that name these buckets what copies of them are from then on, and no
    longer are as they were `before`, in the transaction that rewrites them. Returns the `raw_id`s of those of
    which a receipt has fingerprints: that of restored buckets has none."""
    obsolete = set(marks(policy, before))
    named = receipts.open(copies.main.ids, state, session)
    found = receipts.get_all({name for name, _ in named.values()}, session) if named else {}
    recorded = {name: bytes(it["fingerprints"]) for name, it in found.items() if it.get("fingerprints")}
    for name, some in recorded.items():
        left = (it for it in cut(some) if it not in obsolete)
        marked = Binary(b"".join(left) + packed_marks(policy, copies))
        receipts.update(name, {"$set": {"fingerprints": marked}}, session)
    return {raw_id for raw_id, (name, _) in named.items() if name in recorded}


def _digest(name: bytes) -> bytes:
    return hashlib.sha256(name).digest()[:SIZE]


class VersionBeside(NamedTuple):
    """A version that is kept beside the archive."""

    name: bytes  # the `same_id` of the bucket
    version: int
    bucket: Batch
    is_superseded: bool


@dataclass
class _Said:
    """The copies of one `_id` by the receipts: the fingerprint of the newest delete, others that may be
    there, and those of its versions."""

    last: bytes | None = None
    others: set[bytes] = field(default_factory=set)
    is_unproven: bool = False  # a receipt without fingerprints names it
    versions: set[bytes] = field(default_factory=set)
    has_unproven: bool = False  # versions were merged whose fingerprints no receipt has
    is_rewritten: bool = False  # older receipts say what it was before
    newest: float = -1  # the number of the newest receipt; infinite where that has none, or a copy waits

    def note_copy(self, receipt: Document, mark: bytes | None) -> None:
        """Notes what a receipt says of the copy. Those after it have been noted before."""
        if self.is_rewritten:
            return
        self.newest = max(self.newest, receipt.get("sequence", math.inf))
        if mark is None:
            self.is_unproven = True
        elif receipt["kind"] != "delete":
            self.others.add(mark)
            self.is_rewritten = receipt["kind"] == REWRITTEN
        elif self.last is None:
            self.last = mark

    def note(self, receipt: Document, i: int, mark: bytes | None) -> None:
        """Notes what a receipt says of versions. `i`: where it names the bucket. `mark`: the fingerprint of
        what was archived then, which is a version unless it was merged."""
        late = receipt.get("versions")
        self.versions |= {it for it in (mark, late and late[i * SIZE : (i + 1) * SIZE]) if it}
        is_merge = receipt["kind"] == KEPT or "merged_into" in receipt.get("held_by", ())
        self.has_unproven |= not mark or (is_merge and not late)

    def allows(self, mark: bytes) -> bool:
        return mark == self.last or mark in self.others or (self.is_unproven and self.last is None)


class CopyReceipts:
    """The copies in a policy's online archive, as its receipts have them. `keys`: receipts of deletes
    that are used must be as they were written, and signed by one of these; None: somebody else verifies all
    receipts. `session`: for reads at one instant."""

    def __init__(
        self,
        database: Database[Document],
        policy: Policy,
        keys: Keys | None,
        session: ClientSession | None = None,
    ) -> None:
        assert policy.archive_collections is not None
        self._database = database
        self._policy = policy
        self._keys, self._session = keys, session
        self._receipts = Receipts(database, policy.identity)
        self._target = policy.archive_collections.buckets
        self._versions = policy.archive_collections.versions

    def sound(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yields these archived buckets. Raises DamagedError where one is not as receipts say."""
        for batch in batches:
            for error in self.mismatches(batch).values():
                raise error
            yield batch

    def mismatches(self, batch: Batch) -> dict[int, DamagedError]:
        """Returns which archived buckets of a batch are not as receipts say, or that none names: index, and
        the error."""
        unlike = dict[int, DamagedError]()
        names = [same_id(raw_id) for raw_id in batch.main.raw_ids]
        said = self._said(batch, names, OF_COPIES)
        for i, mark in enumerate(marks(self._policy, batch)):
            found = said.get(names[i])
            if found is None:
                what = "no receipt says that it was archived"
                remedy = (
                    "Find out who put it there, and move it away. Where receipts were lost, as by a backup: "
                    "`bucketwise adopt`"
                )
                unlike[i] = DamagedError("copy-unknown", self._place(batch.main.legible_id(i)), what, remedy)
            elif self._gone.get(_digest(names[i]), -1) > found.newest:
                what = "a receipt says that it was removed, and it was put back"
                remedy = "Find out who put it there. Erase the series again, or move it away"
                unlike[i] = DamagedError("copy-unknown", self._place(batch.main.legible_id(i)), what, remedy)
            elif not found.allows(mark):
                what = "it is not as it was archived: its fingerprint is not that of its receipt"
                unlike[i] = DamagedError("copy-differs", self._place(batch.main.legible_id(i)), what, _REMEDY)
        return unlike

    def unknown(self, batch: Batch) -> list[int]:
        """Returns which archived buckets of a batch no receipt names, or one as removed after all others."""
        return [i for i, error in self.mismatches(batch).items() if error.code == "copy-unknown"]

    def never_named(self, batch: Batch) -> list[int]:
        """Returns which archived buckets of a batch no receipt names, not even as removed."""
        names = [_digest(same_id(raw_id)) for raw_id in batch.main.raw_ids]
        return [i for i in self.unknown(batch) if names[i] not in self._gone]

    @cached_property
    def _gone(self) -> dict[bytes, int]:
        """Returns the digests of the `_id`s whose copies were removed, each with the number of the last
        receipt that says so."""
        found: dict[bytes, int] = {}
        mine = {"_id.policy": self._receipts.policy, "kind": GONE}
        fields = {"digests": 1, "sequence": 1}
        for it in self._receipts.collection.find(mine, fields, session=self._session).sort("_id"):
            found.update((digest, int(it["sequence"])) for digest in cut(it["digests"]))
        return found

    def _said(self, batch: Batch, names: Collection[bytes], kinds: Sequence[str]) -> dict[bytes, _Said]:
        wanted, said = set(names), dict[bytes, _Said]()
        decoded = decode(batch, self._policy)
        spans = decoded.spans() if len(decoded.units) == len(batch) else None  # one that is broken has none
        first, last = (FIRST_MS, LAST_MS) if spans is None else (int(spans.min()), int(spans.max()))
        for receipt in self._naming(kinds, first, last):
            recorded = receipt.get("fingerprints")
            for i, name in enumerate(unpacked_names(receipt["ids"])):
                if name not in wanted:
                    continue
                found = said.setdefault(name, _Said())
                mark = recorded[i * SIZE : (i + 1) * SIZE] if recorded else None
                found.note_copy(receipt, mark)
                found.note(receipt, i, mark)
        for name, recorded in self._waiting(batch, "copied").items():
            found = said.setdefault(name, _Said())
            found.is_unproven |= not recorded
            found.others |= recorded
            found.newest = math.inf
        return said

    def altered(self, found: Sequence[VersionBeside]) -> Iterator[DamagedError]:
        """Yields an error for each of these versions that no receipt has as it is."""
        if not found:
            return
        batch = Batch.concat([it.bucket for it in found])
        said = self._said(batch, {it.name for it in found}, [*OF_COPIES, SUPERSEDED])
        waiting = self._waiting(batch, MERGING)
        for it, mark in zip(found, marks(self._policy, batch), strict=True):
            told = said.get(it.name, _Said())
            is_known = mark in told.versions or told.has_unproven
            copied = waiting.get(it.name)  # empty: by a receipt without fingerprints
            if not is_known and (copied is None or (copied and mark not in copied)):
                identity = extended_json(it.bucket.main.legible_id(0))
                place = f"{self._versions}, version {it.version} of _id {identity}"
                what = "it was changed: its fingerprint is not that of its receipt"
                yield DamagedError("version-differs", place, what, _REMEDY)

    def _waiting(self, batch: Batch, state: str) -> dict[bytes, set[bytes]]:
        """Returns the copies in a state whose originals no run has deleted, each with the fingerprints of its
        receipt; none in receipts from before they had any."""
        copied = self._receipts.open(batch.main.ids, state, self._session)
        names = {name for name, _ in copied.values()}
        named = self._receipts.get_all(names, self._session) if copied else {}
        recorded = {name: bytes(it.get("fingerprints") or b"") for name, it in named.items()}
        several = {name: set(cut(some)) for name, some in recorded.items()}
        return {same_id(raw_id): several.get(name, set()) for raw_id, (name, _) in copied.items()}

    def missing(
        self, first_ms: int = FIRST_MS, last_ms: int = LAST_MS, seen: Set[int] | None = None
    ) -> Iterator[DamagedError]:
        """Yields an error for each bucket that receipts of this time name, whose original was deleted, and
        that is neither in the archive nor live. `seen`: hashes of the `same_id`s of documents that were
        compared; others that are there are compared as well, since they may have lost their time."""
        archived, live = archived_source(self._database, self._policy), Source(self._database, self._policy)
        for receipt in self._naming(OF_COPIES, first_ms, last_ms):
            packed = bson.decode(zlib.decompress(receipt["ids"]), codec_options=AS_QUERIED)
            ids = dict(zip(unpacked_names(receipt["ids"]), packed["ids"], strict=True))
            absent = self._absent(archived, ids)
            if seen is not None:
                unseen = [it for name, it in ids.items() if name not in absent and hash(name) not in seen]
                for batch in archived.by_ids(unseen) if unseen else ():
                    yield from self.mismatches(batch).values()
            if absent:
                self._leave_out_explained(receipt, absent)
            for identity in self._absent(live, absent).values():
                place, what = self._place(identity), "it is gone, and its original was deleted"
                yield DamagedError("copy-missing", place, what, "Restore it from a backup of the collection")

    def _absent(self, source: Source, ids: dict[bytes, Any]) -> dict[bytes, Any]:
        listed, there = list(ids.values()), set[bytes]()
        for at in range(0, len(listed), _PAGE):
            there |= {same_id(it) for it in source.present(listed[at : at + _PAGE])}
        return {name: it for name, it in ids.items() if name not in there}

    def _leave_out_explained(self, receipt: Document, absent: dict[bytes, Any]) -> None:
        """Leaves out what later receipts tell of: a newer delete of the bucket, its end, or its erasure."""
        after = receipt.get("sequence", 0)
        times = receipt["first"], receipt["last"]
        for later in self._naming(["delete", "expire"], *times):
            if later.get("sequence", 0) > after:
                for name in unpacked_names(later["ids"]):
                    absent.pop(name, None)
        if absent:
            mine = {"_id.policy": self._receipts.policy, "kind": GONE, "sequence": {"$gt": after}}
            digests = {_digest(name): name for name in absent}
            for later in self._receipts.collection.find(mine, {"digests": 1}):
                for digest in cut(later["digests"]):
                    absent.pop(digests.get(digest, b""), None)

    def _naming(self, kinds: Sequence[str], first: Any, last: Any) -> Iterator[Document]:
        """Yields receipts of a time that name `_id`s, the newest delete first. Raises DamagedError where one
        is not as it was written."""
        first, last = (as_date(it) if isinstance(it, int) else it for it in (first, last))
        query = {
            "_id.policy": self._receipts.policy,
            "kind": {"$in": list(kinds)},
            "ids": {"$exists": True},
            "first": {"$lte": last},
            "last": {"$gte": first},
        }
        fields = dict.fromkeys(_FIELDS, 1) if self._keys is None else None
        there = self._receipts.collection.with_options(codec_options=CODEC)
        for receipt in there.find(query, fields, session=self._session).sort("_id", DESCENDING):
            is_sealed = (
                "sequence" in receipt or receipt["kind"] != KEPT
            )  # those of an earlier version are not
            if self._keys is not None and is_sealed:
                sealed_receipt(receipt, self._keys)
            yield receipt

    def _place(self, identity: Any) -> str:
        return f"{self._target}, _id {extended_json(identity)}"
