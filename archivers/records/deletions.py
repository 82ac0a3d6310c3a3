"""One receipt for each delete: what went, when, under which policy, and where it is now.

Receipts are numbered, and each has the seal of the one before. The number and seal of the last are kept
beside them, changed in the transaction that deletes. Manifests name the last receipt of their time, so that
the store reveals a database that was restored to an older state.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import bson
import numpy as np
from bson.binary import Binary, UuidRepresentation
from numpy.typing import NDArray
from pymongo import DESCENDING
from pymongo.client_session import ClientSession
from pymongo.errors import DuplicateKeyError

from bucketwise.archivers.format.keys import Keys
from bucketwise.archivers.format.manifest import LastReceipt, Manifest
from bucketwise.archivers.records.pins import SIZE, fingerprint
from bucketwise.archivers.records.receipt_files import (
    LAST,
    ReceiptFiles,
    Recorded,
    chained,
    recorded_in,
    seal_of,
)
from bucketwise.archivers.records.receipts import CODEC, COLLECTION, Receipts, RunIdentity, record_fault
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.bson.types import elements, first_at
from bucketwise.buckets.fields.ids import sort_key
from bucketwise.buckets.fields.times import as_date
from bucketwise.config.errors import hide_secrets
from bucketwise.config.policies import Policy

Document = dict[str, Any]
#: Binary data that claims to be a UUID may be of any length.
_LEGIBLE = CODEC.with_options(uuid_representation=UuidRepresentation.UNSPECIFIED)
#: Kind of the receipts of copies whose originals somebody else has deleted.
KEPT = "kept"
#: Kind of the receipts of archived buckets out of which the samples of a series were erased.
REWRITTEN = "rewritten"
#: Kinds of the receipts that name copies in an online archive, as they have to be there.
OF_COPIES = ("delete", KEPT, REWRITTEN)
#: Kind of the receipts of versions in an online archive's collection of versions that count no more.
SUPERSEDED = "superseded"
#: Kind of the receipts of buckets of an online archive that are live again.
RESTORED = "restore"
#: The document that names the collections of an online archive: its heads are those of the last receipt that
#: tells any.
COLLECTIONS = "collections"
#: Commits whose files are remembered while receipts are listed.
_KEPT_COMMITS = 1000
#: Receipts that one command asks for.
_PAGE = 1000


class _Last(NamedTuple):
    """The number and seal of the last receipt, 0 and None before the first; the server's time; and which
    times are recorded."""

    number: int
    sha256: str | None
    time: datetime
    recorded: Recorded


class Deletions:
    """The receipts of one policy's deletes, as one run writes them."""

    def __init__(
        self, receipts: Receipts, policy: Policy, fence: int, now: datetime, keys: Keys, run: RunIdentity
    ) -> None:
        self._receipts = receipts
        self._policy = policy
        self._fence = fence
        self._now = now
        self._keys = keys
        self._run = run
        self._is_unchecked = True

    def record(self, session: ClientSession, deleted: Batch, which: Document, held_by: Document) -> None:
        """Records, in the transaction of a delete, what went. Raises DamagedError as `check_last` does."""
        if len(deleted):
            self._check_once(session)
            facts = {
                "collection": self._policy.collection,
                "buckets": len(deleted),
                "bytes": deleted.size,
                "documents_sha256": hashlib.sha256(b"".join(deleted.units)).hexdigest(),
                **which,
                "policy_sha256": self._policy_text,
                "held_by": held_by,
            }
            self.record_event("delete", facts, session)

    def record_event(self, kind: str, facts: Document, session: ClientSession) -> int:
        """Records a delete, or another event such as a hold, in its transaction. Returns the receipt's
        number."""
        found = self._last(session)
        self._append(session, kind, found.number + 1, found, facts)
        return found.number + 1

    def record_of_copies(self, kind: str, facts: Document, session: ClientSession) -> None:
        """Records, in its transaction, what becomes of copies. Raises DamagedError as `check_last` does."""
        self._check_once(session)
        self.record_event(kind, {"collection": self._policy.collection, **facts}, session)

    def record_end(self, facts: Document, session: ClientSession) -> None:
        """Records what `retain.archive` removes for good, in the transaction that does so. Raises
        DamagedError as `check_last` does."""
        self.record_of_copies("expire", {**facts, "policy_sha256": self._policy_text}, session)

    def _check_once(self, session: ClientSession) -> None:
        if self._is_unchecked:
            self.check_last(session)
            self._is_unchecked = False

    def check_last(self, session: ClientSession | None = None) -> None:
        """Raises DamagedError where the last receipt is not signed under one of the keys, or is signed and
        there is no key: no receipt follows it that is signed otherwise."""
        last = last_receipt(self._receipts, session)
        name = f"delete-{last.sequence:010d}" if last else ""
        if last and (found := self._receipts.get(name, session)):  # else it was moved to the store
            self._keys.check(last.sha256, found.get("signature"), f"{COLLECTION}, {name}")

    def is_behind(self, named: LastReceipt) -> bool:
        """Returns whether the archive names a later receipt than the database has, which was then restored
        from a backup."""
        last = last_receipt(self._receipts)
        return last is None or named.sequence > last.sequence

    def record_gap(self, named: LastReceipt, session: ClientSession) -> None:
        """Writes a receipt which says that receipts before it are lost. Numbering continues after the last
        one that the archive names."""
        found = self._last(session)
        facts = {"lost": {"after": found.number, **named.model_dump()}}
        self._append(session, "gap", named.sequence + 1, found, facts)

    def _last(self, session: ClientSession) -> _Last:
        """Returns the last receipt and the server's time, with one command where there is a receipt."""
        receipts = self._receipts
        wanted = {**dict.fromkeys(("sequence", "sha256", "latest", "lifted"), 1), "time": "$$NOW"}
        found = receipts.collection.find_one({"_id": receipts.identity(LAST)}, wanted, session=session)
        if found is not None:
            recorded = recorded_in(receipts, found, session)
            return _Last(found["sequence"], found["sha256"], found["time"], recorded)
        time = receipts.collection.database.client.admin.command("hello")["localTime"]
        return _Last(0, None, time, Recorded())

    def _append(self, session: ClientSession, kind: str, sequence: int, last: _Last, facts: Document) -> None:
        receipt = {
            "_id": self._receipts.identity(f"delete-{sequence:010d}"),
            "kind": kind,
            "sequence": sequence,
            "previous": last.sha256,
            "at": self._now,
            "done_at": last.time,
            **self._run.body,
            "fence": self._fence,
            **facts,
        }
        seal = seal_of(receipt)
        signed = {**receipt, "sha256": seal, "signature": self._keys.sign(seal)}
        try:
            self._receipts.collection.insert_one(signed, session=session)
        except DuplicateKeyError:
            raise record_fault(
                LAST, f"it does not name the last receipt: there is a number {sequence}"
            ) from None
        recorded = last.recorded.after(kind, sequence, self._now)._asdict()
        found = {"kind": "last", "sequence": sequence, "sha256": seal, **recorded}
        updates = []
        if (heads := facts.get("heads")) is not None:
            baseline = {"baseline": self._now} if facts.get("is_baseline") else {}
            moved = {"kind": COLLECTIONS, "held": heads, "receipt": sequence, **baseline}
            updates.append(self._receipts.update_of(COLLECTIONS, {"$set": moved}))
        removed = facts if kind == "delete" else {}
        totals = {f"removed.{it}": removed.get(it, 0) for it in ("buckets", "bytes")}
        whole = {"removed.since": sequence}
        updates.append(self._receipts.update_of(LAST, {"$set": found, "$inc": totals, "$setOnInsert": whole}))
        self._receipts.collection.bulk_write(updates, session=session)

    @cached_property
    def _policy_text(self) -> str:
        """Records the text of the policy once, under its SHA-256, which is returned."""
        text = policy_text(self._policy)
        name = text_digest(text)
        self._receipts.update(f"policy-{name}", {"$setOnInsert": {"kind": "policy", "text": text}})
        return name


