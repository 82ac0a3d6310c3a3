"""The interface of all archives, and the archive of a policy that archives nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from bucketwise.buckets.fields.times import EVER, TimeRange
from bucketwise.config.tables import Lake

if TYPE_CHECKING:
    from bucketwise.archivers.compact import CompactOptions, CompactReport
    from bucketwise.archivers.context import ArchiveContext, ArchiveReport
    from bucketwise.archivers.erasing.kind import ArchivedSeries, NoSeries
    from bucketwise.archivers.expiring.rule import ExpiryReport
    from bucketwise.archivers.format.keys import Keys
    from bucketwise.archivers.format.manifest import Manifest
    from bucketwise.archivers.kinds.drill import DrilledDay
    from bucketwise.archivers.kinds.evidence import Evidence, NoEvidence
    from bucketwise.archivers.lake.records import LakeDifference, LakeReport
    from bucketwise.archivers.moving.archive import ArchiveOptions
    from bucketwise.archivers.restoring.options import RestoreOptions
    from bucketwise.archivers.restoring.settle import RestoreReport
    from bucketwise.archivers.verifying.report import (
        HasTurn,
        IntactPiece,
        Piece,
        VerifiedRecords,
        VerifyReport,
    )


class Archive(Protocol):
    """The archive of one policy, wherever its copies lie. What only looks changes nothing."""

    def recover(self) -> None:
        """Finishes or undoes what a crash left. Raises HaltedError where the archive is incomplete."""

    def heads(self) -> list[Manifest]:
        """Verifies that the archive goes on from where it was left. Returns the last manifests of its chain;
        none without a chain. Raises HaltedError where a run would halt."""

    def check_complete(self) -> None:
        """Raises HaltedError where records name copies that are not there, or that were ended are back."""

    def check_own(self) -> None:
        """Raises HaltedError where copies lie there that no run of this database has made."""

    def needs_adoption(self) -> bool:
        """Returns whether the database has forgotten something of the archive, or has it otherwise."""

    def check_adoptable(self) -> None:
        """Verifies what `adopt` would take over. Raises HaltedError where it is damaged."""

    def sign(self, keys: Keys) -> int:
        """Signs all that vouches for copies, besides receipts, by the first of these keys. Returns how many
        manifests it has not signed before."""

    def adopt(self) -> list[str]:
        """Registers what the database has forgotten of the archive, since it was restored from a backup, once
        it is verified. Returns the names of the commits."""

    def run(self, options: ArchiveOptions) -> ArchiveReport:
        """Archives the expired buckets. Returns what was done, and how many stay, by reason."""

    def plan(self, options: ArchiveOptions) -> ArchiveReport:
        """Returns what `run` would do."""

    def compact(self, options: CompactOptions) -> CompactReport:
        """Makes the archive cheaper to read. Returns what was done."""

    def plan_compaction(self, options: CompactOptions) -> CompactReport:
        """Returns what `compact` would do, as far as records tell."""

    def expire(self) -> ExpiryReport:
        """Puts tombstones on what is past `retain.archive`, and removes what has had one for long enough.
        Returns what was done. Raises HaltedError where the archive is damaged."""

    def plan_expiry(self) -> ExpiryReport:
        """Returns what `expire` would do."""

    def verify(self, within: TimeRange = EVER) -> VerifyReport:
        """Reads all copies that touch the range, which have to be what was archived. Without a range also all
        records of the archive."""

    def verify_records(self, has_turn: HasTurn | None = None) -> VerifiedRecords:
        """Verifies all but the contents of copies. Returns what `verify_pieces` may read. `has_turn`: of
        which pieces the store's records are read as well, where the database tells enough of the others."""

    def verify_pieces(self, pieces: Sequence[Piece]) -> tuple[VerifyReport, list[IntactPiece]]:
        """Reads all copies of these, as `verify` does. Also returns the undamaged ones."""

    def drilled(self, not_since: datetime) -> dict[int, datetime | None]:
        """Returns the archived UTC days, since 1970, that were not drilled since then; each with its last
        drill."""

    @property
    def place(self) -> str:
        """Returns where the archive is, for messages."""

    def drill(self, days: int, seed: int) -> list[DrilledDay]:
        """Proves that a sample of archived days can be restored, and records when. Raises HaltedError where
        a copy is not what it was."""

    @property
    def evidence(self) -> Evidence:
        """Returns what the archive tells of its copies."""

    @property
    def series(self) -> ArchivedSeries:
        """Returns what erases series from the archive."""

    def lake_differences(self, lake: Lake) -> list[LakeDifference]:
        """Returns how the archive's Iceberg table differs from it."""

    def sync_lake(self, lake: Lake, *, whole: bool) -> LakeReport:
        """Registers in the archive's Iceberg table what it lacks. `whole`: whatever it lists is compared."""

    def restore(self, options: RestoreOptions) -> RestoreReport:
        """Brings back every bucket that is asked for. Raises UsageError for a target that won't do."""


