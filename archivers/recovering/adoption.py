"""Verifies commits that a database, restored from a backup beside a newer store, has forgotten."""

from __future__ import annotations

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.records.unregistered import unregistered


def verify_forgotten(context: ArchiveContext, archive: OfflineArchive) -> list[str]:
    """Reads the commits whose chain goes on from what the database has recorded, and returns their names.
    Raises DamagedError where one is damaged, or foreign."""
    found = unregistered(context.receipts, archive, archive.commits(), context.known_fences)
    for fault in found.faults:
        raise fault
    for manifest in found.newer:
        context.check()
        if archive.has_files(manifest):  # else a run that had lost its lease has left the manifest alone
            archive.check(manifest)
        context.progress("verified buckets", manifest.buckets)
    return [it.commit for it in found.newer]
