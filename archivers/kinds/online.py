"""The online archive: collections of the same database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from bucketwise.archivers.compacting.compact import CompactOptions, CompactReport
from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.evidence.drill import DrilledDay
from bucketwise.archivers.evidence.drill_online import drill
from bucketwise.archivers.expiring.online import OnlineExpiry
from bucketwise.archivers.expiring.report import ExpiryReport
from bucketwise.archivers.expiring.rule import RetentionRule
from bucketwise.archivers.format.names import day, day_number
from bucketwise.archivers.moving.archive import (
    ArchiveOptions,
    archive,
    plan_archive,
    recover,
)
from bucketwise.archivers.moving.dry_run import OnlineDryRun
from bucketwise.archivers.moving.online import OnlineRun
from bucketwise.archivers.records.drills import DrilledDays, days_of
from bucketwise.archivers.records.online_heads import OnlineHeads
from bucketwise.archivers.report import ArchiveReport
from bucketwise.archivers.restoring.online import OnlineCopies
from bucketwise.archivers.restoring.options import RestoreOptions
from bucketwise.archivers.restoring.restore import restore
from bucketwise.archivers.restoring.settle import RestoreReport
from bucketwise.archivers.verifying.online import verify, verify_beside, verify_heads, verify_range
from bucketwise.archivers.verifying.report import (
    ArchivedDay,
    IntactPiece,
    Piece,
    VerifiedRecords,
    VerifyReport,
)
from bucketwise.archivers.writes.online import archive_collections, archived_source
from bucketwise.buckets.fields.times import DAY_MS, EVER, TimeRange, as_date
from bucketwise.buckets.source import Source


@dataclass(frozen=True)
class Online:
    """The `Archive` of collections."""

    context: ArchiveContext

    def recover(self) -> None:
        """Makes the collections: a crash leaves nothing half done."""
        recover(self.context, OnlineRun)

    def adopt(self) -> list[str]:
        """Records the collections as they are now. Returns no commits."""
        OnlineHeads(self.context.database, self.context.policy).adopt(self.context.guard)
        return []

    def run(self, options: ArchiveOptions) -> ArchiveReport:
        """Moves the expired buckets."""
        return archive(self.context, options, OnlineRun)

    def plan(self, options: ArchiveOptions) -> ArchiveReport:
        """Returns what `run` would do."""
        return plan_archive(self.context, options, OnlineDryRun)

    def compact(self, options: CompactOptions) -> CompactReport:
        """Does nothing: MongoDB keeps the collections."""
        del options
        return CompactReport()

    def plan_compaction(self, options: CompactOptions) -> CompactReport:
        """Returns an empty report."""
        del options
        return CompactReport(bytes_after=None)

    def expire(self) -> ExpiryReport:
        """Expires days."""
        return self._expiry(writes=True)

    def plan_expiry(self) -> ExpiryReport:
        """Returns what `expire` would do."""
        return self._expiry(writes=False)

    def _expiry(self, *, writes: bool) -> ExpiryReport:
        rule = RetentionRule.of(self.context.policy, self.context.now)
        return ExpiryReport() if rule is None else OnlineExpiry(self.context, rule, writes).run()

    def verify(self, within: TimeRange = EVER) -> VerifyReport:
        """Compares documents with receipts."""
        return verify(self.context, within)

    def verify_records(self) -> VerifiedRecords:
        """Verifies heads, kept versions and receipts. Returns the days on which archived buckets end."""
        report = VerifyReport()
        verify_heads(self.context, report)
        is_damaged = bool(report.bad)
        verify_beside(self.context, report)
        days = [IntactPiece(ArchivedDay(day(it * DAY_MS)), count) for it, count in self._counts()]
        _, baseline = OnlineHeads(self.context.database, self.context.policy).read()
        return VerifiedRecords(report, days, [], is_damaged, baseline)

    def _counts(self) -> Iterator[tuple[int, int]]:
        """Yields each UTC day of the archive, since 1970, and how many buckets end on it."""
        source = self._source
        return ((it, source.count_ending(it * DAY_MS, (it + 1) * DAY_MS)) for it in days_of(source))

    @property
    def _source(self) -> Source:
        return archived_source(self.context.database, self.context.policy)

    def verify_pieces(self, pieces: Sequence[Piece]) -> tuple[VerifyReport, list[IntactPiece]]:
        """Compares the documents of these days with their receipts. Returns the days that are undamaged."""
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
        return DrilledDays(self.context.receipts, self._source).due(not_since)

    @property
    def place(self) -> str:
        """Returns the collection."""
        return archive_collections(self.context.policy)[0]

    def drill(self, days: int, seed: int) -> list[DrilledDay]:
        """Restores the documents that end on some days."""
        return drill(self.context, days, seed)

    def restore(self, options: RestoreOptions) -> RestoreReport:
        """Brings back what the collections hold."""
        return restore(self.context, options, OnlineCopies(self.context))
