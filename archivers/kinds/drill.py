"""Restore drills: archived days are restored into collections of their own, compared, and dropped again.

A drill proves that each file of a commit gives the documents of its manifest, that MongoDB takes them and
gives the same bytes back, and that the summaries of their time equal a recomputation.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

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
from bucketwise.buckets.fields.times import DAY_MS, as_ms
from bucketwise.config.errors import HaltedError
from bucketwise.rollups.calendar.windows import HIGHEST, LOWEST

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
