"""Whether a commit may go of which an earlier version has taken all buckets: it wrote no receipt of that.

A run of it may have died before it dropped the commit. Each of its buckets then lies elsewhere as it was, or
an erasure has taken it.
"""

from __future__ import annotations

from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.format.manifest import Manifest
from bucketwise.archivers.records.receipts import Receipts
from bucketwise.archivers.records.recorded import LAST
from bucketwise.archivers.versions.superseded import RemovedBuckets, Superseded
from bucketwise.buckets.fields.times import TimeRange, as_ms


def lies_elsewhere(receipts: Receipts, archive: OfflineArchive, manifest: Manifest) -> bool:
    """Returns whether nothing is lost with a commit that an earlier version has emptied."""
    aside = Superseded(archive)
    kept = [aside.read(it) for it in aside.files() if it.commit.name == manifest.commit]
    missing = _missing(archive, manifest, kept)
    return missing == 0 or missing <= _erased(receipts, manifest)


def _missing(archive: OfflineArchive, manifest: Manifest, kept: list[RemovedBuckets]) -> int:
    """Returns how many buckets of a commit lie neither in these files nor in a current commit. Where its own
    files are gone by now, those in the files count by their positions."""
    if not archive.is_there(manifest.name):
        return len(set(range(manifest.buckets)).difference(*(it.positions for it in kept)))
    there = {unit for it in kept for unit in it.batch.units}
    missing = [unit for it in archive.sections(manifest) for unit in it.batch.units if unit not in there]
    for other in archive.manifests(as_ms(manifest.first), as_ms(manifest.last) + 1) if missing else ():
        for held in archive.sections(other):
            missing = list(set(missing).difference(held.batch.units))
    return len(missing)


def _erased(receipts: Receipts, manifest: Manifest) -> int:
    """Returns how many archived buckets an erasure of that time has taken that earlier versions have begun; 0
    once this version has written a receipt, since it records which commits it empties."""
    mine = {"_id.policy": receipts.policy}
    is_older = receipts.collection.find_one({**mine, "done_at": {"$exists": True}}, {"_id": 1}) is None
    if not is_older or "latest" in (receipts.get(LAST) or {}):
        return 0
    span = as_ms(manifest.first), as_ms(manifest.last)
    found = receipts.collection.find({**mine, "kind": {"$in": ["erase", "erasing"]}})
    erased = [
        int((it.get("erased") or it.get("counts") or {}).get("archived", 0))
        for it in found
        for within in [TimeRange(it["since"], it["until"])]
        if within.start_ms <= span[1] and within.end_ms > span[0]
    ]
    return max(erased, default=0)