def policy_text(policy: Policy) -> str:
    """Returns the policy as receipts keep it: as JSON, with secrets hidden."""
    said = policy.model_dump(mode="json", exclude_none=True)
    return hide_secrets(json.dumps(said, ensure_ascii=False, sort_keys=True))


def policy_digest(policy: Policy) -> str:
    """Returns the SHA-256 under which receipts name it."""
    return text_digest(policy_text(policy))


def ranges(positions: Sequence[int]) -> list[list[int]]:
    """Returns ascending numbers as the first and last of each run of them."""
    found: list[list[int]] = []
    for position in positions:
        if found and position == found[-1][1] + 1:
            found[-1][1] = position
        else:
            found.append([position, position])
    return found


def packed_ids(ids: Sequence[Any]) -> Binary:
    """Returns `_id`s as compressed BSON."""
    return Binary(zlib.compress(bson.encode({"ids": list(ids)}, codec_options=CODEC)))


def unpacked_names(packed: bytes) -> Iterator[bytes]:
    """Yields the `_id`s that `packed_ids` has packed, as `same_id` gives them."""
    array = first_at(zlib.decompress(packed), ("ids",))[1:]
    return (sort_key(array[start], array[value:end]) for start, value, end in elements(array))


def facts_of_archived(ids: Sequence[Any], archived: Batch, spans: NDArray[np.int64]) -> Document:
    """Returns what receipts say of buckets of an online archive: the `_id`s of their originals, fingerprints
    that tell them from others that may be put in their place, and the time that they span."""
    return {
        "ids": packed_ids(ids),
        "fingerprints": Binary(b"".join(fingerprint(archived, i) for i in range(len(archived)))),
        "first": as_date(int(spans.min())),
        "last": as_date(int(spans.max())),
    }


