"""Reads one slice of time into mergeable states: the part of a roll-up that writes nothing.

So it may run anywhere, several at once. The run that writes takes the results in the order of time: see
`bucketwise.rollups.rolling.rollup`.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.columns import Columns, Quarantined, Series, StateColumn
from bucketwise.buckets.decoding.decode import decode, decode_live
from bucketwise.buckets.decoding.local import LARGEST_MS
from bucketwise.buckets.decoding.soundness import Plausible
from bucketwise.buckets.layouts.groups import Unions
from bucketwise.buckets.layouts.layout import positions_in
from bucketwise.buckets.lengths import NOT_LOOKED, Looked
from bucketwise.buckets.models.series import series_key
from bucketwise.buckets.source import Source
from bucketwise.config.policies import Policy
from bucketwise.rollups.calendar.levels import Span
from bucketwise.rollups.rolling.portions import ALL_PORTIONS, SpillFile, portion_of
from bucketwise.rollups.statistics import FieldStatistics, is_ordered, statistics_of
from bucketwise.rollups.summaries.coverage import interval_of
from bucketwise.rollups.summaries.summary import State, aggregate, merge

#: Bytes of readings that are gathered in memory.
GATHERED_BYTES = 256 << 20
#: Readings that are worked on at once, if they are of several series: the processor's cache holds them.
_AT_ONCE = 1 << 18


@dataclass
class Gathered:
    """The readings of a slice, from `start` to before `end` (milliseconds)."""

    counts: Literal["keep", "first", "last"]  # by `_id`, then by the place in the bucket
    start: int
    end: int
    _parts: list[Columns] = field(default_factory=list)
    _bytes: int = 0
    _spilled: SpillFile | None = None

    def add(self, columns: Columns) -> None:
        """Adds the readings of some buckets."""
        inside = (columns.time >= self.start) & (columns.time < self.end)
        part = columns if inside.all() else _chosen(columns, np.flatnonzero(inside))
        self._parts.append(part)
        self._bytes += part.time.nbytes * (3 + 2 * len(part.values)) + part.bucket_order.nbytes
        self._bytes += sum(it.codes.nbytes + sum(map(len, it.names)) for it in part.states.values())
        if self._bytes > GATHERED_BYTES:
            self._spill()

    def counted(self) -> Iterator[Columns]:
        """Yields the readings that count, those of a series together."""
        if self._spilled is None:
            yield from self._unique(self._parts)
            return
        self._spill()
        for portion in ALL_PORTIONS:
            yield from self._unique([pickle.loads(it) for it in self._spilled.get(portion)])

    def _spill(self) -> None:
        spilled = self._spilled = self._spilled or SpillFile()
        for part in self._parts:
            portions = np.array([portion_of(series_key(it)) for it in part.series], dtype=np.int64)
            of_readings = portions[part.series_of_readings] if len(part.series) else portions
            for portion in np.unique(of_readings).tolist():
                some = _chosen(part, np.flatnonzero(of_readings == portion))
                spilled.put(portion, pickle.dumps(some))
        self._parts, self._bytes = [], 0

    def _unique(self, parts: list[Columns]) -> Iterator[Columns]:
        for some in _by_series([it for it in parts if len(it.time)]):
            joined = _joined(some)
            yield joined if self.counts == "keep" else self._first_or_last(joined)

    def _first_or_last(self, joined: Columns) -> Columns:
        of_series, time = joined.series_of_readings, joined.time
        order = np.lexsort((np.arange(len(time)), time, of_series))  # readings are in the order that counts
        is_new = np.ones(len(order), dtype=np.bool_)
        is_new[1:] = (np.diff(time[order]) != 0) | (np.diff(of_series[order]) != 0)
        chosen = is_new if self.counts == "first" else np.append(is_new[1:], True)
        return _chosen(joined, np.sort(order[chosen]))


def _by_series(parts: list[Columns]) -> Iterator[list[Columns]]:
    """Yields the parts with all readings of some series, as many as are quickly worked on at once."""
    total = sum(len(it.time) for it in parts)
    if total <= _AT_ONCE or any(it.reading_series is not None for it in parts):
        if parts:
            yield parts
        return
    series, places = _series_of(parts)
    counts = np.zeros(len(series), dtype=np.int64)
    for its, part in zip(places, parts, strict=True):
        counts[its] += part.readings_of_series
    turn = (np.cumsum(counts) - counts) // _AT_ONCE
    for number in np.unique(turn).tolist():
        of_parts = zip(places, parts, strict=True)
        some = [_of_buckets(part, (turn[its] == number)[part.bucket_series]) for its, part in of_parts]
        yield [it for it in some if len(it.time)]


def _of_buckets(columns: Columns, chosen: NDArray[np.bool_]) -> Columns:
    """Returns the readings of some buckets, each of which is of one series."""
    lengths = columns.lengths[chosen]
    readings = positions_in(columns.starts[:-1][chosen], lengths)
    used, bucket_series = np.unique(columns.bucket_series[chosen], return_inverse=True)
    return replace(
        _taken(columns, readings),
        series=[columns.series[i] for i in used.tolist()],
        bucket_series=bucket_series.astype(np.int32),
        bucket_order=columns.bucket_order[chosen],
        starts=np.append(0, np.cumsum(lengths)),
    )


def _chosen(columns: Columns, readings: NDArray[np.int64]) -> Columns:
    """Returns some of the readings, with the buckets and series that they are of."""
    buckets, bucket = np.unique(columns.bucket[readings], return_inverse=True)
    used, of_reading = np.unique(columns.series_of_readings[readings], return_inverse=True)
    first = np.searchsorted(bucket, np.arange(len(buckets)))
    return replace(
        _taken(columns, readings),
        series=[columns.series[i] for i in used.tolist()],
        bucket_series=of_reading[first].astype(np.int32),
        bucket_order=columns.bucket_order[buckets],
        starts=np.append(first, len(readings)).astype(np.int64),
        reading_series=None if columns.reading_series is None else of_reading.astype(np.int32),
    )


def _taken(columns: Columns, readings: NDArray[np.int64]) -> Columns:
    """Returns some of the readings; what tells their buckets and series is still that of all."""
    return replace(
        columns,
        time=columns.time[readings],
        values={name: it[readings] for name, it in columns.values.items()},
        kinds={name: it[readings] for name, it in columns.kinds.items()},
        local=None if columns.local is None else columns.local[readings],
        states={name: it.take(readings) for name, it in columns.states.items()},
    )


def _series_of(parts: Sequence[Columns]) -> tuple[list[Series], list[NDArray[np.int32]]]:
    """Returns the distinct series of the parts, and where the series of each part are among them."""
    index: dict[bytes, int] = {}
    series: list[Series] = []
    places = []
    for part in parts:
        keys = [series_key(it) for it in part.series]
        for key, it in zip(keys, part.series, strict=True):
            if key not in index:
                index[key] = len(series)
                series.append(it)
        places.append(np.array([index[key] for key in keys], dtype=np.int32))
    return series, places


def _joined(parts: list[Columns]) -> Columns:
    """Returns all readings in the order of their buckets' `_id`s."""
    series, places = _series_of(parts)
    names, of_bucket = np.unique(np.concatenate([it.bucket_order for it in parts]), return_inverse=True)
    # Documents of which several share an `_id` may be of several series.
    has_own = any(it.reading_series is not None for it in parts) or len(names) < len(of_bucket)
    bucket_series = np.zeros(len(names), dtype=np.int32)
    if not has_own:
        bucket_series[of_bucket] = np.concatenate(
            [its[it.bucket_series] for its, it in zip(places, parts, strict=True)]
        )
    lengths = np.concatenate([it.lengths for it in parts])
    order = None
    if (of_bucket[1:] < of_bucket[:-1]).any():  # mostly none: `_id`s ascend as time does
        order = np.argsort(np.repeat(of_bucket, lengths), kind="stable")

    def taken(columns: list[NDArray[Any]]) -> NDArray[Any]:
        found = np.concatenate(columns)
        return found if order is None else np.asarray(found[order])

    locals_ = [it.local for it in parts if it.local is not None]
    states = {}
    for name in parts[0].states:
        codes, held = StateColumn.together([it.states[name] for it in parts])
        states[name] = StateColumn(taken(codes), held)
    return Columns(
        series=series,
        bucket_series=bucket_series,
        bucket_order=names,
        starts=np.append(0, np.cumsum(np.bincount(of_bucket, lengths, len(names)), dtype=np.int64)),
        time=taken([it.time for it in parts]),
        values={name: taken([it.values[name] for it in parts]) for name in parts[0].values},
        kinds={name: taken([it.kinds[name] for it in parts]) for name in parts[0].kinds},
        reading_series=taken([its[it.series_of_readings] for its, it in zip(places, parts, strict=True)])
        if has_own
        else None,
        local=taken(locals_) if locals_ else None,
        states=states,
    )


