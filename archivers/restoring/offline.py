"""What an offline archive gives to a restore."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cached_property, partial

from archivers.context import ArchiveContext
from archivers.format.archive import OfflineArchive
from archivers.records.replacements import check_complete
from archivers.restoring.copies import note_nothing
from archivers.restoring.filter import ArchivedBuckets, RestoreFilter
from archivers.restoring.options import RestoreOptions
from archivers.restoring.records import RestoreRecords
from archivers.restoring.target import Mode
from archivers.versions.history import OfflineHistories
from archivers.versions.superseded import Superseded
from buckets.decoding.decode import BucketSet
from buckets.fields.times import as_ms
from buckets.models import timeseries


class OfflineCopies:
    """The `ArchivedCopies` of an offline archive."""

    def __init__(self, context: ArchiveContext, archive: OfflineArchive) -> None:
        self._context = context
        self._archive = archive

    @cached_property
    def histories(self) -> OfflineHistories:
        """Returns what finds the versions of a bucket."""
        return OfflineHistories(self._archive)

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
        check_complete(self._context.receipts, archive, span, self._context.known_fences)
        manifests = archive.manifests(*span)
        for number, manifest in enumerate(manifests, 1):
            if (
                manifest.timeseries is not None
                and timeseries.timeseries_options(database, options.to) is None
            ):
                database.create_collection(options.to, timeseries=manifest.timeseries)
            which = wanted.sections_of(manifest)
            chosen = itertools.compress(manifest.sections, which)
            for held, section in zip(archive.sections(manifest, which), chosen, strict=True):
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