def archived_before(
    receipts: Receipts, wanted: Mapping[bytes, bytes], first_ms: int, last_ms: int
) -> set[bytes]:
    """Returns those of these `_id`s (by `same_id`, each with its bucket's fingerprint) that receipts name: of
    buckets from first to last that were copied to an online archive, and whose originals are gone."""
    query = {
        "_id.policy": receipts.policy,
        "kind": {"$in": OF_COPIES},
        "fingerprints": {"$exists": True},
        "first": {"$lte": as_date(last_ms)},
        "last": {"$gte": as_date(first_ms)},
    }
    found: set[bytes] = set()
    for receipt in receipts.collection.find(query, {"ids": 1, "fingerprints": 1}).sort("last", DESCENDING):
        recorded = receipt["fingerprints"]
        for i, name in enumerate(unpacked_names(receipt["ids"])):
            if name in wanted and recorded[i * SIZE : (i + 1) * SIZE] == wanted[name]:
                found.add(name)
        if found == wanted.keys():
            break
    return found


def text_digest(text: str) -> str:
    """Returns the SHA-256 under which a policy's text is kept."""
    return hashlib.sha256(text.encode()).hexdigest()


def legible(
    receipts: Receipts, moved: ReceiptFiles, since: datetime | None, until: datetime | None
) -> Iterator[Document]:
    """Yields the receipts of [since, until) for people: without the database's own fields, and with the
    `_id`s unpacked. Raises DamagedError where a file of old ones is not as it was written."""
    files = lru_cache(_KEPT_COMMITS)(receipts.files)
    for receipt, _ in chained(receipts, moved, since, until):
        del receipt["_id"]
        for digests in ("fingerprints", "versions", "digests"):
            receipt.pop(digests, None)
        if "commit" in (receipt.get("held_by") or {}):
            receipt["held_by"]["files"] = [{"key": key} for key in files(receipt["held_by"]["commit"])]
        if "ids" in receipt:
            ids = bson.decode(zlib.decompress(receipt["ids"]), codec_options=_LEGIBLE)
            receipt["ids"] = ids["ids"]
        yield receipt


def latest(manifests: Sequence[Manifest]) -> LastReceipt | None:
    """Returns the last receipt that any of these manifests names; None without any."""
    named = [manifest.receipt for manifest in manifests if manifest.receipt is not None]
    return max(named, key=lambda it: it.sequence, default=None)


def last_receipt(receipts: Receipts, session: ClientSession | None = None) -> LastReceipt | None:
    """Returns the newest receipt of a delete, as manifests name it; None before the first."""
    return last_of(receipts.get(LAST, session))


def removed_so_far(receipts: Receipts) -> int | None:
    """Returns the bytes of all documents that were deleted and are not live again; None where earlier
    versions have deleted some, and did not count them."""
    return _removed(receipts, "bytes")


def removed_buckets(receipts: Receipts) -> int | None:
    """Returns how many buckets were deleted and are not live again; None where that is not known."""
    return _removed(receipts, "buckets")


def _removed(receipts: Receipts, what: str) -> int | None:
    removed = (receipts.get(LAST) or {"removed": {"since": 1}}).get("removed", {})
    return max(0, int(removed.get(what, 0))) if removed.get("since") == 1 else None


def subtract_restored(receipts: Receipts, buckets: int, size: int, session: ClientSession) -> None:
    """Notes, in the transaction that makes so many deleted buckets of `size` bytes live again, that these are
    not removed."""
    back = {"removed.buckets": -buckets, "removed.bytes": -size}
    receipts.collection.update_one({"_id": receipts.identity(LAST)}, {"$inc": back}, session=session)


def last_of(found: Document | None) -> LastReceipt | None:
    """Returns the last receipt, as the document `LAST` of the receipts tells it; None without one."""
    return LastReceipt(sequence=found["sequence"], sha256=found["sha256"]) if found else None


def are_known(receipts: Receipts, moved: ReceiptFiles, named: Collection[LastReceipt]) -> bool:
    """Returns whether these receipts, which manifests name, are there or known to be lost. Raises
    DamagedError where the file that should hold them is damaged."""
    gaps = [it["lost"] for it in receipts.gaps()]
    wanted = [it for it in named if not any(_is_lost(it, gap) for gap in gaps)]
    for at in range(0, len(wanted), _PAGE):
        page = wanted[at : at + _PAGE]
        query = {"_id": {"$in": [receipts.identity(f"delete-{it.sequence:010d}") for it in page]}}
        found = receipts.collection.find(query, {"sequence": 1, "sha256": 1})
        seals: dict[Any, Any] = {it.get("sequence"): it.get("sha256") for it in found}
        seals.update(moved.seals({it.sequence for it in page} - seals.keys()))
        if any(seals.get(it.sequence) != it.sha256 for it in page):
            return False
    return True


def _is_lost(named: LastReceipt, gap: Document) -> bool:
    is_last = (named.sequence, named.sha256) == (gap["sequence"], gap["sha256"])
    return is_last or gap["after"] < named.sequence < gap["sequence"]
