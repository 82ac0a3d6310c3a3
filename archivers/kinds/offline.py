"""The offline archive: parts in a store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from bucketwise.buckets.fields.times import EVER, TimeRange
from bucketwise.config.tables import Lake

if TYPE_CHECKING:
    from bucketwise.archivers.compact import CompactOptions, CompactReport
    from bucketwise.archivers.context import ArchiveContext
    from bucketwise.archivers.erasing.offline import OfflineSeries
    from bucketwise.archivers.expiring.rule import ExpiryReport, RetentionRule
    from bucketwise.archivers.format.archive import OfflineArchive
    from bucketwise.archivers.format.keys import Keys
    from bucketwise.archivers.format.manifest import Manifest
    from bucketwise.archivers.kinds.drill import DrilledDay
    from bucketwise.archivers.kinds.offline_evidence import OfflineEvidence
    from bucketwise.archivers.lake.records import LakeDifference, LakeReport
    from bucketwise.archivers.moving.archive import ArchiveOptions
    from bucketwise.archivers.report import ArchiveReport
    from bucketwise.archivers.restoring.options import RestoreOptions
    from bucketwise.archivers.restoring.settle import RestoreReport
    from bucketwise.archivers.verifying.report import IntactPiece, Piece, VerifiedRecords, VerifyReport


@dataclass(frozen=True)
class Offline:
    """The `Archive` of parts in a store."""

    context: ArchiveContext
    held: OfflineArchive

    def recover(self) -> None:
        """Adopts, finishes or removes what earlier runs have begun, once a run."""
        from bucketwise.archivers.moving.archive import recover
        from bucketwise.archivers.moving.offline import OfflineRun

        recover(self.context, OfflineRun)

    @cached_property
    def _readable(self) -> OfflineArchive:
        """Returns the archive for whoever only reads: without a key in the file, by seals alone."""
        return self.context.offline()

    def heads(self) -> list[Manifest]:
        """Verifies that the store holds the last manifests, and what was found damaged. Returns them."""
        from bucketwise.archivers.records.heads import check_heads

        return check_heads(self.context.receipts, self.held, goes_on=True).manifests

    def check_complete(self) -> None:
        """Lists the commits."""
        from bucketwise.archivers.records.heads import check_all_present, check_none_reappeared

        check_none_reappeared(self.context.receipts, self.held)
        check_all_present(self.context.receipts, self.held, adopts=False)

    def check_own(self) -> None:
        """Lists the commits and their files."""
        from bucketwise.archivers.records.registry import check_own

        check_own(self.context.receipts, self.held, self.context.known_fences)

    def needs_adoption(self) -> bool:
        """Returns whether commits go on from what the database knows, or name receipts that it lacks."""
        from bucketwise.archivers.verifying.offline import is_forgotten

        return is_forgotten(self.context, self.held)

    def check_adoptable(self) -> None:
        """Reads all commits that lie in the store."""
        from bucketwise.archivers.verifying.offline import check_adoptable

        check_adoptable(self.context, self.held)

    def sign(self, keys: Keys) -> int:
        """Signs manifests and the last checkpoint."""
        from bucketwise.archivers.recovering.signing import sign_manifests

        return sign_manifests(self.context, self.held, keys)

    def adopt(self) -> list[str]:
        """Registers commits whose chain goes on from what the database knows. A receipt records which
        receipts are lost."""
        from bucketwise.archivers.moving.archive import recover
        from bucketwise.archivers.moving.offline import OfflineRun
        from bucketwise.archivers.verifying.offline import verify_forgotten

        names = verify_forgotten(self.context, self.held)
        recover(replace(self.context, adopts=True), OfflineRun)
        return names

    def run(self, options: ArchiveOptions) -> ArchiveReport:
        """Archives the expired buckets as commits."""
        from bucketwise.archivers.moving.archive import archive
        from bucketwise.archivers.moving.offline import OfflineRun

        return archive(self.context, options, OfflineRun)

    def plan(self, options: ArchiveOptions) -> ArchiveReport:
        """Returns what `run` would do."""
        from bucketwise.archivers.moving.archive import plan_archive
        from bucketwise.archivers.moving.offline import OfflineDryRun

        return plan_archive(self.context, options, OfflineDryRun)

    def compact(self, options: CompactOptions) -> CompactReport:
        """Merges small commits."""
        from bucketwise.archivers.compact import compact

        return compact(self.context, self.held, options)

    def plan_compaction(self, options: CompactOptions) -> CompactReport:
        """Returns what `compact` would do."""
        from bucketwise.archivers.compact import plan_compaction

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
        from bucketwise.archivers.expiring.offline import OfflineExpiry
        from bucketwise.archivers.expiring.rule import ExpiryReport

        rule = self._rule
        return ExpiryReport() if rule is None else OfflineExpiry(self.context, self.held, rule, writes).run()

    @property
    def _rule(self) -> RetentionRule | None:
        from bucketwise.archivers.expiring.rule import RetentionRule

        return RetentionRule.of(self.context.policy, self.context.now)

    def verify(self, within: TimeRange = EVER) -> VerifyReport:
        """Reads the files of commits."""
        from bucketwise.archivers.verifying.offline import verify

        return verify(self.context, self.held, within)

    def verify_records(self) -> VerifiedRecords:
        """Verifies the chain, receipts, and that all files are there."""
        from bucketwise.archivers.verifying.offline import verify_records

        return verify_records(self.context, self.held)

    def verify_pieces(self, pieces: Sequence[Piece]) -> tuple[VerifyReport, list[IntactPiece]]:
        """Reads the files of these commits."""
        from bucketwise.archivers.format.names import Commit
        from bucketwise.archivers.verifying.offline import verify_commits

        commits = [it for it in pieces if isinstance(it, Commit)]
        return verify_commits(self.context, self.held, commits)

    def drilled(self, not_since: datetime) -> dict[int, datetime | None]:
        """Returns the days of commits that were made before then, and not drilled since."""
        from bucketwise.archivers.records.pins import CommitDays

        return CommitDays(self.context.receipts).drilled(not_since)

    @property
    def place(self) -> str:
        """Returns the URL of the archive."""
        return f"{self.held.store.url}/{self.context.policy.identity}"

    def drill(self, days: int, seed: int) -> list[DrilledDay]:
        """Restores the commits that begin on some days."""
        from bucketwise.archivers.kinds.drill import drill

        return drill(self.context, self.held, days, seed)

    @property
    def evidence(self) -> OfflineEvidence:
        """Returns what manifests, receipts and commits tell."""
        from bucketwise.archivers.kinds.offline_evidence import OfflineEvidence

        return OfflineEvidence(self.context, self._readable)

    @property
    def series(self) -> OfflineSeries:
        """Returns what rewrites commits without a series."""
        from bucketwise.archivers.erasing.offline import OfflineSeries

        return OfflineSeries(self.held)

    def lake_differences(self, lake: Lake) -> list[LakeDifference]:
        """Compares the table's files with parts. Raises ImportError without pyiceberg."""
        from bucketwise.archivers.lake.sync import differences

        return list(differences(self.context, self._readable, lake))

    def sync_lake(self, lake: Lake, *, whole: bool) -> LakeReport:
        """Registers parts. Raises ImportError without pyiceberg, LakeError where the catalog forbids it."""
        from bucketwise.archivers.lake.sync import sync

        return sync(self.context, self.held, lake, whole=whole)

    def restore(self, options: RestoreOptions) -> RestoreReport:
        """Brings back what commits hold."""
        from bucketwise.archivers.restoring.offline import OfflineCopies
        from bucketwise.archivers.restoring.restore import restore

        return restore(self.context, options, OfflineCopies(self.context, self._readable))