Document = dict[str, Any]


@dataclass(frozen=True)
class ArchivedHalf:
    """The archived half of a slice."""

    #: Those that may hold a reading in [start, end), and are not live.
    batches: Callable[[int, int], Iterable[Batch]]
    restored: Callable[[Batch], list[int]]  # which live buckets of a batch are restored ones


#: Approximate bytes of a value field's state without percentiles, and of each part of one, as Python objects.
STATE_BYTES, _PART_BYTES = 1000, 100
#: Buckets that are decoded at once.
_BUCKETS_AT_ONCE = 10_000
#: States of a slice take one in so many bytes of a run's memory: documents are made of them, and compared.
_MEMORY_SHARE = 4


@dataclass(frozen=True)
class SeriesShare:
    """A part of the live buckets, by the first series field: not before any of `low`, and before `high`.

    Shares of the same bounds hold each bucket once, whatever stands in the field, or nothing, and in whatever
    order the bounds are to the server: only comparisons of an expression go across types, and each of two
    shares asks for the contrary of the other.
    """

    low: Sequence[Any] = ()
    high: Sequence[Any] = ()  # one value, or none

    def query(self, policy: Policy) -> Document | None:
        """Returns the query that narrows live buckets to this share; None where it is all of them."""
        field_name = f"${policy.series_fields[0]}" if policy.series_fields else ""
        conditions = [("$gte", it) for it in self.low] + [("$lt", it) for it in self.high]
        parts = [{"$expr": {operator: [field_name, {"$literal": it}]}} for operator, it in conditions]
        return {"$and": parts} if parts else None


