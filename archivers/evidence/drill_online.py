"""Restore drills of an online archive: the documents that end on a day, brought back and compared."""

from __future__ import annotations

from datetime import datetime

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.evidence.drill import DrilledDay, equal_buckets, sample, summaries_that_differ
from bucketwise.archivers.moving.archive import check_archive
from bucketwise.archivers.reading.online import OnlineReader
from bucketwise.archivers.records.copies import CopyReceipts
from bucketwise.archivers.records.drills import DrilledDays
from bucketwise.archivers.writes.online import archived_source
from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.fields.times import DAY_MS


def drill(context: ArchiveContext, days: int, seed: int) -> list[DrilledDay]:
    """Proves that a sample of archived days can be restored, and records when. Raises DamagedError where the
    archive is not there; drops the scratch collections in any case."""
    check_archive(context.connections, context.policy)
    known, done = DrilledDays(context.receipts, archived_source(context.database, context.policy)), []
    chosen = sample(known.all(), days, seed)
    for number, before in chosen:
        done.append(_drill(context, number, before))
        if done[-1].equal == done[-1].buckets and not done[-1].summaries:
            context.check()
            known.note(number, context.now)
        context.progress("drilled buckets", done[-1].buckets, len(done) / len(chosen))
    return done


def _drill(context: ArchiveContext, number: int, before: datetime | None) -> DrilledDay:
    """Counts a bucket that is gone, or not as its receipt says, as one that differs."""
    start, end = number * DAY_MS, (number + 1) * DAY_MS
    receipts = CopyReceipts(context.database, context.policy, context.keys)
    buckets, equal, spans = 0, 0, list[int]()
    for batch in archived_source(context.database, context.policy).ending(start, end):
        unlike = receipts.unlike(batch)
        sound = batch.take([i for i in range(len(batch)) if i not in unlike])
        buckets += len(batch)
        equal += equal_buckets(context, sound)
        spans += decode(sound, context.policy).spans().ravel().tolist() if len(sound) else []
    buckets += sum(1 for _ in receipts.missing(start, end - 1))
    reader = OnlineReader(context.database, context.policy, keys=context.keys)
    within = (min(spans), max(spans)) if spans and equal == buckets else None  # else they can't be made again
    return DrilledDay(number, 0, buckets, equal, summaries_that_differ(context, reader, within), before)
