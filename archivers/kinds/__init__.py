"""The kinds of archives. Only that of a policy is imported, and what a method does once it is called: a
command uses few of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bucketwise.archivers.context import ArchiveContext
    from bucketwise.archivers.erasing.kind import ArchivedSeries
    from bucketwise.archivers.kinds.archive import Archive


def series_of(context: ArchiveContext) -> ArchivedSeries:
    """Returns what erases series from the archive of the policy at work."""
    return archive_of(context).series


def archive_of(context: ArchiveContext) -> Archive:
    """Returns the archive of the policy at work."""
    if context.has_parts:
        from bucketwise.archivers.kinds.offline import Offline

        return Offline(context, context.offline(context.keys))
    if context.policy.archive_collections is not None:
        from bucketwise.archivers.kinds.online import Online

        return Online(context)
    from bucketwise.archivers.kinds.archive import NoArchive

    return NoArchive(context)
