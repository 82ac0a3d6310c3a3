"""What an online archive gives to a restore."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, partial

import numpy as np

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.format.manifest import DamagedError
from bucketwise.archivers.moving.archive import check_collections
from bucketwise.archivers.records.copies import CopyReceipts, names_of
from bucketwise.archivers.records.online_heads import OnlineHeads
from bucketwise.archivers.restoring.copies import note_nothing
from bucketwise.archivers.restoring.damaged import MissingBuckets
from bucketwise.archivers.restoring.options import Mode, RestoreOptions
from bucketwise.archivers.restoring.put import ArchivedBuckets, RestoreFilter
from bucketwise.archivers.restoring.records import RestoreRecords
from bucketwise.archivers.versions.history import OnlineHistories
from bucketwise.archivers.versions.kept import KeptVersions, beside
from bucketwise.archivers.writes import archive_collections, archived_source
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.decoding.decode import BucketSet
from bucketwise.buckets.fields.selectors import selector_query
from bucketwise.config.errors import HaltedError, UsageError


class OnlineCopies:
    """The `ArchivedCopies` of an online archive."""

    def __init__(self, context: ArchiveContext) -> None:
        self._context = context
        self._receipts = CopyReceipts(context.database, context.policy, context.keys.for_reading)
        self._left_out: dict[str, DamagedError] | None = None  # None: nothing may be

    @cached_property
    def histories(self) -> OnlineHistories:
        """Returns what finds the versions of a bucket."""
        return OnlineHistories(self._context.database, self._context.policy)

    def begin(self, options: RestoreOptions, wanted: RestoreFilter) -> None:
        """Compares all that may be wanted with its receipts, unless what is damaged is to be left out. Raises
        UsageError where the source is to have other versions than the archive's."""
        mode, to = options.how.mode, options.to
        database, policy = self._context.database, self._context.policy
        if to == policy.collection and mode != Mode.merged:
            raise UsageError(
                f"--versions {mode}: the online archive holds the versions of a bucket merged, and {to} can "
                "only have them so. Leave --versions out, or restore into a new collection"
            )
        if options.skip_damaged:
            self._left_out = {}
            if to == policy.collection:
                OnlineHeads(database, policy, self._context.keys).told()  # a receipt goes on from them
        else:
            check_collections(database, policy, self._context.keys)
        kept = KeptVersions(database, policy)
        seen = set[int]()
        for batch in self._sound(options, wanted):
            for error in self._receipts.altered(beside(kept.of(batch.main.ids))):
                raise error
            seen.update(names_of(batch))
        # The receipts do not tell the series of what is gone, or no longer found by its series.
        for error in self._receipts.missing(wanted.start, wanted.end - 1, seen):
            self._note(error)

    def missing(self) -> list[MissingBuckets]:
        """Returns the buckets that are gone, or not as they were archived."""
        target, _ = archive_collections(self._context.policy)
        return [
            MissingBuckets(target, it.place, it.what, None, None, 1, 0, [])
            for it in (self._left_out or {}).values()
        ]

    def _note(self, error: DamagedError) -> None:
        if self._left_out is None:
            raise HaltedError(
                f"policy {self._context.policy.name}: the archive can't give all that is asked for: "
                f"{error.place}: {error.what}. Nothing was restored. Put back what is damaged, or restore "
                "the rest with --skip-damaged"
            )
        self._left_out[error.place] = error

    def _sound(self, options: RestoreOptions, wanted: RestoreFilter) -> Iterator[Batch]:
        """Yields what may be wanted, as it was archived."""
        database, policy = self._context.database, self._context.policy
        query = selector_query(policy, options.series)
        for batch in archived_source(database, policy).batches(wanted.start, wanted.end, query):
            unlike = self._receipts.unlike(batch)
            for error in unlike.values():
                self._note(error)
            yield batch.take(np.setdiff1d(np.arange(len(batch)), list(unlike))) if unlike else batch

    def of(
        self, options: RestoreOptions, records: RestoreRecords | None, wanted: RestoreFilter
    ) -> Iterator[ArchivedBuckets]:
        """Yields the archived buckets that may hold what is asked for."""
        for batch in self._sound(options, wanted):
            note = partial(records.online, batch) if records else note_nothing
            yield ArchivedBuckets(BucketSet(batch, self._context.policy), note)
