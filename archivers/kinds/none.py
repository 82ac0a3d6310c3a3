"""A policy that archives nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from bucketwise.archivers.compacting.compact import CompactOptions, CompactReport
from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.evidence.drill import DrilledDay
from bucketwise.archivers.expiring.report import ExpiryReport
from bucketwise.archivers.moving.archive import ArchiveOptions, check_kind
from bucketwise.archivers.report import ArchiveReport
from bucketwise.archivers.restoring.options import RestoreOptions, check_request
from bucketwise.archivers.restoring.settle import RestoreReport
from bucketwise.archivers.verifying.receipts import verify_receipts
from bucketwise.archivers.verifying.report import IntactPiece, Piece, VerifiedRecords, VerifyReport
from bucketwise.buckets.fields.times import EVER, TimeRange


@dataclass(frozen=True)
class NoArchive:
    """The `Archive` of a policy without one. Receipts may be left of an earlier one."""

    context: ArchiveContext

    def recover(self) -> None:
        """Does nothing."""

    def adopt(self) -> list[str]:
        """Returns no commits."""
        return []

    def run(self, options: ArchiveOptions) -> ArchiveReport:
        """Returns an empty report."""
        del options
        return ArchiveReport("none")

    def plan(self, options: ArchiveOptions) -> ArchiveReport:
        """Returns an empty report."""
        return self.run(options)

    def compact(self, options: CompactOptions) -> CompactReport:
        """Returns an empty report."""
        del options
        return CompactReport()

    def plan_compaction(self, options: CompactOptions) -> CompactReport:
        """Returns an empty report."""
        del options
        return CompactReport(bytes_after=None)

    def expire(self) -> ExpiryReport:
        """Returns an empty report."""
        return ExpiryReport()

    def plan_expiry(self) -> ExpiryReport:
        """Returns an empty report."""
        return ExpiryReport()

    def verify(self, within: TimeRange = EVER) -> VerifyReport:
        """Verifies receipts, where no range is given."""
        report = VerifyReport()
        if not within.is_bounded:
            verify_receipts(self.context, report)
        return report

    def verify_records(self) -> VerifiedRecords:
        """Verifies receipts."""
        return VerifiedRecords(self.verify(), [], [])

    def verify_pieces(self, pieces: Sequence[Piece]) -> tuple[VerifyReport, list[IntactPiece]]:
        """Returns an empty report."""
        del pieces
        return VerifyReport(), []

    def drilled(self, not_since: datetime) -> dict[int, datetime | None]:
        """Returns no days."""
        del not_since
        return {}

    @property
    def place(self) -> str:
        """Returns the collection that is not archived."""
        return self.context.policy.collection

    def drill(self, days: int, seed: int) -> list[DrilledDay]:
        """Returns no days."""
        del days, seed
        check_kind(self.context.database, self.context.policy)
        return []

    def restore(self, options: RestoreOptions) -> RestoreReport:
        """Raises UsageError."""
        check_kind(self.context.database, self.context.policy)
        check_request(self.context, options)
        raise AssertionError("unreachable")
