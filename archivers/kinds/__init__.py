"""The kinds of archives."""

from __future__ import annotations

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.kinds.archive import Archive
from bucketwise.archivers.kinds.none import NoArchive
from bucketwise.archivers.kinds.offline import Offline
from bucketwise.archivers.kinds.online import Online


def archive_of(context: ArchiveContext) -> Archive:
    """Returns the archive of the policy at work."""
    if (held := context.offline(context.keys)) is not None:
        return Offline(context, held)
    return NoArchive(context) if context.policy.archive_collections is None else Online(context)
