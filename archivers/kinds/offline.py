"""The offline archive: parts in a store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from bucketwise.archivers.compacting.compact import CompactOptions, CompactReport, compact, plan_compaction
from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.evidence.drill import DrilledDay, drill
from bucketwise.archivers.expiring.offline import OfflineExpiry
from bucketwise.archivers.expiring.report import ExpiryReport
from bucketwise.archivers.expiring.rule import RetentionRule
from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.format.names import Commit
from bucketwise.archivers.moving.archive import ArchiveOptions, archive, plan_archive, recover
from bucketwise.archivers.moving.dry_run import OfflineDryRun
from bucketwise.archivers.moving.offline import OfflineRun
from bucketwise.archivers.records.days import CommitDays
from bucketwise.archivers.recovering.adoption import verify_forgotten
from bucketwise.archivers.report import ArchiveReport
from bucketwise.archivers.restoring.offline import OfflineCopies
from bucketwise.archivers.restoring.options import RestoreOptions
from bucketwise.archivers.restoring.restore import restore
from bucketwise.archivers.restoring.settle import RestoreReport
from bucketwise.archivers.verifying.offline import verify, verify_commits, verify_records
from bucketwise.archivers.verifying.report import IntactPiece, Piece, VerifiedRecords, VerifyReport
from bucketwise.buckets.fields.times import EVER, TimeRange


@dataclass(frozen=True)
class Offline:
    """The `Archive` of parts in a store."""

    context: ArchiveContext
    held: OfflineArchive

    def recover(self) -> None:
        """Adopts, finishes or removes what earlier runs have begun, once a run."""
        recover(self.context, OfflineRun)

    def adopt(self) -> list[str]:
        """Registers commits whose chain goes on from what the database knows. A receipt records which
        receipts are lost."""
        names = verify_forgotten(self.context, self.held)
        recover(replace(self.context, adopts=True), OfflineRun)
        return names

    def run(self, options: ArchiveOptions) -> ArchiveReport:
        """Archives the expired buckets as commits."""
        return archive(self.context, options, OfflineRun)

    def plan(self, options: ArchiveOptions) -> ArchiveReport:
        """Returns what `run` would do."""
        return plan_archive(self.context, options, OfflineDryRun)

    def compact(self, options: CompactOptions) -> CompactReport:
        """Merges small commits."""
        return compact(self.context, self.held, options)

    def plan_compaction(self, options: CompactOptions) -> CompactReport:
        """Returns what `compact` would do."""
        return plan_compaction(self.context, self.held, options)

    def expire(self) -> ExpiryReport:
        """Expires commits."""
        if self._rule is not None and not self.context.state.is_recovered:
            self.recover()
        return self._expiry(writes=True)

    def plan_expiry(self) -> ExpiryReport:
        """Returns what `expire` would do."""
        return self._expiry(writes=False)

    def _expiry(self, *, writes: bool) -> ExpiryReport:
        rule = self._rule
        return ExpiryReport() if rule is None else OfflineExpiry(self.context, self.held, rule, writes).run()

    @property
    def _rule(self) -> RetentionRule | None:
        return RetentionRule.of(self.context.policy, self.context.now)

    def verify(self, within: TimeRange = EVER) -> VerifyReport:
        """Reads the files of commits."""
        return verify(self.context, self.held, within)

    def verify_records(self) -> VerifiedRecords:
        """Verifies the chain, receipts, and that all files are there."""
        return verify_records(self.context, self.held)

    def verify_pieces(self, pieces: Sequence[Piece]) -> tuple[VerifyReport, list[IntactPiece]]:
        """Reads the files of these commits."""
        commits = [it for it in pieces if isinstance(it, Commit)]
        return verify_commits(self.context, self.held, commits)

    def drilled(self, not_since: datetime) -> dict[int, datetime | None]:
        """Returns the days of commits that were made before then, and not drilled since."""
        return CommitDays(self.context.receipts).drilled(not_since)

    @property
    def place(self) -> str:
        """Returns the URL of the archive."""
        return f"{self.held.store.url}/{self.context.policy.identity}"

    def drill(self, days: int, seed: int) -> list[DrilledDay]:
        """Restores the commits that begin on some days."""
        return drill(self.context, self.held, days, seed)

    def restore(self, options: RestoreOptions) -> RestoreReport:
        """Brings back what commits hold."""
        archive = self.context.offline()  # without a key signatures are not looked at
        assert archive is not None
        return restore(self.context, options, OfflineCopies(self.context, archive))
