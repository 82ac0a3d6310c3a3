"""Holds records of commits against what is sealed: only a manifest that has taken a commit over, or a receipt
that names it, says that it is no longer needed."""

from __future__ import annotations

from typing import Any

from archivers.format.archive import OfflineArchive
from archivers.format.keys import Keys
from archivers.format.manifest import DamagedError
from archivers.records.faults import REMEDY, record_fault
from archivers.records.heads import link_of
from archivers.records.receipt_files import seal_of
from archivers.records.receipts import CODEC, COLLECTION, HELD, REPLACED, Receipts, commit_of
from archivers.records.unregistered import KnownFences, unregistered

Document = dict[str, Any]
#: Kinds of the receipts which say that a commit has ended: its time was over, or nothing was left in it.
EXPIRED, EMPTIED = "expire", "emptied"


def check_replaced(receipts: Receipts, archive: OfflineArchive, record: Document, keys: Keys) -> None:
    """Raises DamagedError where a commit is recorded as replaced, or ended, and nothing that is sealed says
    so."""
    name, by = record["_id"]["name"], record.get("replaced_by")
    successor = commit_of(found) if by and "seal" in (found := receipts.get(by) or {}) else None
    if successor is not None and name in archive.chain.link(link_of(successor)).replaces:
        return
    if by is not None or ended(receipts, record, keys) is None:
        what = f"it says that the commit was replaced by {by}, and the manifest of that one does not"
        if by is None:
            what = "it says that the commit has ended, and no receipt does"
        raise record_fault(name, what)


def ended(receipts: Receipts, record: Document, keys: Keys) -> Document | None:
    """Returns the receipt which says that a commit has ended; None where there is none. Raises DamagedError
    where it is not as it was written."""
    query = {
        "_id.policy": receipts.policy,
        "kind": {"$in": [EXPIRED, EMPTIED]},
        "commit": record["_id"]["name"],
        "manifest_sha256": record["seal"],
    }
    found = receipts.collection.with_options(codec_options=CODEC).find_one(query, sort=[("_id", -1)])
    return None if found is None else sealed_receipt(found, keys)


def sealed_receipt(receipt: Document, keys: Keys) -> Document:
    """Returns a receipt. Raises DamagedError where it is not as it was written, or not signed as it has to
    be."""
    place = f"{COLLECTION}, {receipt['_id']['name']}"
    if seal_of(receipt) != receipt.get("sha256"):
        raise DamagedError("receipt-differs", place, "it does not match its own SHA-256", REMEDY)
    keys.check(receipt["sha256"], receipt.get("signature"), place)
    return receipt


def check_complete(
    receipts: Receipts,
    archive: OfflineArchive,
    span: tuple[int, int],
    known_fences: KnownFences,
) -> None:
    """Raises DamagedError where the store holds a commit of the span that no record accounts for, or that a
    record hides: what is read by the records would lack it, or it is foreign."""
    known = {it.name for it in archive.within(*span)}
    others = [it for it in archive.commits() if it.may_hold(*span) and it.name not in known]
    if not others:
        return
    for error in unregistered(receipts, archive, others, known_fences).errors(archive):
        raise error
    keys = archive.keys or Keys(is_strict=False)
    records = receipts.get_all([it.name for it in others])
    for commit in (it for it in others if records.get(it.name, {}).get("kind") == "offline"):
        record = records[commit.name]
        if record.get("state") in (REPLACED, HELD):
            check_replaced(receipts, archive, record, keys)
            continue
        manifest = archive.manifest(commit)
        if any(it.touches(*span) for it in manifest.sections):
            raise record_fault(commit.name, "it does not say which days the commit holds readings of")
