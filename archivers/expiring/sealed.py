"""Tombstones count as far as receipts say so: they decide what goes for good.

A receipt says which records get a tombstone, and when it is due; another one that tombstones are lifted. A
tombstone of before there were such receipts counts for none, so that its record gets another one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pymongo.client_session import ClientSession

from bucketwise.archivers.format.keys import Keys
from bucketwise.archivers.format.manifest import DamagedError
from bucketwise.archivers.records.deletions import Deletions
from bucketwise.archivers.records.faults import reading, record_fault
from bucketwise.archivers.records.receipt_checks import sealed_receipt
from bucketwise.archivers.records.receipts import CODEC, Receipts

Document = dict[str, Any]
PLACED, LIFTED = "tombstones", "undelete"


def record_placed(
    deletions: Deletions, names: Sequence[str], tombstone: Document, session: ClientSession
) -> Document:
    """Writes the receipt for the tombstones of these records, in their transaction. Returns the tombstone as
    the records keep it."""
    facts = {"of": list(names), "due": tombstone["due"], "keep": tombstone["keep"]}
    return {**tombstone, "receipt": deletions.record_event(PLACED, facts, session)}


def record_lifted(
    deletions: Deletions, names: Sequence[str], lifted: Document, session: ClientSession
) -> Document:
    """Writes the receipt which says that these records have no tombstone until an instant, in their
    transaction. Returns what they keep in its place."""
    facts = {"of": list(names), "until": lifted["until"]}
    return {**lifted, "receipt": deletions.record_event(LIFTED, facts, session)}


def unfounded_tombstones(receipts: Receipts, keys: Keys) -> Iterator[DamagedError]:
    """Yields an error for each record whose tombstone is not what receipts say."""
    query = {"_id.policy": receipts.policy, "tombstone": {"$exists": True}}
    for record in receipts.collection.find(query, {"tombstone": 1}):
        try:
            with reading(record["_id"]["name"]):
                check_tombstone(receipts, record["_id"]["name"], record["tombstone"], keys)
        except DamagedError as error:
            yield error


def check_tombstone(
    receipts: Receipts,
    name: str,
    tombstone: Mapping[str, Any],
    keys: Keys,
    session: ClientSession | None = None,
) -> None:
    """Raises DamagedError where a tombstone, or what took its place when it was lifted, is not what receipts
    say."""
    if (number := tombstone.get("receipt")) is None:
        return
    is_lifted = "until" in tombstone
    there = receipts.collection.with_options(codec_options=CODEC)
    wanted = {"_id": receipts.identity(f"delete-{int(number):010d}")}
    found = there.find_one(wanted, session=session) or {}
    fields = ("until",) if is_lifted else ("due", "keep")
    # What took over a commit keeps that its tombstone was lifted.
    is_named = found.get("kind") == LIFTED if is_lifted else name in found.get("of", ())
    if not is_named or any(tombstone.get(it) != found.get(it) for it in fields):
        raise record_fault(name, "its tombstone is not what the receipt says that it names")
    sealed_receipt(found, keys)
    later = {"kind": {"$in": [PLACED, LIFTED]}, "of": name}
    if next(receipts.numbered(number, later, most=1), None) is not None:
        raise record_fault(name, "its tombstone is an earlier one than the last that receipts tell of")
