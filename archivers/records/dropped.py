"""What is known of commits that were dropped: what says that one has ended, and which files keep buckets that
have left it. The manifest that replaced a commit names these files, or the receipt which says that nothing
was left in it. An erasure that rewrites one leaves a receipt of that.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pymongo.client_session import ClientSession

from bucketwise.archivers.format.chain import Chain
from bucketwise.archivers.format.keys import Keys
from bucketwise.archivers.format.manifest import Manifest
from bucketwise.archivers.records.deletions import Deletions
from bucketwise.archivers.records.heads import link_of
from bucketwise.archivers.records.receipt_checks import sealed_receipt
from bucketwise.archivers.records.receipts import CODEC, Receipts, commit_of

Document = dict[str, Any]
#: Kinds of the receipts which say that a commit has ended: its time was over, or nothing was left in it.
EXPIRED, EMPTIED = "expire", "emptied"
#: Kind of the receipts of erasures that rewrote files of kept buckets.
REKEPT = "rekept"


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


def record_rekept(
    deletions: Deletions, commit: str, removed: str, added: Collection[str], session: ClientSession
) -> None:
    """Records that a file of buckets which have left a commit makes way for others, or for none. The files
    are given by their SHA-256."""
    facts = {"commit": commit, "removed": removed, "added": sorted(added)}
    deletions.record_event(REKEPT, facts, session)


def kept_of(receipts: Receipts, manifest: Manifest, chain: Chain) -> Collection[str] | None:
    """Returns the SHA-256 of each file that keeps buckets of a dropped commit; None where nothing tells.
    Raises DamagedError where what tells is not as it was written."""
    keys = chain.keys or Keys(is_strict=False)
    told = _told(receipts, receipts.get(manifest.commit) or {}, manifest, chain, keys)
    if told is None:
        return None
    kept = set(told)
    mine = {"_id.policy": receipts.policy, "kind": REKEPT, "commit": manifest.commit}
    for receipt in receipts.collection.with_options(codec_options=CODEC).find(mine).sort("_id"):
        sealed_receipt(receipt, keys)
        kept = (kept - {receipt["removed"]}) | set(receipt["added"])
    return kept


def _told(
    receipts: Receipts, record: Document, manifest: Manifest, chain: Chain, keys: Keys
) -> Collection[str] | None:
    if "replaced_by" not in record:
        return None  # it was dropped by an older release, or the database has forgotten it
    if (by := record["replaced_by"]) is None:
        end = ended(receipts, {**record, "seal": manifest.sha256}, keys)
        return None if end is None else end.get("versions", () if end["kind"] == EXPIRED else None)
    successor = commit_of(found) if "seal" in (found := receipts.get(by) or {}) else None
    if successor is None:
        return None
    told = chain.link(link_of(successor))
    return told.versions if manifest.commit in told.replaces else ()
