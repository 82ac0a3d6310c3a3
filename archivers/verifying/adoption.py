"""Finds and verifies what a database, restored from a backup beside a newer store, has forgotten."""

from __future__ import annotations

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.records.deletions import latest
from bucketwise.archivers.records.heads import check_heads
from bucketwise.archivers.records.unregistered import Unregistered, unregistered
from bucketwise.archivers.verifying.offline import verify_commits
from bucketwise.config.errors import HaltedError


def verify_forgotten(context: ArchiveContext, archive: OfflineArchive) -> list[str]:
    """Reads the commits whose chain goes on from what the database has recorded, and returns their names.
    Raises DamagedError where one is damaged, or foreign."""
    found = _unregistered(context, archive)
    for fault in found.faults:
        raise fault
    for manifest in found.newer:
        context.check()
        if archive.has_files(manifest):  # else a run that had lost its lease has left the manifest alone
            archive.check(manifest)
        context.progress("verified buckets", manifest.buckets)
    return [it.commit for it in found.newer]


def is_forgotten(context: ArchiveContext, archive: OfflineArchive) -> bool:
    """Returns whether the archive has commits that go on from what the database knows, or names receipts that
    the database does not have."""
    if _unregistered(context, archive).newer:
        return True
    named = latest(check_heads(context.receipts, archive).manifests)
    return named is not None and context.deletions.is_behind(named)


def check_adoptable(context: ArchiveContext, archive: OfflineArchive) -> None:
    """Reads all commits in the store. Raises HaltedError where one is damaged, or foreign."""
    check_heads(context.receipts, archive, goes_on=True)
    for fault in _unregistered(context, archive).faults:
        raise fault
    found, _ = verify_commits(context, archive, archive.commits())
    if found.bad:
        raise HaltedError(f"nothing was taken over, because verification failed: {found.bad[0].message}")


def _unregistered(context: ArchiveContext, archive: OfflineArchive) -> Unregistered:
    return unregistered(context.receipts, archive, archive.commits(), context.known_fences)
