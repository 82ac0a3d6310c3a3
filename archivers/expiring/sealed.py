"""Tombstones count as far as receipts say so: they decide what goes for good.

A receipt says which records get a tombstone, and when it is due; another one that tombstones are lifted. A
tombstone of before there were such receipts counts for none, so that its record gets another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pymongo.client_session import ClientSession

from archivers.format.keys import Keys
from archivers.records.deletions import Deletions
from archivers.records.faults import record_fault
from archivers.records.receipts import CODEC, Receipts
from archivers.records.replacements import sealed_receipt

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


def check_tombstone(
    receipts: Receipts,
    name: str,
    tombstone: Mapping[str, Any],
    keys: Keys,
    session: ClientSession | None = None,
) -> None:
    """Raises DamagedError where a tombstone, or what took its place when it was lifted, is not what receipts
    say."""
    number = tombstone.get("receipt")
    if number is None:
        return
    key = "until" if "until" in tombstone else "due"
    found = receipts.get(f"delete-{number:010d}", session) if isinstance(number, int) else None
    fields = ("due", "keep") if key == "due" else ("until",)
    if (
        found is None
        or name not in found.get("of", ())
        or any(tombstone.get(it) != found.get(it) for it in fields)
    ):
        raise record_fault(name, "its tombstone is not what the receipt says that it names")
    whole = receipts.collection.with_options(codec_options=CODEC).find_one({"_id": found["_id"]})
    assert whole is not None
    sealed_receipt(whole, keys)
    later = {"kind": {"$in": [PLACED, LIFTED]}, "of": name}
    if next(receipts.numbered(number, later, most=1), None) is not None:
        raise record_fault(name, "its tombstone is an earlier one than the last that receipts tell of")
