"""What an offline archive gives to a restore."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property, partial

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.restoring.copies import note_nothing
from bucketwise.archivers.restoring.damaged import DamageFound, MissingBuckets, check_sound, missing_buckets
from bucketwise.archivers.restoring.options import Mode, RestoreOptions
from bucketwise.archivers.restoring.put import ArchivedBuckets, RestoreFilter
from bucketwise.archivers.restoring.records import RestoreRecords
from bucketwise.archivers.versions.history import OfflineHistories
from bucketwise.archivers.versions.replacements import incomplete
from bucketwise.archivers.versions.superseded import Superseded
from bucketwise.buckets.decoding.decode import BucketSet
from bucketwise.buckets.fields.times import as_ms
from bucketwise.buckets.models import timeseries


class OfflineCopies:
    """The `ArchivedCopies` of an offline archive."""

    def __init__(self, context: ArchiveContext, archive: OfflineArchive) -> None:
        self._context = context
        self._archive = archive
        self._damage = DamageFound()

    @cached_property
    def histories(self) -> OfflineHistories:
        """Returns what finds the versions of a bucket."""
        return OfflineHistories(self._archive)

    def begin(self, options: RestoreOptions, wanted: RestoreFilter) -> None:
        """Asks the store for all files that may be needed, unless what is damaged is to be left out."""
        if options.skip_damaged:
            self._archive.on_damage = self._damage
        else:
            check_sound(self._archive, wanted)

    def missing(self) -> list[MissingBuckets]:
        """Returns the damaged sections of commits, and files beside them."""
        return missing_buckets(self._context, self._archive, self._damage)

    def of(
        self, options: RestoreOptions, records: RestoreRecords | None, wanted: RestoreFilter
    ) -> Iterator[ArchivedBuckets]:
        """Yields the buckets of commits and, where all versions are asked for, superseded ones as well."""
        yield from self._of_commits(options, records, wanted)
        if options.how.mode == Mode.all:
            yield from self._superseded(records, wanted)

    def _of_commits(
        self, options: RestoreOptions, records: RestoreRecords | None, wanted: RestoreFilter
    ) -> Iterator[ArchivedBuckets]:
        database, archive, span = self._context.database, self._archive, (wanted.start, wanted.end)
        for commit, error in incomplete(self._context.receipts, archive, span, self._context.known_fences):
            archive.on_damage(error, commit, None)
        manifests = archive.manifests(*span)
        for number, manifest in enumerate(manifests, 1):
            if (
                manifest.timeseries is not None
                and timeseries.timeseries_options(database, options.to) is None
            ):
                database.create_collection(options.to, timeseries=manifest.timeseries)
            for held in archive.sections(manifest, wanted.sections_of(manifest)):
                section = manifest.sections[bisect_right(manifest.edges, held.positions[0]) - 1]
                note = partial(records.offline, manifest, held) if records else note_nothing
                yield ArchivedBuckets(
                    BucketSet(held.batch, manifest.archived_policy),
                    note,
                    (as_ms(section.first), as_ms(section.last)),
                    section.readings,
                    manifest.commit,
                    int(held.positions[-1]) + 1,
                    number / len(manifests),
                )

    def _superseded(self, records: RestoreRecords | None, wanted: RestoreFilter) -> Iterator[ArchivedBuckets]:
        """Yields superseded versions, since no commit may hold another version of their buckets."""
        histories = self.histories
        superseded = Superseded(self._archive)
        for file, manifest in superseded.around(wanted.start, wanted.end):
            if not wanted.may_hold(manifest):
                continue
            batch = superseded.read(file).batch
            batch = batch.take(histories.superseded(batch, manifest.archived_policy))
            note = partial(records.superseded, batch) if records else note_nothing
            yield ArchivedBuckets(BucketSet(batch, manifest.archived_policy), note)
