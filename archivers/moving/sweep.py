"""Archiving one policy: which buckets go, in which order, into which archive."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pymongo.client_session import ClientSession
from pymongo.database import Database

from archivers.context import NOT_ROLLED_UP, Archiver, ArchiveReport, KnowsRun, RolledUp, Work
from archivers.format.archive import OfflineArchive
from archivers.format.keys import Keys
from archivers.moving.offline import OfflineRun
from archivers.moving.online import OnlineRun
from archivers.moving.valueless import Numeric
from archivers.records.heads import check_all_there, check_heads
from archivers.records.pins import fingerprint
from archivers.records.receipts import Receipts
from archivers.stores.base import ObjectStore
from archivers.tasks import Connections, Executor, LocalExecutor
from archivers.writes.delete import chunks, compare_all, measured
from buckets.bson.cursor import AHEAD
from buckets.bson.prefetch import ahead
from buckets.bson.raw import Batch
from buckets.columns import Quarantined
from buckets.decoding.decode import Decoded, Lot, decode
from buckets.fields.selectors import extended_json
from buckets.fields.times import DAY_MS, FIRST_MS, LAST_MS, as_date, as_ms, as_text
from config.errors import BucketwiseError
from config.policies import USUAL_MEMORY, Policy
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


def archive(
    database: Database[Document],
    policy: Policy,
    now: datetime,
    *,
    store: ObjectStore | None,
    keys: Keys,
    fence: int,
    knows_run: KnowsRun,
    guard: Callable[[ClientSession], None],
    through: int | None,
    rolled_up: RolledUp,
    since: datetime | None = None,
    until: datetime | None = None,
    check: Callable[[], None],
    dry_run: bool = False,
    progress: Callable[[str, int], None],
    executor: Executor | None = None,
) -> ArchiveReport:
    """Archive what has expired.

    `through`: every window that ends at or before it (milliseconds) is rolled up; None: the policy rolls
    nothing up. `rolled_up(start_ms, end_ms)` says whether the summaries of the windows that the range
    touches hold what is there now. Where they don't, the buckets stay.
    `knows_run` tells a run of this database from one that it has forgotten since it was put back.
    """
    assert policy.archive is not None
    report = ArchiveReport(policy.archive.to)
    if policy.archive.to == "none":
        return report
    asked = rolled_up if through is not None else _always
    executor = executor or LocalExecutor(Connections(database, store))
    work = Work(
        database,
        policy,
        now,
        fence,
        guard,
        check,
        progress,
        report,
        dry_run,
        asked,
        keys,
        knows_run,
        executor,
    )
    _check_deletable(work)
    start = FIRST_MS if since is None else as_ms(since)
    end = min(work.cutoff, LAST_MS + 1 if until is None else as_ms(until))
    with closing(_archiver(work, store)) as archiver:
        if not dry_run:
            archiver.recover()
            work.pins.forget()
            archiver.settle(start, end)
        _Sweep(work, archiver, through).run(start, end)
    return report


def _check_deletable(work: Work) -> None:
    """Raises BucketwiseError where a delete would be refused, or a transaction try it for minutes."""
    if work.kept:
        return
    for info in work.source.listed:
        what = "a view" if info["type"] == "view" else "a capped collection"
        if info["type"] == "view" or info["options"].get("capped"):
            raise BucketwiseError(
                f"policy {work.policy.name}: {info['name']} is {what}, and nothing can be deleted from it. "
                "Set archive.delete = false, or name the collection that holds the buckets. Nothing was "
                "archived"
            )


def recover(
    database: Database[Document],
    policy: Policy,
    now: datetime,
    *,
    store: ObjectStore | None,
    keys: Keys,
    fence: int,
    knows_run: KnowsRun,
    guard: Callable[[ClientSession], None],
    check: Callable[[], None],
) -> None:
    """Finish or undo what a crash left, and see that the archive is all there: before anything is rolled up
    from it. Raises HaltedError where it is not."""
    if policy.archive is not None and policy.archive.to != "none":
        report = ArchiveReport(policy.archive.to)
        work = Work(
            database,
            policy,
            now,
            fence,
            guard,
            check,
            _silent,
            report,
            False,
            _always,
            keys,
            knows_run,
            LocalExecutor(Connections(database, store)),
        )
        with closing(_archiver(work, store)) as archiver:
            archiver.recover()


def _always(_start_ms: int, _end_ms: int, *, anew: bool = False) -> bool:
    """Where nothing is rolled up, every summary is as it should be."""
    del anew
    return True


def _silent(_label: str, _count: int) -> None:
    """Recovery has no progress to tell."""


def check_archive(database: Database[Document], policy: Policy, store: ObjectStore | None) -> None:
    """See that all that was archived is where the policy says: it would be missing from every summary.

    Raises BucketwiseError where the policy has archived to another kind of archive, DamagedError where a
    commit is gone, or the store is an older state of what it was. Changes nothing.
    """
    if policy.archive is not None and policy.archive.to == "offline" and store is not None:
        receipts = Receipts(database, policy.name)
        held = OfflineArchive(policy, store, receipts.seal)
        check_heads(receipts, held)
        check_all_there(receipts, held)
    to = policy.archive.to if policy.archive is not None else "none"
    if other := Receipts(database, policy.name).other_kind(to):
        raise BucketwiseError(
            f"policy {policy.name}: buckets lie in its {other} archive, and archive.to says {to!r}: "
            'its summaries could not be told from both. Set archive.to back (archive.after = "forever" ends '
            "archiving), or restore those buckets and start a policy with another name. Nothing was changed"
        )


def _archiver(work: Work, store: ObjectStore | None) -> Archiver:
    if work.archive.to == "online":
        return OnlineRun(work)
    assert store is not None
    return OfflineRun(work, store)


class _Ending(NamedTuple):
    start: int  # milliseconds
    stop: int
    batch: Batch  # some of the buckets that end from start to stop


def _size(found: _Ending) -> int:
    return found.batch.size


class _Sweep:
    """Goes through the expired buckets day by day, and moves what may go in pieces of bounded size."""

    def __init__(self, work: Work, archiver: Archiver, through: int | None) -> None:
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
