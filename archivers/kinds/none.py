"""A policy that archives nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from bucketwise.buckets.fields.times import EVER, TimeRange
from bucketwise.config.tables import Lake

if TYPE_CHECKING:
    from bucketwise.archivers.compact import CompactOptions, CompactReport
    from bucketwise.archivers.context import ArchiveContext
    from bucketwise.archivers.erasing.kind import NoSeries
    from bucketwise.archivers.expiring.rule import ExpiryReport
    from bucketwise.archivers.format.keys import Keys
    from bucketwise.archivers.format.manifest import Manifest
    from bucketwise.archivers.kinds.drill import DrilledDay
    from bucketwise.archivers.kinds.evidence import NoEvidence
    from bucketwise.archivers.lake.records import LakeDifference, LakeReport
    from bucketwise.archivers.moving.archive import ArchiveOptions
    from bucketwise.archivers.report import ArchiveReport
    from bucketwise.archivers.restoring.options import RestoreOptions
    from bucketwise.archivers.restoring.settle import RestoreReport
    from bucketwise.archivers.verifying.report import IntactPiece, Piece, VerifiedRecords, VerifyReport


@dataclass(frozen=True)
class NoArchive:
    """The `Archive` of a policy without one. Receipts may be left of an earlier one."""

    context: ArchiveContext

    def recover(self) -> None:
        """Does nothing."""

    def heads(self) -> list[Manifest]:
        """Returns no manifests."""
        return []

    def check_complete(self) -> None:
        """Does nothing."""

    def check_own(self) -> None:
        """Does nothing."""

    def needs_adoption(self) -> bool:
        """Returns False."""
        return False

    def check_adoptable(self) -> None:
        """Does nothing."""

    def sign(self, keys: Keys) -> int:
        """Returns 0."""
        del keys
        return 0

    def adopt(self) -> list[str]:
        """Returns no commits."""
        return []

    def run(self, options: ArchiveOptions) -> ArchiveReport:
        """Returns an empty report."""
        from bucketwise.archivers.report import ArchiveReport

        del options
        return ArchiveReport("none")

    def plan(self, options: ArchiveOptions) -> ArchiveReport:
        """Returns an empty report."""
        return self.run(options)

    def compact(self, options: CompactOptions) -> CompactReport:
        """Returns an empty report."""
        from bucketwise.archivers.compact import CompactReport

        del options
        return CompactReport()

    def plan_compaction(self, options: CompactOptions) -> CompactReport:
        """Returns an empty report."""
        from bucketwise.archivers.compact import CompactReport

        del options
        return CompactReport(bytes_after=None)

    def expire(self) -> ExpiryReport:
        """Returns an empty report."""
        from bucketwise.archivers.expiring.rule import ExpiryReport

        return ExpiryReport()

    def plan_expiry(self) -> ExpiryReport:
        """Returns an empty report."""
        from bucketwise.archivers.expiring.rule import ExpiryReport

        return ExpiryReport()

    def verify(self, within: TimeRange = EVER) -> VerifyReport:
        """Verifies receipts, where no range is given."""
        from bucketwise.archivers.verifying.report import VerifyReport, verify_receipts

        report = VerifyReport()
        if not within.is_bounded:
            verify_receipts(self.context, report)
        return report

    def verify_records(self) -> VerifiedRecords:
        """Verifies receipts."""
        from bucketwise.archivers.verifying.report import VerifiedRecords

        return VerifiedRecords(self.verify(), [], [])

    def verify_pieces(self, pieces: Sequence[Piece]) -> tuple[VerifyReport, list[IntactPiece]]:
        """Returns an empty report."""
        from bucketwise.archivers.verifying.report import VerifyReport

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
        from bucketwise.archivers.moving.archive import check_kind

        del days, seed
        check_kind(self.context.database, self.context.policy)
        return []

    @property
    def evidence(self) -> NoEvidence:
        """Returns what knows of no copies."""
        from bucketwise.archivers.kinds.evidence import NoEvidence

        return NoEvidence(self.context.policy)

    @property
    def series(self) -> NoSeries:
        """Returns what finds no series."""
        from bucketwise.archivers.erasing.kind import NoSeries

        return NoSeries()

    def lake_differences(self, lake: Lake) -> list[LakeDifference]:
        """Returns none."""
        del lake
        return []

    def sync_lake(self, lake: Lake, *, whole: bool) -> LakeReport:
        """Returns an empty report."""
        from bucketwise.archivers.lake.records import LakeReport

        del lake, whole
        return LakeReport()

    def restore(self, options: RestoreOptions) -> RestoreReport:
        """Raises UsageError."""
        from bucketwise.archivers.moving.archive import check_kind
        from bucketwise.archivers.restoring.options import check_request

        check_kind(self.context.database, self.context.policy)
        check_request(self.context, options)
        raise AssertionError("unreachable")