WHOLE = SeriesShare()


def shares(bounds: Sequence[Any]) -> list[SeriesShare]:
    """Returns the shares between these bounds: one more than there are bounds."""
    return [SeriesShare(bounds[:at], bounds[at : at + 1]) for at in range(len(bounds) + 1)]


@dataclass(frozen=True)
class SliceRequest:
    """What to read: the readings in the cells between these edges (milliseconds), by whether the cells go by
    the readings' own clocks; of one share of the live buckets, the archived ones with the first. `looked`:
    what the caller knows of the live ones. `memory`: what the states may take, see `SliceStates`."""

    edges: Mapping[bool, Sequence[int]]
    share: SeriesShare = WHOLE
    looked: Looked = NOT_LOOKED
    memory: int = 0
    plausible: Plausible | None = None  # of live buckets
    leaves_unreadable: bool = False  # what can't be read of the archive is told, in place of an error


@dataclass
class CellStates:
    """The states of one slice of time: of each series in each cell, cells being what windows are made of."""

    edges: Sequence[int]  # of the cells
    fields: FieldStatistics
    series: dict[bytes, Series] = field(default_factory=dict)
    states: dict[tuple[bytes, int], State] = field(default_factory=dict)
    size: int = 0  # bytes that the states take in memory, about

    def add(self, key: bytes, series: Series, cell: int, state: State) -> None:
        """Adds a state to that of the same series and cell, if there is one. `key`: the series as bytes."""
        self.series.setdefault(key, series)
        existing = self.states.get((key, cell))
        if existing is not None:
            self.size -= _size(existing)
            state = merge(self.fields, existing, state)
        self.size += _size(state)
        self.states[key, cell] = state

    def entries(self) -> Iterator[tuple[bytes, Series, int, State]]:
        """Yields the arguments of `add` for each state."""
        for (key, cell), state in self.states.items():
            yield key, self.series[key], cell, state

    def by_window(self, windows: Mapping[Span, Span]) -> dict[tuple[bytes, Span], State]:
        """Returns the states of windows. `windows`: which window a span of whole cells is a part of."""
        cell_at = {edge: number for number, edge in enumerate(self.edges)}
        window_of = {
            cell: window
            for (start, end), window in windows.items()
            for cell in range(cell_at[start], cell_at[end])
        }
        merged: dict[tuple[bytes, Span], State] = {}
        for (key, cell), state in self.states.items():
            window = window_of.get(cell)
            if window is not None:
                existing = merged.get((key, window))
                merged[key, window] = state if existing is None else merge(self.fields, existing, state)
        return merged


