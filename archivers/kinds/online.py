"""The online archive: collections of the same database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from bucketwise.buckets.fields.times import DAY_MS, EVER, TimeRange, as_date
from bucketwise.buckets.source import Source
from bucketwise.config.errors import HaltedError
from bucketwise.config.tables import Lake

if TYPE_CHECKING:
    from bucketwise.archivers.compact import CompactOptions, CompactReport
    from bucketwise.archivers.context import ArchiveContext
    from bucketwise.archivers.erasing.online import OnlineSeries
    from bucketwise.archivers.expiring.rule import ExpiryReport
    from bucketwise.archivers.format.keys import Keys
    from bucketwise.archivers.format.manifest import Manifest
    from bucketwise.archivers.kinds.drill import DrilledDay
    from bucketwise.archivers.kinds.online_evidence import OnlineEvidence
    from bucketwise.archivers.lake.records import LakeDifference, LakeReport
    from bucketwise.archivers.moving.archive import ArchiveOptions
    from bucketwise.archivers.report import ArchiveReport
    from bucketwise.archivers.restoring.options import RestoreOptions
    from bucketwise.archivers.restoring.settle import RestoreReport
    from bucketwise.archivers.verifying.report import IntactPiece, Piece, VerifiedRecords, VerifyReport


@dataclass(frozen=True)
class Online:
    """The `Archive` of collections."""

    context: ArchiveContext

    def recover(self) -> None:
        """Makes the collections: a crash leaves nothing half done."""
        from bucketwise.archivers.moving.archive import recover
        from bucketwise.archivers.moving.online import OnlineRun

        recover(self.context, OnlineRun)

    def heads(self) -> list[Manifest]:
        """Verifies that the collections are those that were left. Returns no manifests."""
        from bucketwise.archivers.moving.archive import check_collections

        context = self.context
        check_collections(context.database, context.policy, context.keys, context.state.record)
        return []

    def check_complete(self) -> None:
        """Does nothing: `heads` counts the documents."""

    def check_own(self) -> None:
        """Does nothing: its collections lie in this database, and `verify` compares their documents."""

    def needs_adoption(self) -> bool:
        """Returns whether the collections are not those that were left, or hold what no receipt names."""
        from bucketwise.archivers.verifying.online import unknown

        try:
            return bool(self.heads()) or next(unknown(self.context), None) is not None
        except HaltedError:
            return True

    def check_adoptable(self) -> None:
        """Does nothing: whatever the collections hold now is taken over."""

    def sign(self, keys: Keys) -> int:
        """Returns 0: receipts alone vouch for documents."""
        del keys
        return 0

    def adopt(self) -> list[str]:
        """Records the collections as they are now, and what no receipt names. Returns no commits."""
        from bucketwise.archivers.records.online_heads import OnlineHeads
        from bucketwise.archivers.verifying.online import adopt_unknown
        from bucketwise.archivers.versions.merging import record_all_superseded

        context = self.context
        heads = OnlineHeads(context.database, context.policy)
        if heads.read().receipt is None:
            record_all_superseded(context)
        heads.adopt(context.deletions, context.guard)
        adopt_unknown(context)
        return []

    def run(self, options: ArchiveOptions) -> ArchiveReport:
        """Moves the expired buckets."""
        from bucketwise.archivers.moving.archive import archive
        from bucketwise.archivers.moving.online import OnlineRun

        return archive(self.context, options, OnlineRun)

    def plan(self, options: ArchiveOptions) -> ArchiveReport:
        """Returns what `run` would do."""
        from bucketwise.archivers.moving.archive import plan_archive
        from bucketwise.archivers.moving.online import OnlineDryRun

        return plan_archive(self.context, options, OnlineDryRun)

    def compact(self, options: CompactOptions) -> CompactReport:
        """Does nothing: MongoDB keeps the collections."""
        from bucketwise.archivers.compact import CompactReport

        del options
        return CompactReport()

    def plan_compaction(self, options: CompactOptions) -> CompactReport:
        """Returns an empty report."""
        from bucketwise.archivers.compact import CompactReport

        del options
        return CompactReport(bytes_after=None)

    def expire(self) -> ExpiryReport:
        """Expires days."""
        return self._expiry(writes=True)

    def plan_expiry(self) -> ExpiryReport:
        """Returns what `expire` would do."""
        return self._expiry(writes=False)

    def _expiry(self, *, writes: bool) -> ExpiryReport:
        from bucketwise.archivers.expiring.online import OnlineExpiry
        from bucketwise.archivers.expiring.rule import ExpiryReport, RetentionRule

        rule = RetentionRule.of(self.context.policy, self.context.now)
        return ExpiryReport() if rule is None else OnlineExpiry(self.context, rule, writes).run()

    def verify(self, within: TimeRange = EVER) -> VerifyReport:
        """Compares documents with receipts."""
        from bucketwise.archivers.verifying.online import verify

        return verify(self.context, within)

    def verify_records(self) -> VerifiedRecords:
        """Verifies heads, kept versions and receipts. Returns the days on which archived buckets end."""
        from bucketwise.archivers.format.names import day
        from bucketwise.archivers.records.online_heads import OnlineHeads
        from bucketwise.archivers.verifying.online import verify_beside, verify_heads
        from bucketwise.archivers.verifying.report import (
            ArchivedDay,
            IntactPiece,
            VerifiedRecords,
            VerifyReport,
        )

        report = VerifyReport()
        verify_heads(self.context, report)
        is_damaged = bool(report.bad)
        verify_beside(self.context, report)
        days = [IntactPiece(ArchivedDay(day(it * DAY_MS)), count) for it, count in self._counts()]
        heads = OnlineHeads(self.context.database, self.context.policy)
        return VerifiedRecords(report, days, [], is_damaged, None if is_damaged else heads.read().baseline)

    def _counts(self) -> Iterator[tuple[int, int]]:
        """Yields each UTC day of the archive, since 1970, and how many buckets end on it."""
        from bucketwise.archivers.records.pins import days_of

        source = self._source
        return ((it, source.count_ending(it * DAY_MS, (it + 1) * DAY_MS)) for it in days_of(source))

    @property
    def _source(self) -> Source:
        from bucketwise.archivers.writes import archived_source

        return archived_source(self.context.database, self.context.policy)

    def verify_pieces(self, pieces: Sequence[Piece]) -> tuple[VerifyReport, list[IntactPiece]]:
        """Compares the documents of these days with their receipts. Returns the days that are undamaged."""
        from bucketwise.archivers.format.names import day_number
        from bucketwise.archivers.verifying.online import verify_range
        from bucketwise.archivers.verifying.report import IntactPiece, VerifyReport

        report, intact = VerifyReport(), list[IntactPiece]()
        for piece in pieces:
            damaged, parts = len(report.bad), report.parts
            start = day_number(piece.first) * DAY_MS
            within = TimeRange(as_date(start), as_date(start + DAY_MS))
            found = self._source.ending(within.start_ms, within.end_ms)
            verify_range(self.context, report, found, within, is_all=False)
            if len(report.bad) == damaged:
                intact.append(IntactPiece(piece, report.parts - parts))
        return report, intact

    def drilled(self, not_since: datetime) -> dict[int, datetime | None]:
        """Returns the days of what left its source before then, and was not drilled since."""
        from bucketwise.archivers.records.pins import DrilledDays

        return DrilledDays(self.context.receipts, self._source).due(not_since)

    @property
    def place(self) -> str:
        """Returns the collection."""
        from bucketwise.archivers.writes import archive_collections

        return archive_collections(self.context.policy)[0]

    def drill(self, days: int, seed: int) -> list[DrilledDay]:
        """Restores the documents that end on some days."""
        from bucketwise.archivers.kinds.drill import drill_online

        return drill_online(self.context, days, seed)

    @property
    def evidence(self) -> OnlineEvidence:
        """Returns what documents and receipts tell."""
        from bucketwise.archivers.kinds.online_evidence import OnlineEvidence

        return OnlineEvidence(self.context)

    @property
    def series(self) -> OnlineSeries:
        """Returns what erases series from the collections."""
        from bucketwise.archivers.erasing.online import OnlineSeries

        return OnlineSeries(self.context)

    def lake_differences(self, lake: Lake) -> list[LakeDifference]:
        """Returns none: there are no parts that a table could list."""
        del lake
        return []

    def sync_lake(self, lake: Lake, *, whole: bool) -> LakeReport:
        """Returns an empty report."""
        from bucketwise.archivers.lake.records import LakeReport

        del lake, whole
        return LakeReport()

    def restore(self, options: RestoreOptions) -> RestoreReport:
        """Brings back what the collections hold."""
        from bucketwise.archivers.restoring.online import OnlineCopies
        from bucketwise.archivers.restoring.restore import restore

        return restore(self.context, options, OnlineCopies(self.context))
