"""What an online archive gives to a restore."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, partial

from archivers.context import ArchiveContext
from archivers.restoring.copies import note_nothing
from archivers.restoring.damaged import MissingBuckets
from archivers.restoring.filter import ArchivedBuckets, RestoreFilter
from archivers.restoring.options import RestoreOptions
from archivers.restoring.records import RestoreRecords
from archivers.versions.history import OnlineHistories
from archivers.writes.online import archived_source
from buckets.decoding.decode import BucketSet
from buckets.fields.selectors import selector_query


class OnlineCopies:
    """The `ArchivedCopies` of an online archive."""

    def __init__(self, context: ArchiveContext) -> None:
        self._context = context

    @cached_property
    def histories(self) -> OnlineHistories:
        """Returns what finds the versions of a bucket."""
        return OnlineHistories(self._context.database, self._context.policy)

    def begin(self, options: RestoreOptions, wanted: RestoreFilter) -> None:
        """Checks nothing: damage is found as buckets are read."""

    def missing(self) -> list[MissingBuckets]:
        """Returns none: nothing is left out."""
        return []

    def of(
        self, options: RestoreOptions, records: RestoreRecords | None, wanted: RestoreFilter
    ) -> Iterator[ArchivedBuckets]:
        """Yields the archived buckets that may hold what is asked for."""
        database, policy = self._context.database, self._context.policy
        query = selector_query(policy, options.series)
        for batch in archived_source(database, policy).batches(wanted.start, wanted.end, query):
            note = partial(records.online, batch) if records else note_nothing
            yield ArchivedBuckets(BucketSet(batch, policy), note)