def _size(state: State) -> int:
    return _PART_BYTES * sum(1 + sum(map(len, value)) for value in state.values.values())


@dataclass(frozen=True)
class Portion:
    """The part of a slice that some portions of the series have: see `rolling.portions`. `elsewhere`: starts
    of cells in which series of any portion have readings; empty where this is all."""

    numbers: range = ALL_PORTIONS
    cells: Mapping[bool, CellStates] = field(default_factory=dict)
    elsewhere: Mapping[bool, Set[int]] = field(default_factory=dict)


@dataclass
class SliceStates:
    """The states of a slice, by whether its cells go by the readings' own clocks. Where they take more than
    `memory` (bytes; 0: any), they are spilled into a file."""

    cells: dict[bool, CellStates]
    memory: int = 0
    quarantined: list[Quarantined] = field(default_factory=list)
    unreadable: str | None = None  # why archived readings of the slice can't be read; then it holds no states
    commits: set[str] = field(default_factory=set)  # commits of the archive that were read whole
    spilled: SpillFile | None = None
    filled: dict[bool, set[int]] = field(default_factory=dict)  # starts of the cells of what is spilled
    buckets_read: int = 0  # live ones
    bytes_read: int = 0

    def counted(self, live: Iterable[Batch]) -> Iterator[Batch]:
        """Yields batches of live buckets, and counts them."""
        for batch in live:
            self.buckets_read += len(batch)
            self.bytes_read += batch.size
            yield batch

    def take(self, local: bool, states: Iterable[tuple[bytes, Series, int, State]]) -> None:
        """Adds states of series in cells, each under the series' key."""
        for state in states:
            self.cells[local].add(*state)
            if 0 < self.memory < self.cells[local].size:
                self._spill()

    def add(self, other: SliceStates) -> None:
        """Adds what another share of the same slice holds."""
        for local, cells in other.cells.items():
            self.take(local, cells.entries())
        if other.spilled is not None:
            self._spill().take(other.spilled)
            for local, filled in other.filled.items():
                self.filled.setdefault(local, set()).update(filled)
        self.quarantined += other.quarantined
        self.unreadable = self.unreadable or other.unreadable
        self.commits |= other.commits
        self.buckets_read += other.buckets_read
        self.bytes_read += other.bytes_read

    def size(self) -> int:
        """Returns about how many bytes it takes in memory."""
        return sum(cells.size for cells in self.cells.values())

    def portions(self) -> Iterator[Portion]:
        """Yields all states, in as many portions of the series as memory requires."""
        if self.spilled is None:
            yield Portion(ALL_PORTIONS, self.cells)
            return
        spilled, start, cells = self._spill(), 0, self._empty()
        for portion in ALL_PORTIONS:
            for record in spilled.get(portion):
                local, key, series, cell, *state = pickle.loads(record)
                cells[local].add(key, series, cell, State(*state))
            if portion == ALL_PORTIONS[-1] or sum(it.size for it in cells.values()) >= self.memory:
                yield Portion(range(start, portion + 1), cells, self.filled)
                start, cells = portion + 1, self._empty()

    def _empty(self) -> dict[bool, CellStates]:
        return {local: CellStates(it.edges, it.fields) for local, it in self.cells.items()}

    def _spill(self) -> SpillFile:
        spilled = self.spilled = self.spilled or SpillFile()
        for local, cells in self.cells.items():
            filled = self.filled.setdefault(local, set())
            for key, series, cell, state in cells.entries():
                plain = state.count, state.values, state.occupied  # pickled in a third of the time
                spilled.put(portion_of(key), pickle.dumps((local, key, series, cell, *plain)))
                filled.add(cells.edges[cell])
        self.cells = self._empty()
        return spilled


