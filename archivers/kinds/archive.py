"""The interface of all archives, and the archive of a policy that archives nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

import numpy as np

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.format.manifest import Manifest
from bucketwise.archivers.format.names import day
from bucketwise.archivers.moving.archive import check_archive
from bucketwise.archivers.reading.archived import ArchivedReader, OfflineReader, OnlineReader
from bucketwise.archivers.records.copies import CopyReceipts
from bucketwise.archivers.records.pins import CommitDays, DrilledDays
from bucketwise.archivers.records.receipts import commit_of
from bucketwise.archivers.restoring.put import existing_in, put_measurements, repeated
from bucketwise.archivers.upkeep import recompute
from bucketwise.archivers.writes import archived_source, chunks, insert_raw
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.fields.times import DAY_MS, EVER, TimeRange, as_ms
from bucketwise.config.errors import HaltedError
from bucketwise.config.tables import Lake
from bucketwise.rollups.calendar.windows import HIGHEST, LOWEST

if TYPE_CHECKING:
    from bucketwise.archivers.compact import CompactOptions, CompactReport
    from bucketwise.archivers.context import ArchiveContext, ArchiveReport
    from bucketwise.archivers.erasing.kind import ArchivedSeries, NoSeries
    from bucketwise.archivers.expiring.rule import ExpiryReport
    from bucketwise.archivers.format.keys import Keys
    from bucketwise.archivers.format.manifest import Manifest
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

_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class DrilledDay:
    """A UTC day, since 1970, and what was brought back of the commits that begin on it."""

    day: int
    commits: int
    buckets: int
    equal: int
    summaries: int  # summaries that differ from a recomputation
    drilled_before: datetime | None

    @property
    def name(self) -> str:
        """Returns the day as YYYY-MM-DD."""
        return day(self.day * DAY_MS)


def scratch(policy: str) -> tuple[str, str]:
    """Returns the collections where a policy's buckets are brought back, and their overflow."""
    return f"bucketwise_drill.{policy}", f"bucketwise_drill_overflow.{policy}"


def drill(context: ArchiveContext, archive: OfflineArchive, days: int, seed: int) -> list[DrilledDay]:
    """Proves that a sample of archived days can be restored, and records when. Raises HaltedError where a
    file of the archive is not what it was; drops the scratch collections in any case."""
    check_archive(context.connections, context.policy)
    chosen, done = sample(CommitDays(context.receipts).drilled(), days, seed), []
    for it in chosen:
        done.append(_drill(context, archive, *it))
        context.progress("drilled buckets", done[-1].buckets, len(done) / len(chosen))
    return done


def sample(
    drilled: Mapping[int, datetime | None], count: int, seed: int
) -> list[tuple[int, datetime | None]]:
    """Returns `count` days, each with its last drill: days never drilled first, then those whose last drill
    is longest ago. Ties are broken at random, so that every day is drilled in time and no choice can be
    foreseen."""
    chance = random.Random(seed)
    shuffled = sorted(drilled)
    chance.shuffle(shuffled)
    first = sorted(shuffled, key=lambda it: drilled[it] or _NEVER)
    return [(it, drilled[it]) for it in first[:count]]


def _drill(
    context: ArchiveContext, archive: OfflineArchive, number: int, before: datetime | None
) -> DrilledDay:
    known = CommitDays(context.receipts)
    commits = [it for it in map(commit_of, known.commits_of(number)) if it is not None]
    manifests = [archive.current(it) for it in commits]
    equal = sum(equal_buckets(context, held.batch, it) for it in manifests for held in archive.sections(it))
    buckets = sum(it.buckets for it in manifests)
    reader = OfflineReader(context.database, context.policy, archive)  # which has just read them
    times = [as_ms(at) for it in manifests for at in (it.first, it.last)]
    summaries = summaries_that_differ(context, reader, (min(times), max(times)) if times else None)
    if equal == buckets and not summaries:
        context.check()
        known.note_drilled([it.name for it in commits], context.now)
    return DrilledDay(number, len(commits), buckets, equal, summaries, before)


