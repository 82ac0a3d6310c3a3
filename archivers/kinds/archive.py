"""What every archive owes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from bucketwise.archivers.compacting.compact import CompactOptions, CompactReport
from bucketwise.archivers.evidence.drill import DrilledDay
from bucketwise.archivers.expiring.report import ExpiryReport
from bucketwise.archivers.moving.archive import ArchiveOptions
from bucketwise.archivers.report import ArchiveReport
from bucketwise.archivers.restoring.options import RestoreOptions
from bucketwise.archivers.restoring.settle import RestoreReport
from bucketwise.archivers.verifying.report import IntactPiece, Piece, VerifiedRecords, VerifyReport
from bucketwise.buckets.fields.times import EVER, TimeRange


class Archive(Protocol):
    """The archive of one policy, wherever its copies lie. What only looks changes nothing."""

    def recover(self) -> None:
        """Finishes or undoes what a crash left. Raises HaltedError where the archive is incomplete."""

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

    def verify_records(self) -> VerifiedRecords:
        """Verifies all but the contents of copies. Returns what `verify_pieces` may read."""

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

    def restore(self, options: RestoreOptions) -> RestoreReport:
        """Brings back every bucket that is asked for. Raises UsageError for a target that won't do."""
