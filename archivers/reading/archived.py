"""Opens the reader of what a policy has archived."""

from __future__ import annotations

from collections.abc import Iterator

from pymongo.client_session import ClientSession

from bucketwise.archivers.context import offline_archive
from bucketwise.archivers.format.series import RowFilter
from bucketwise.archivers.reading.offline import OfflineReader
from bucketwise.archivers.reading.online import OnlineReader
from bucketwise.archivers.reading.reader import ArchivedReader
from bucketwise.archivers.tasks import Connections
from bucketwise.buckets.bson.raw import Batch
from bucketwise.config.policies import Policy


class NothingArchived(ArchivedReader):
    """The `ArchivedReader` of a policy without an archive."""

    def at(self, session: ClientSession) -> NothingArchived:
        """Returns this reader: nothing is archived at any instant."""
        del session
        return self

    def readings(self, row_filter: RowFilter, *, is_by_rows: bool) -> Iterator[Batch]:
        """Yields nothing."""
        del row_filter, is_by_rows
        return iter(())

    def earliest(self, at_or_after_ms: int) -> None:
        """Returns None."""
        del at_or_after_ms

    def span(self) -> None:
        """Returns None."""

    def superseded(self) -> Iterator[tuple[int, int]]:
        """Yields nothing."""
        return iter(())


def archived_reader(connections: Connections, policy: Policy) -> ArchivedReader:
    """Returns the reader of a policy's archive."""
    if (archive := offline_archive(connections, policy)) is not None:
        return OfflineReader(connections.database, policy, archive)
    if policy.archive_collections is None:
        return NothingArchived(connections.database, policy)
    return OnlineReader(connections.database, policy, keys=connections.keys)
