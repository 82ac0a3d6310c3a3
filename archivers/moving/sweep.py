"""Archiving one policy: which buckets go, in which order, into which archive."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from archivers.moving.valueless import Numeric
from archivers.records.pins import fingerprint
from archivers.report import NOT_ROLLED_UP
from archivers.run import Archiver, ArchiveRun
from archivers.writes.delete import chunks, compare_all, measured
from buckets.bson.cursor import AHEAD
from buckets.bson.prefetch import ahead
from buckets.bson.raw import Batch
from buckets.columns import Quarantined
from buckets.decoding.decode import Decoded, Lot, decode
from buckets.fields.selectors import extended_json
from buckets.fields.times import DAY_MS, FIRST_MS, LAST_MS, as_date, as_text
from config.policies import USUAL_MEMORY
from rollups.guarded import transaction

#: A commit is closed at about so many readings, or bytes of BSON, where memory is as usual; with twice the
#: memory, at twice as many. At fewer readings where these take more memory: `Lot.cells` has what does.
MAX_READINGS = 900_000
MAX_BYTES = 32_000_000
#: … or a month: sparse readings make few commits, and who asks for a day reads no more than a month.
MAX_SPAN_MS = 31 * DAY_MS
#: Bytes of BSON that a cell takes where it takes few: while no reading was seen.
_LEAST_PER_CELL = 12
#: So many buckets tell how many it is, before all that were read are decoded.
_TELLING = 100

Document = dict[str, Any]


class _Ending(NamedTuple):
    start: int  # milliseconds
    stop: int
    batch: Batch  # some of the buckets that end from start to stop


def _size(found: _Ending) -> int:
    return found.batch.size


class Sweep:
    """Goes through the expired buckets day by day, and moves what may go in pieces of bounded size."""

    def __init__(self, work: ArchiveRun, archiver: Archiver, through: int | None) -> None:
        self._work = work
        self._archiver = archiver
        self._through = through
        self._pending: list[Lot] = []
        self._read: list[Batch] = []
        self._per_cell: float | None = None
        self._share = work.executor.memory / USUAL_MEMORY
        self._first, self._last = LAST_MS, FIRST_MS
        self._numeric = Numeric(work)

    def run(self, start: int, end: int) -> None:
        source, report = self._work.source, self._work.report
        begun = start
        with (
            closing(self._expired(start, end)) as by_day,
            closing(ahead(by_day, lambda: True, _size, AHEAD)) as expired,
        ):
            for at, stop, batch in expired:
                if stop - begun > MAX_SPAN_MS:
                    self._sort_read()
                    self._flush()
                if self._per_cell is None:
                    self._see(Lot(batch.slice(0, min(_TELLING, len(batch))), self._work.policy))
                for piece in self._cut(batch):
                    if not (self._read or self._pending):
                        begun = at
                    self._read.append(piece)
                    if self._room() <= 0:
                        self._sort_read()
        self._sort_read()
        self._flush()
        self._archiver.finish()
        if self._work.dry_run and (young := source.count_ending(max(start, end), LAST_MS + 1)):
            edge = as_text(as_date(end))
            report.reasons[f"not expired: the last reading is not before {edge}"] += young
        for batch in source.strays():
            report.quarantine(decode(batch, self._work.policy).quarantined)

    def _expired(self, start: int, end: int) -> Generator[_Ending, None, None]:
        """Day by day."""
        source, at = self._work.source, start
        while (found := source.earliest_ending(at)) is not None and found < end:
            at = max(at, found)  # epoch seconds may round down, to before `at`
            stop = min((at // DAY_MS + 1) * DAY_MS, end)
            yield from (_Ending(at, stop, batch) for batch in source.ending(at, stop))
            at = stop

    def _see(self, lot: Lot) -> None:
        if lot.readings:  # else it tells nothing
            self._per_cell = lot.batch.size / lot.cells

    def _cut(self, batch: Batch) -> Iterator[Batch]:
        """Where it would make more than a commit: into pieces that each fill the one that is begun."""
        at, count = 0, len(batch)
        is_much = batch.size > MAX_READINGS * self._share * (self._per_cell or _LEAST_PER_CELL)
        while at < len(batch):
            if is_much:
                count = max(1, math.ceil(self._room() / batch.size * len(batch)))
            yield batch.slice(at, min(at + count, len(batch)))
            at += count

    def _room(self) -> float:
        """So many bytes more, as far as is known, fill the commit that is begun."""
        size = sum(lot.batch.size for lot in self._pending)
        cells = sum(lot.cells for lot in self._pending)
        per_cell = self._per_cell or _LEAST_PER_CELL
        room = min(MAX_BYTES * self._share - size, (MAX_READINGS * self._share - cells) * per_cell)
        return room - sum(batch.size for batch in self._read)

    def _sort_read(self) -> None:
        """What makes a commit is decoded at once, as far as its size tells how many readings it holds."""
        if self._read:
            batch, self._read = Batch.concat(self._read), []
            self._sort(batch)
            if self._room() <= 0:
                self._flush()

    def _sort(self, batch: Batch) -> None:
        """Into what goes, and what stays for which reason."""
        lot, report = Lot(batch, self._work.policy), self._work.report
        decoded = lot.decoded
        self._see(lot)
        report.quarantine(decoded.quarantined)
        expired = decoded.last < self._work.cutoff
        expired &= ~self._pinned(batch, decoded, expired)
        ready = expired if self._through is None else expired & (decoded.last < self._through)
        report.leave(int((expired & ~ready).sum()), "its windows are not rolled up yet")
        going = np.sort(decoded.units[ready & self._fitting(decoded, batch)])
        if not len(going):
            return
        lot = lot.take(going)
        times, last = lot.decoded.columns.time, lot.decoded.last
        self._first = int(min(self._first, times.min(initial=LAST_MS), last.min()))
        self._last = int(max(self._last, last.max()))
        self._pending.append(lot)

    def _pinned(self, batch: Batch, decoded: Decoded, expired: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Of the expired buckets: those that were restored, and stay since they are pinned."""
        work, pins = self._work, self._work.pins.of(batch)
        pinned = expired & np.isin(decoded.units, list(pins))
        for i in decoded.units[pinned].tolist():
            work.report.leave(1, pins[i].reason)
        if self._through is not None and not work.dry_run:
            ready = decoded.units[pinned & (decoded.last < self._through)]
            changed = [i for i in ready.tolist() if fingerprint(batch, i) != pins[i].seen]
            if changed:
                spans = [pins[i].span for i in changed if pins[i].span]
                self._follow(batch.take(np.array(changed, dtype=np.int64)), spans)
        return pinned

    def _follow(self, changed: Batch, before: list[list[int]]) -> None:
        """Others are rolled up again on their way to the archive; pinned ones have to be here. What was in
        their spans before may be gone."""
        work, now = self._work, decode(changed, self._work.policy).spans().tolist()
        times = [time for span in (*before, *now) for time in span]
        if work.rolled_up(min(times), max(times) + 1):
            for piece in chunks(changed):
                transaction(work.database, work.guard, partial(work.pins.saw, piece))

    def _fitting(self, decoded: Decoded, batch: Batch) -> NDArray[np.bool_]:
        """Buckets whose series the archive can hold; the others are quarantined."""
        columns, policy = decoded.columns, self._work.policy
        misfits = {i: self._archiver.misfit(series) for i, series in enumerate(columns.series)}
        fits = np.ones(len(decoded.units), dtype=np.bool_)
        if not any(misfits.values()):
            return fits
        for i, found in misfits.items():
            if found is None:
                continue
            for position in np.flatnonzero(columns.holds(np.arange(len(columns.series)) == i)).tolist():
                fits[position] = False
                identity = batch.main.legible_id(int(decoded.units[position]))
                value = extended_json(found[1])
                reason = f"the archive of policy {policy.name} has a column of another type than {value}"
                self._work.report.quarantine([Quarantined(identity, found[0], reason)])
        return fits

    def _flush(self) -> None:
        if not self._pending:
            return
        work, lot = self._work, self._latest(Lot.concat(self._pending))
        first, last = self._first, self._last
        self._pending = []
        self._first, self._last = LAST_MS, FIRST_MS
        work.check()
        lot = lot.take(self._archiver.fresh(lot.batch, first, last))
        if not len(lot):
            return
        if not work.rolled_up(first, last + 1):
            work.report.leave(len(lot), NOT_ROLLED_UP)
            return
        if self._through is not None and not work.dry_run:
            lot = lot.take(self._as_rolled_up(lot.batch, first, last))
            if not len(lot):
                return
        lot = lot.take(self._numeric.fitting(lot))
        if not len(lot):
            return
        buckets, readings = len(lot), lot.readings
        if work.dry_run:
            self._foresee(buckets)
        else:
            self._archiver.move(lot)
        work.report.buckets += buckets
        work.report.readings += readings
        work.progress("archived readings", readings)

    def _latest(self, lot: Lot) -> Lot:
        """Each bucket once: a cursor gives one twice where its end moves forward meanwhile."""
        if self._work.measured:
            return lot
        names = lot.decoded.columns.bucket_order
        if not (names[1:] == names[:-1]).any():
            return lot
        place = {lot.batch.main.raw_id(i): i for i in range(len(lot))}
        return lot.take(np.array(sorted(place.values())))

    def _as_rolled_up(self, batch: Batch, first: int, last: int) -> NDArray[np.int64]:
        """What is live as it was read, now that its windows are up to date. What went before may be in no
        summary, and what is told of it has been read: with a copy it would be archived and not rolled up."""
        work = self._work
        if work.measured:
            return measured(work.policy, batch, work.source, first, last + 1)
        found = compare_all(work.database, work.policy, batch)
        work.report.change(len(found.changed))
        return np.array(found.deleted, dtype=np.int64)

    def _foresee(self, count: int) -> None:
        """What would become of buckets once they are copied."""
        work = self._work
        if waits := work.waits(work.now):
            work.report.leave(count, waits)
        else:
            work.report.deleted += count
