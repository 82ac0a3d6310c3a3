"""The online archive: collections of the same database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from archivers.compacting.compact import CompactOptions, CompactReport
from archivers.context import ArchiveContext
from archivers.evidence.drill import DrilledDay
from archivers.expiring.online import OnlineExpiry
from archivers.expiring.report import ExpiryReport
from archivers.expiring.rule import RetentionRule
from archivers.format.names import Commit
from archivers.moving.archive import (
    ArchiveOptions,
    archive,
    check_kind,
    plan_archive,
    recover,
)
from archivers.moving.dry_run import OnlineDryRun
from archivers.moving.online import OnlineRun
from archivers.report import ArchiveReport
from archivers.restoring.online import OnlineCopies
from archivers.restoring.options import RestoreOptions
from archivers.restoring.restore import restore
from archivers.restoring.settle import RestoreReport
from archivers.verifying.online import verify, verify_beside, verify_heads
from archivers.verifying.report import IntactCommit, VerifiedRecords, VerifyReport
from buckets.fields.times import EVER, TimeRange


@dataclass(frozen=True)
class Online:
    """The `Archive` of collections."""

    context: ArchiveContext

    def recover(self) -> None:
        """Makes the collections: a crash leaves nothing half done."""
        recover(self.context, OnlineRun)

    def adopt(self) -> list[str]:
        """Returns no commits: the archive lies in the database itself."""
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
        """Verifies heads, kept versions and receipts."""
        report = VerifyReport()
        verify_heads(self.context, report)
        is_damaged = bool(report.bad)
        verify_beside(self.context, report)
        return VerifiedRecords(report, [], [], is_gone=is_damaged)

    def verify_commits(self, commits: Sequence[Commit]) -> tuple[VerifyReport, list[IntactCommit]]:
        """Returns an empty report."""
        del commits
        return VerifyReport(), []

    def drill(self, days: int, seed: int) -> list[DrilledDay]:
        """Returns no days."""
        del days, seed
        check_kind(self.context.database, self.context.policy)
        return []

    def restore(self, options: RestoreOptions) -> RestoreReport:
        """Brings back what the collections hold."""
        return restore(self.context, options, OnlineCopies(self.context))
