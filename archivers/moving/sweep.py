"""Goes through what has expired, in the order of time, and moves it in commits of bounded size."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bucketwise.archivers.moving.filling import MAX_SPAN_MS, Filling
from bucketwise.archivers.moving.selection import Selection
from bucketwise.archivers.moving.valueless import NumericCheck
from bucketwise.archivers.report import NOT_ROLLED_UP
from bucketwise.archivers.run import Archiver, ArchiveRun
from bucketwise.archivers.writes.delete import compare_all, measured
from bucketwise.buckets.bson.cursor import READ_AHEAD_BYTES
from bucketwise.buckets.bson.prefetch import prefetch
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.decoding.decode import BucketSet, restored_among
from bucketwise.buckets.fields.times import DAY_MS, FIRST_MS, LAST_MS
from bucketwise.buckets.source import Source
from bucketwise.rollups.context import share_of

#: Buckets that are decoded first, to tell how many bytes a reading takes.
SAMPLED = 100


class _Expired(NamedTuple):
    start: int  # milliseconds
    stop: int
    batch: Batch  # some of the buckets that end from start to stop


def _expired(source: Source, start: int, end: int) -> Generator[_Expired, None, None]:
    """Yields the expired buckets day by day."""
    at = start
    while (found := source.earliest_ending(at)) is not None and found < end:
        at = max(at, found)  # epoch seconds may round down, to before `at`
        stop = min((at // DAY_MS + 1) * DAY_MS, end)
        yield from (_Expired(at, stop, batch) for batch in source.ending(at, stop))
        at = stop


class Sweep:
    """Goes through the expired buckets day by day, and moves what may go, in commits of bounded size."""

    def __init__(self, work: ArchiveRun, archiver: Archiver, through: int | None, *, rechecks: bool) -> None:
        """`through`: windows that end by then (milliseconds) are rolled up; None: nothing is rolled up.
        `rechecks`: what has changed since it was read stays."""
        self._work = work
        self._archiver = archiver
        self._rechecks = rechecks and through is not None
        self._selection = Selection(work, archiver, through, rechecks=self._rechecks)
        self._filling = Filling(work.executor.memory)
        self._first, self._last = LAST_MS, FIRST_MS
        self._numeric = NumericCheck(work)
        self._done = 0.0  # the share of the expiring time that is done

    def run(self, start: int, end: int) -> None:
        """Moves all that has expired and ends within [start, end), milliseconds."""
        filling, source, begun, first = self._filling, self._work.source, start, None
        source.look_at_texts()
        too_late = source.ending(self._work.plausible.last + 1, LAST_MS + 1)
        for batch in chain(source.untimed(), too_late):
            for decoded in self._work.decode_live(batch):
                self._work.report.quarantine(decoded.quarantined)
        with (
            closing(_expired(source, start, end)) as by_day,
            closing(prefetch(by_day, lambda: True, lambda it: it.batch.size, READ_AHEAD_BYTES)) as expired,
        ):
            for at, stop, batch in expired:
                first = at if first is None else first
                self._work.spend(len(batch), batch.size)
                self._done = share_of(at, (first, end))
                if stop - begun > MAX_SPAN_MS:
                    self._select()
                    self.flush()
                if not filling.is_measured:
                    filling.measure(BucketSet(batch.slice(0, min(SAMPLED, len(batch))), self._work.policy))
                for piece in filling.cut(batch):
                    if filling.is_empty:
                        begun = at
                    filling.add(piece)
                    if filling.is_full:
                        self._select()
        self._select()
        self.flush()
        self._archiver.finish()

    def _select(self) -> None:
        """Decodes and selects the buckets that were read, together: about as many as a commit holds, by their
        size."""
        if (batch := self._filling.take_read()) is None:
            return
        buckets = BucketSet(batch, self._work.policy, self._work.plausible)
        if len(again := restored_among(batch, buckets.decoded, self._work.restored)):
            self.sort(BucketSet(batch.take(again), self._work.policy))
            buckets = buckets.take(np.setdiff1d(np.arange(len(batch)), again))
        self.sort(buckets)
        if self._filling.is_full:
            self.flush()

    def sort(self, buckets: BucketSet) -> None:
        """Adds the buckets that may go to the next commit, and reports why others stay."""
        self._filling.measure(buckets)
        buckets = self._selection.of(buckets)
        if len(buckets):
            times, last = buckets.decoded.columns.time, buckets.decoded.last
            self._first = int(min(self._first, times.min(initial=LAST_MS), last.min()))
            self._last = int(max(self._last, last.max()))
            self._filling.add_selected(buckets)

    def flush(self) -> None:
        """Moves the buckets that were gathered, without those that changed since."""
        first, last = self._first, self._last
        self._first, self._last = LAST_MS, FIRST_MS
        if (buckets := self._filling.take()) is None:
            return
        self._work.check()
        if not len(buckets := self._still_movable(self._without_duplicates(buckets), first, last)):
            return
        readings = buckets.readings  # before they are handed over, and forgotten
        self._archiver.move(buckets)
        self._work.progress("archived readings", readings, self._done)

    def _still_movable(self, buckets: BucketSet, first: int, last: int) -> BucketSet:
        """Returns the buckets that go; together they cover first to last. Reports why the others stay."""
        buckets = buckets.take(self._archiver.not_copied(buckets.batch, first, last))
        if len(buckets) and not self._work.rolled_up(first, last + 1):
            self._work.report.leave(len(buckets), NOT_ROLLED_UP)
            return buckets.take([])
        if len(buckets) and self._rechecks:
            buckets = buckets.take(self._as_rolled_up(buckets.batch, first, last))
        return buckets.take(self._numeric.fitting(buckets)) if len(buckets) else buckets

    def _without_duplicates(self, buckets: BucketSet) -> BucketSet:
        """Returns each bucket once: a cursor gives one twice where its end moves forward meanwhile."""
        if self._work.measured:
            return buckets
        names = buckets.decoded.columns.bucket_order
        if not (names[1:] == names[:-1]).any():
            return buckets
        place = {buckets.batch.main.raw_id(i): i for i in range(len(buckets))}
        return buckets.take(np.array(sorted(place.values())))

    def _as_rolled_up(self, batch: Batch, first: int, last: int) -> NDArray[np.int64]:
        """Returns the buckets that are still live as they were read, now that their windows are rolled up
        again. One that has gone since may be in no summary, and its events have been read: a copy of it would
        be archived without being rolled up."""
        work = self._work
        if work.measured:
            return measured(work.policy, batch, work.source, first, last + 1)
        found = compare_all(work.database, work.policy, batch)
        work.report.change(len(found.changed))
        return np.array(found.deleted, dtype=np.int64)