class WithoutCommits:
    """An archive that has no commits: none to list, to sign, to merge, or to name in a table."""

    def check_complete(self) -> None:
        """Does nothing."""

    def check_own(self) -> None:
        """Does nothing."""

    def check_adoptable(self) -> None:
        """Does nothing."""

    def sign(self, keys: Keys) -> int:
        """Returns 0."""
        return 0

    def compact(self, options: CompactOptions) -> CompactReport:
        """Returns an empty report."""
        from bucketwise.archivers.compact import CompactReport

        return CompactReport()

    def plan_compaction(self, options: CompactOptions) -> CompactReport:
        """Returns an empty report."""
        from bucketwise.archivers.compact import CompactReport

        return CompactReport(bytes_after=None)

    def lake_differences(self, lake: Lake) -> list[LakeDifference]:
        """Returns none."""
        return []

    def sync_lake(self, lake: Lake, *, whole: bool) -> LakeReport:
        """Returns an empty report."""
        from bucketwise.archivers.lake.records import LakeReport

        return LakeReport()


@dataclass(frozen=True)
class NoArchive(WithoutCommits):
    """The `Archive` of a policy without one. Receipts may be left of an earlier one."""

    context: ArchiveContext

    def recover(self) -> None:
        """Does nothing."""

    def heads(self) -> list[Manifest]:
        """Returns no manifests."""
        return []

    def needs_adoption(self) -> bool:
        """Returns False."""
        return False

    def adopt(self) -> list[str]:
        """Returns no commits."""
        return []

    def run(self, options: ArchiveOptions) -> ArchiveReport:
        """Returns an empty report."""
        from bucketwise.archivers.context import ArchiveReport

        return ArchiveReport("none")

    def plan(self, options: ArchiveOptions) -> ArchiveReport:
        """Returns an empty report."""
        return self.run(options)

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

    def verify_records(self, has_turn: HasTurn | None = None) -> VerifiedRecords:
        """Verifies receipts."""
        from bucketwise.archivers.verifying.report import VerifiedRecords

        return VerifiedRecords(self.verify(), [], [])

    def verify_pieces(self, pieces: Sequence[Piece]) -> tuple[VerifyReport, list[IntactPiece]]:
        """Returns an empty report."""
        from bucketwise.archivers.verifying.report import VerifyReport

        return VerifyReport(), []

    def drilled(self, not_since: datetime) -> dict[int, datetime | None]:
        """Returns no days."""
        return {}

    @property
    def place(self) -> str:
        """Returns the collection that is not archived."""
        return self.context.policy.collection

    def drill(self, days: int, seed: int) -> list[DrilledDay]:
        """Returns no days."""
        from bucketwise.archivers.moving.archive import check_kind

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

    def restore(self, options: RestoreOptions) -> RestoreReport:
        """Raises UsageError."""
        from bucketwise.archivers.moving.archive import check_kind
        from bucketwise.archivers.restoring.options import check_request

        check_kind(self.context.database, self.context.policy)
        check_request(self.context, options)
        raise AssertionError("unreachable")
