"""The kinds of archives."""

from __future__ import annotations

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.erasing.kind import ArchivedSeries
from bucketwise.archivers.kinds.archive import Archive
from bucketwise.archivers.kinds.none import NoArchive
from bucketwise.archivers.kinds.offline import Offline
from bucketwise.archivers.kinds.online import Online


def series_of(context: ArchiveContext) -> ArchivedSeries:
    """Returns what erases series from the archive of the policy at work."""
    return archive_of(context).series


def archive_of(context: ArchiveContext) -> Archive:
    """Returns the archive of the policy at work."""
    if context.has_parts:
        return Offline(context, context.offline(context.keys))
    return NoArchive(context) if context.policy.archive_collections is None else Online(context)