@dataclass(frozen=True)
class SliceReader:
    """Reads slices. `read(request)` may be under way for several at once; `memory` (bytes) is what the slices
    that wait for their turn may take, and what a run may take at all; 0: any."""

    read: Callable[[SliceRequest], Future[SliceStates]]
    workers: int = 1  # slices that are read at once; 1: each when it is asked for
    memory: int = 0

    @property
    def memory_per_slice(self) -> int:
        """Returns how many bytes the states of a slice may take. While they are written, as much again is
        held."""
        return self.memory // (_MEMORY_SHARE * self.workers)

    def max_in_flight(self, size: int) -> int:
        """Returns how many slices may be under way, where each has this size in bytes."""
        if self.workers == 1:
            return 1
        limit = 2 * self.workers  # while one is written, no worker has to wait
        return max(1, min(limit, self.memory // size if size else limit))


def reads_at_once(policy: Policy) -> bool:
    """Returns whether all readings of a series in a slice have to be read together."""
    return policy.duplicates != "keep" or is_ordered(statistics_of(policy))


def read(
    source: Source, archived: ArchivedHalf, policy: Policy, request: SliceRequest, unions: Unions
) -> SliceStates:
    """Reads a slice of live and archived buckets into states; of a bucket that reaches over its edge, what is
    inside."""
    fields = statistics_of(policy)
    cells = {local: CellStates(edges, fields) for local, edges in request.edges.items()}
    states = SliceStates(cells, request.memory)
    start = min(edges[0] - local * LARGEST_MS for local, edges in request.edges.items())
    end = max(edges[-1] + local * LARGEST_MS for local, edges in request.edges.items())
    live = source.after(request.looked).batches(start, end, request.share.query(policy))
    found = chain(
        (
            decoded
            for batch in _cut(states.counted(live))
            for decoded in decode_live(batch, policy, archived.restored, request.plausible, unions)
        ),
        (
            decode(batch, policy, unions)
            for batch in _cut(() if request.share.low else archived.batches(start, end))
        ),
    )
    gathered = Gathered(policy.duplicates, start, end) if reads_at_once(policy) else None
    for decoded in found:
        states.quarantined += decoded.quarantined
        if gathered is None:
            _aggregate(decoded.columns, policy, states)
        else:
            gathered.add(decoded.columns)
    for columns in gathered.counted() if gathered is not None else ():
        _aggregate(columns, policy, states)
    return states


def _aggregate(columns: Columns, policy: Policy, target: SliceStates) -> None:
    """Adds what some buckets hold."""
    interval = interval_of(policy)
    keys = [series_key(series) for series in columns.series]
    for local, cells in target.cells.items():
        edges = np.array(cells.edges, dtype=np.int64)
        states = aggregate(columns, edges, cells.fields, interval=interval, local=local)
        target.take(local, ((keys[i], columns.series[i], cell, state) for i, cell, state in states))


def _cut(batches: Iterable[Batch]) -> Iterator[Batch]:
    """Yields the batches cut so small that their states take little, even with a series per bucket."""
    for batch in batches:
        for at in range(0, len(batch), _BUCKETS_AT_ONCE):
            yield batch.slice(at, min(at + _BUCKETS_AT_ONCE, len(batch)))
