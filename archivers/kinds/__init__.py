"""The kinds of archives."""

from __future__ import annotations

from archivers.context import ArchiveContext
from archivers.kinds.archive import Archive
from archivers.kinds.none import NoArchive
from archivers.kinds.offline import Offline
from archivers.kinds.online import Online


def archive_of(context: ArchiveContext) -> Archive:
    """Returns the archive of the policy at work."""
    if (held := context.offline(context.keys)) is not None:
        return Offline(context, held)
    return NoArchive(context) if context.policy.archive_collections is None else Online(context)
