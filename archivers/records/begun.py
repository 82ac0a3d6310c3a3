"""The manifests that runs were about to write. Until one has its receipt, this shows that a run of this
database made it. One document among the receipts; only runs that died leave anything in it."""

from __future__ import annotations

from pymongo import UpdateOne

from bucketwise.archivers.format.manifest import Manifest
from bucketwise.archivers.records.receipts import Receipts

#: The document, and how many seals it keeps at most.
NAME, MOST = "begun", 100


def begin(receipts: Receipts, manifest: Manifest) -> None:
    """Records that a manifest is about to be written."""
    seals = {"$each": [manifest.sha256], "$slice": -MOST}
    receipts.update(NAME, {"$set": {"kind": NAME}, "$push": {"seals": seals}})


def end_update(receipts: Receipts, manifest: Manifest) -> UpdateOne:
    """Returns the update by which a manifest that gets its receipt is no longer one that was only begun."""
    return UpdateOne({"_id": receipts.identity(NAME)}, {"$pull": {"seals": manifest.sha256}})


def begun(receipts: Receipts) -> frozenset[str] | None:
    """Returns the seals of manifests that were begun, and have no receipt; None where no run has recorded any
    yet."""
    found = receipts.get(NAME)
    return None if found is None else frozenset(found.get("seals", ()))