def equal_buckets(context: ArchiveContext, batch: Batch, manifest: Manifest | None = None) -> int:
    """Returns how many of these buckets come back as they are in the archive. `manifest`: of the commit that
    holds them."""
    equal, is_measured = 0, manifest is not None and manifest.timeseries is not None
    for piece in chunks(batch):
        # Measurements may have one `_id`, or none.
        for several in [piece] if is_measured else _without_namesakes(piece):
            context.check()
            _drop(context)
            try:
                equal += _restored_as_archived(context, manifest, several)
            finally:
                _drop(context)
    return equal


def _without_namesakes(piece: Batch) -> Iterator[Batch]:
    """Yields the buckets so that no two have one `_id`: an archive may hold several versions of a bucket."""
    while len(piece):
        later = sorted(repeated(piece.main))
        yield piece.take(np.setdiff1d(np.arange(len(piece)), later))
        piece = piece.take(later)


def _restored_as_archived(context: ArchiveContext, manifest: Manifest | None, piece: Batch) -> int:
    database, (main, overflow) = context.database, scratch(context.policy.identity)
    if manifest is not None and manifest.timeseries is not None:
        database.create_collection(main, timeseries=manifest.timeseries)
        try:
            put_measurements(database, manifest.archived_policy, main, piece.main)
        except HaltedError:
            return 0
        return len(piece)
    wrong: set[int] = set()
    for collection, documents, owner in (
        (main, piece.main, range(len(piece))),
        (overflow, piece.extra, piece.owner.tolist()),
    ):
        insert_raw(database, collection, documents)
        found = existing_in(database, collection, documents) if len(documents) else []
        wrong |= {owner[i] for i, it in enumerate(found) if it != documents[i]}
    return len(piece) - len(wrong)


def _drop(context: ArchiveContext) -> None:
    for name in scratch(context.policy.identity):
        context.database.drop_collection(name)


def summaries_that_differ(
    context: ArchiveContext, archived: ArchivedReader, within: tuple[int, int] | None
) -> int:
    """Returns how many summaries from a first to a last reading (milliseconds; None: there is none) are not
    those of a recomputation."""
    if context.policy.rollup is None or within is None:
        return 0
    report = recompute(context, archived, [(LOWEST, within[0]), (within[1] + 1, HIGHEST)])
    return sum(it.written for it in report.counts.values())


def drill_online(context: ArchiveContext, days: int, seed: int) -> list[DrilledDay]:
    """Proves that a sample of archived days can be restored, and records when. Raises DamagedError where the
    archive is not there; drops the scratch collections in any case."""
    check_archive(context.connections, context.policy)
    known, done = DrilledDays(context.receipts, archived_source(context.database, context.policy)), []
    chosen = sample(known.all(), days, seed)
    for number, before in chosen:
        done.append(_drill_online(context, number, before))
        if done[-1].equal == done[-1].buckets and not done[-1].summaries:
            context.check()
            known.note(number, context.now)
        context.progress("drilled buckets", done[-1].buckets, len(done) / len(chosen))
    return done


def _drill_online(context: ArchiveContext, number: int, before: datetime | None) -> DrilledDay:
    """Counts a bucket that is gone, or not as its receipt says, as one that differs."""
    start, end = number * DAY_MS, (number + 1) * DAY_MS
    receipts = CopyReceipts(context.database, context.policy, context.keys)
    buckets, equal, spans = 0, 0, list[int]()
    for batch in archived_source(context.database, context.policy).ending(start, end):
        unlike = receipts.mismatches(batch)
        sound = batch.take([i for i in range(len(batch)) if i not in unlike])
        buckets += len(batch)
        equal += equal_buckets(context, sound)
        spans += decode(sound, context.policy).spans().ravel().tolist() if len(sound) else []
    buckets += sum(1 for _ in receipts.missing(start, end - 1))
    reader = OnlineReader(context.database, context.policy, keys=context.keys)
    within = (min(spans), max(spans)) if spans and equal == buckets else None  # else they can't be made again
    return DrilledDay(number, 0, buckets, equal, summaries_that_differ(context, reader, within), before)


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


class NeverCompacted:
    """An archive without commits to merge."""

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


@dataclass(frozen=True)
class NoArchive(NeverCompacted):
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
        from bucketwise.archivers.context import ArchiveReport

        del options
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

    def verify_records(self, has_turn: HasTurn | None = None) -> VerifiedRecords:  # noqa: ARG002
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
