"""Goes through what has expired, in the order of time, and moves it in commits of bounded size.

Buckets that hold no number in a value field, on a day of a series that had some, stay: it may be renamed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from bson.datetime_ms import DatetimeMS
from bson.max_key import MaxKey
from bson.min_key import MinKey
from numpy.typing import NDArray
from pymongo.database import Database

from bucketwise.archivers import decisions
from bucketwise.archivers.context import NOT_ROLLED_UP, Valueless
from bucketwise.archivers.records.pins import Pin, fingerprint
from bucketwise.archivers.run import Archiver, ArchiveRun
from bucketwise.archivers.writes import chunks, compare_all, measured
from bucketwise.buckets.bson.cursor import READ_AHEAD_BYTES, SIMPLE, prefetch
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.columns import Columns, Quarantined, Series, ValueKind
from bucketwise.buckets.decoding.decode import BucketSet, Decoded, decode, restored_among
from bucketwise.buckets.decoding.soundness import last_plausible
from bucketwise.buckets.fields.selectors import extended_json
from bucketwise.buckets.fields.times import DAY_MS, FIRST_MS, LAST_MS
from bucketwise.buckets.models import model_of
from bucketwise.buckets.models.series import series_key
from bucketwise.buckets.rules import Due
from bucketwise.buckets.source import Source
from bucketwise.config.policies import Policy
from bucketwise.config.tables import USUAL_MEMORY
from bucketwise.rollups.calendar.levels import Level, base_levels, levels_of
from bucketwise.rollups.context import share_of, transaction
from bucketwise.rollups.summaries import documents

Document = dict[str, Any]
#: Series that one query asks for.
_BATCH_SIZE = 100


class NumericHistory:
    """Answers one run's questions to its summaries. What a series ever had is looked up once."""

    def __init__(self, database: Database[Document], policy: Policy) -> None:
        self._database = database
        self._policy = policy
        self._levels = levels_of(policy)
        self._fields_ever: dict[bytes, set[str]] = {}

    def fields_ever(self, wanted: Mapping[bytes, Series]) -> Mapping[bytes, set[str]]:
        """Returns the value fields in which each of these series, by their keys, had a finite number ever."""
        new = [series for key, series in wanted.items() if key not in self._fields_ever]
        self._fields_ever |= {series_key(series): set() for series in new}
        if self._levels:  # the fewest; but the current week or month has none
            for key, _, names in self._numeric(base_levels(self._levels)[-1], new, MinKey(), MaxKey()):
                self._fields_ever.setdefault(key, set()).update(names)
        return {key: self._fields_ever[key] for key in wanted}

    def days(self, wanted: Collection[Series], first_ms: int, last_ms: int) -> set[tuple[bytes, int, str]]:
        """Returns on which UTC days (since 1970) from first to last these series had some, and where."""
        low, high = (DatetimeMS(day * DAY_MS) for day in (first_ms // DAY_MS, last_ms // DAY_MS + 1))
        return {
            (key, day, name)
            for level in self._levels
            if _is_within_one_day(level)
            for key, day, names in self._numeric(level, list(wanted), low, high, by_day=True)
            for name in names
        }

    def _numeric(
        self, level: Level, wanted: Sequence[Series], low: object, high: object, *, by_day: bool = False
    ) -> Iterator[tuple[bytes, int, set[str]]]:
        """Yields each series' key, a day (0 where all are taken together), and the value fields that had
        numbers."""
        summaries = self._database.get_collection(level.collection, codec_options=documents.OPTIONS)
        day: Any = {"$floor": {"$divide": [{"$toLong": "$start"}, DAY_MS]}} if by_day else {"$literal": 0}
        names = self._policy.value_names
        numeric = {f"f{i}": {"$max": {"$gt": [f"${name}.count", 0]}} for i, name in enumerate(names)}
        for at in range(0, len(wanted), _BATCH_SIZE):
            spans = [self._span(series, low, high) for series in wanted[at : at + _BATCH_SIZE]]
            group = {"_id": {"series": "$_id.series", "day": day}, **numeric}
            stages: list[Document] = [{"$match": {"$or": spans}}, {"$group": group}]
            for found in summaries.aggregate(stages, collation=SIMPLE):
                series = documents.series_of(self._policy, found)
                filled = {name for i, name in enumerate(names) if found[f"f{i}"]}
                yield series_key(series), int(found["_id"]["day"]), filled

    def _span(self, series: Series, low: object, high: object) -> Document:
        """Returns a query for the summaries of a series: their `_id`s lie together."""
        held = documents.series_document(self._policy, series)
        return {
            "_id": {"$gte": {"series": held, "start": low}, "$lt": {"series": held, "start": high}},
        }


def _is_within_one_day(level: Level) -> bool:
    """Returns whether each window lies in one UTC day."""
    return level.step is not None or (level.name == "daily" and level.zone.key == "UTC" and not level.local)


Integers = NDArray[np.int64]


class EmptyDay(NamedTuple):
    """Some readings of a series on one day, none of which holds a finite number in a field."""

    field: str
    series: int  # index into columns.series
    day: int  # since 1970, UTC
    had_some: bool  # the same series, on another day


class ReadingsByDay:
    """The readings of some columns, at least one, in cells: one for each series and UTC day."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        days = columns.time // DAY_MS
        self._first = int(days.min())
        self._count = int(days.max()) - self._first + 1
        series = columns.series_of_readings.astype(np.int64)
        keys = series * self._count + (days - self._first)
        self._cells, self._cell = np.unique(keys, return_inverse=True)

    def empty_days(self, names: Iterable[str]) -> list[EmptyDay]:
        """Returns the cells without a finite number, field by field."""
        found = []
        series, day = np.divmod(self._cells, self._count)
        for name in names:
            finite = self._columns.kinds[name] == ValueKind.FINITE
            counts = np.bincount(self._cell[finite], minlength=len(self._cells))
            by_series = np.bincount(series, counts)
            for at in np.flatnonzero(counts == 0).tolist():
                of = int(series[at])
                found.append(EmptyDay(name, of, int(day[at]) + self._first, bool(by_series[of])))
        return found

    def buckets(self, empty_days: Iterable[EmptyDay]) -> Integers:
        """Returns the buckets with a reading in one of these cells."""
        keys = np.array([it.series * self._count + it.day - self._first for it in empty_days], dtype=np.int64)
        held = np.isin(self._cells, keys)[self._cell]
        return np.unique(self._columns.bucket[held]).astype(np.int64)


class NumericCheck:
    """Decides which buckets may be copied: those with a number where there should be one."""

    def __init__(self, work: ArchiveRun) -> None:
        self._work = work
        self._summaries = NumericHistory(work.database, work.policy)

    def fitting(self, buckets: BucketSet) -> Integers:
        """Returns the indices of the buckets that may go; the others are reported."""
        columns, names = buckets.decoded.columns, self._work.policy.numeric_names
        slotless = slotless_buckets(buckets)
        if names and len(slotless):
            return self._without_slotless(buckets, slotless)
        if all((columns.kinds[name] == ValueKind.FINITE).all() for name in names):
            return np.arange(len(buckets))
        days = ReadingsByDay(columns)
        held = self._confirmed(columns, days.empty_days(names))
        staying = buckets.decoded.units[days.buckets(held)]
        reported = [Valueless(it.field, columns.series[it.series], it.day) for it in held]
        self._work.report.hold(len(staying), reported)
        return np.setdiff1d(np.arange(len(buckets)), staying)

    def _without_slotless(self, buckets: BucketSet, slotless: Integers) -> Integers:
        """Does the same where some buckets, given by their places in the columns, lack all of their slots."""
        columns, name = buckets.decoded.columns, self._work.policy.numeric_names[0]
        series = columns.bucket_series[slotless].tolist()
        days = (buckets.decoded.last[slotless] // DAY_MS).tolist()
        reported = dict.fromkeys(zip(series, days, strict=True))
        self._work.report.hold(
            len(slotless), [Valueless(name, columns.series[one], day) for one, day in reported]
        )
        others = np.setdiff1d(np.arange(len(buckets)), buckets.decoded.units[slotless])
        return others[self.fitting(buckets.take(others))] if len(others) else others

    def _confirmed(self, columns: Columns, empty_days: list[EmptyDay]) -> list[EmptyDay]:
        """Returns the days without a number in summaries as well, of series that had some: what was read may
        be a part of the day, and of the series."""
        keys = {it.series: series_key(columns.series[it.series]) for it in empty_days}
        had = self._summaries.fields_ever(
            {keys[it.series]: columns.series[it.series] for it in empty_days if not it.had_some}
        )
        some = [it for it in empty_days if it.had_some or it.field in had[keys[it.series]]]
        if not some:
            return []
        of = {it.series: columns.series[it.series] for it in some}.values()
        days = [it.day * DAY_MS for it in some]
        numeric = self._summaries.days(of, min(days), max(days))
        return [it for it in some if (keys[it.series], it.day, it.field) not in numeric]


def slotless_buckets(buckets: BucketSet) -> Integers:
    """Returns the buckets, by their places in the columns, that hold no reading and have none of the fields
    in which slots would be: the fields may have been renamed. Buckets with empty slots are not among them."""
    decoded, places = buckets.decoded, model_of(buckets.policy).slot_holders
    if not places or len(decoded.columns.filled) == len(buckets):
        return np.zeros(0, dtype=np.int64)
    lacking = [
        piece.units
        for piece in decoded.pieces
        if not piece.overflow and not any(piece.group.layout.get(place) for place in places)
    ]
    empty = decoded.columns.lengths == 0
    return np.flatnonzero(empty & np.isin(decoded.units, np.concatenate([[], *lacking])))


#: A commit is closed at about this many readings, or bytes of BSON, with the default memory; with twice the
#: memory, at twice as many. At fewer readings where these take more memory: see `BucketSet.cells`.
MAX_READINGS = 900_000
MAX_BYTES = 32_000_000
#: … or a month: sparse readings make few commits, and a query of a day reads no more than a month.
MAX_SPAN_MS = 31 * DAY_MS
#: Bytes of BSON that a cell takes, a low estimate: while no reading was seen.
_LEAST_PER_CELL = 12


class Filling:
    """The commit being filled: batches as they were read, then the buckets of them that may go, decoded."""

    def __init__(self, memory: int) -> None:
        self._share = memory / USUAL_MEMORY
        self._per_cell: float | None = None
        self._read: list[Batch] = []
        self._selected: list[BucketSet] = []

    @property
    def is_empty(self) -> bool:
        """Returns whether nothing was added since the last commit was taken."""
        return not (self._read or self._selected)

    @property
    def is_measured(self) -> bool:
        """Returns whether it is known how many bytes a reading takes."""
        return self._per_cell is not None

    @property
    def is_full(self) -> bool:
        """Returns whether no more fits into the commit, as far as is known."""
        return self._room() <= 0

    def measure(self, buckets: BucketSet) -> None:
        """Estimates from some buckets how many bytes a reading takes."""
        if buckets.readings:  # else there is nothing to learn
            self._per_cell = buckets.batch.size / buckets.cells

    def cut(self, batch: Batch) -> Iterator[Batch]:
        """Cuts a batch that would make more than a commit into pieces, each to fill the commit."""
        at, count = 0, len(batch)
        is_much = batch.size > MAX_READINGS * self._share * (self._per_cell or _LEAST_PER_CELL)
        while at < len(batch):
            if is_much:
                count = max(1, math.ceil(self._room() / batch.size * len(batch)))
            yield batch.slice(at, min(at + count, len(batch)))
            at += count

    def add(self, batch: Batch) -> None:
        """Adds a batch as it was read."""
        self._read.append(batch)

    def take_read(self) -> Batch | None:
        """Returns the buckets that were read and not decoded yet, and forgets them."""
        read, self._read = self._read, []
        return Batch.concat(read) if read else None

    def add_selected(self, buckets: BucketSet) -> None:
        """Adds buckets that may go."""
        self._selected.append(buckets)

    def take(self) -> BucketSet | None:
        """Returns the buckets of the commit, if any, and begins another one."""
        selected, self._selected = self._selected, []
        return BucketSet.concat(selected) if selected else None

    def _room(self) -> float:
        """Returns about how many more bytes fill the commit."""
        size = sum(buckets.batch.size for buckets in self._selected)
        cells = sum(buckets.cells for buckets in self._selected)
        per_cell = self._per_cell or _LEAST_PER_CELL
        room = min(MAX_BYTES * self._share - size, (MAX_READINGS * self._share - cells) * per_cell)
        return room - sum(batch.size for batch in self._read)


class Selection:
    """Selects buckets for one archive run. What stays is reported with the reason."""

    def __init__(self, work: ArchiveRun, archiver: Archiver, through: int | None, *, rechecks: bool) -> None:
        """`through`: windows that end by then (milliseconds) are rolled up; None: nothing is rolled up.
        `rechecks`: pinned buckets that have changed are rolled up again."""
        self._work = work
        self._archiver = archiver
        self._through = through
        self._rechecks = rechecks

    def of(self, buckets: BucketSet) -> BucketSet:
        """Returns the buckets that may go."""
        decoded, report = buckets.decoded, self._work.report
        report.quarantine(decoded.quarantined)
        expired = self._work.is_due(decoded)
        expired &= ~self._pinned(buckets.batch, decoded, expired)
        expired &= ~self._frozen(decoded, expired)
        ready = expired if self._through is None else expired & (decoded.last < self._through)
        report.leave(int((expired & ~ready).sum()), "its windows are not rolled up yet")
        ready &= ~self._work.stuck(decoded, ready)
        return buckets.take(np.sort(decoded.units[ready & self._fitting(decoded, buckets.batch)]))

    def _pinned(self, batch: Batch, decoded: Decoded, expired: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Returns which expired buckets were restored, and stay since they are pinned."""
        work, pins = self._work, self._work.pins.of(batch)
        pinned = expired & np.isin(decoded.units, list(pins))
        for i in decoded.units[pinned].tolist():
            work.report.leave(1, pins[i].reason)
        if self._rechecks:
            assert self._through is not None
            ready = decoded.units[pinned & (decoded.last < self._through)]
            if changed := [i for i in ready.tolist() if fingerprint(batch, i) != pins[i].seen]:
                self._roll_up_pinned(batch.take(changed), [pins[i] for i in changed])
        return pinned

    def _frozen(self, decoded: Decoded, expired: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Returns which expired buckets a hold keeps from moving."""
        frozen = self._work.frozen(decoded)
        staying = expired & np.isin(decoded.units, list(frozen))
        for i in decoded.units[staying].tolist():
            self._work.report.leave(1, frozen[i].freeze_reason)
        return staying

    def _roll_up_pinned(self, changed: Batch, pins: Sequence[Pin]) -> None:
        """Rolls up pinned buckets that have changed: where they were, where their copies may have counted
        while they were gone, and where they are. Others are rolled up again before they are archived."""
        work, decoded = self._work, decode(changed, self._work.policy)
        now = dict(zip(decoded.units.tolist(), map(tuple, decoded.spans().tolist()), strict=True))
        before = [(i, tuple(span)) for i, it in enumerate(pins) for span in (it.span, it.archived) if span]
        left = ((first, last + 1) for first, last in decisions.left_behind(before, now))
        work.roll_up_around(left, leaving=True)
        times = [time for it in pins for time in it.span] + [time for span in now.values() for time in span]
        if work.rolled_up(min(times), max(times) + 1):
            for piece in chunks(changed):
                transaction(work.database, work.guard, partial(work.pins.update_seen, piece))

    def _fitting(self, decoded: Decoded, batch: Batch) -> NDArray[np.bool_]:
        """Returns which buckets have a series that the archive can hold; quarantines the others."""
        columns, policy = decoded.columns, self._work.policy
        fits = np.ones(len(decoded.units), dtype=np.bool_)
        for i, series in enumerate(columns.series):
            if (found := self._archiver.misfit(series)) is None:
                continue
            value = extended_json(found[1])
            reason = f"the archive of policy {policy.name} has a column of another type than {value}"
            for position in np.flatnonzero(columns.holds(np.arange(len(columns.series)) == i)).tolist():
                fits[position] = False
                identity = batch.main.legible_id(int(decoded.units[position]))
                self._work.report.quarantine([Quarantined(identity, found[0], reason)])
        return fits


#: Buckets that are decoded first, to tell how many bytes a reading takes.
SAMPLED = 100


class _Expired(NamedTuple):
    start: int  # milliseconds
    stop: int
    batch: Batch  # some of the buckets that end from start to stop


def _expired(source: Source, spans: Sequence[Due]) -> Generator[_Expired, None, None]:
    """Yields the expired buckets day by day, and maybe some that have not expired by their rule."""
    for at, end, also in spans:
        while (found := source.earliest_ending(at, also)) is not None and found < end:
            at = max(at, found)  # epoch seconds may round down, to before `at`
            stop = min((at // DAY_MS + 1) * DAY_MS, end)
            yield from (_Expired(at, stop, batch) for batch in source.ending(at, stop, also))
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

    def run(self, spans: Sequence[Due]) -> None:
        """Moves all that has expired and ends within these stretches, in their order."""
        filling, source, first = self._filling, self._work.source, None
        begun, end = (spans[0].start, spans[-1].end) if spans else (FIRST_MS, FIRST_MS)
        source.look_at_texts()
        too_late = source.ending(last_plausible(self._work.policy, self._work.now) + 1, LAST_MS + 1)
        for batch in chain(source.untimed(), too_late):
            for decoded in self._work.decode_live(batch):
                self._work.report.quarantine(decoded.quarantined)
        with (
            closing(_expired(source, spans)) as by_day,
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
        readings, size = buckets.readings, buckets.batch.size  # before they are handed over, and forgotten
        self._archiver.move(buckets)
        self._work.progress("archived readings", readings, self._done)
        self._work.progress("archived bytes", size)

    def _still_movable(self, buckets: BucketSet, first: int, last: int) -> BucketSet:
        """Returns the buckets that go; together they cover first to last. Reports why the others stay."""
        buckets = buckets.take(self._archiver.not_copied(buckets, first, last))
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
