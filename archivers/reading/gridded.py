"""Readings on an even grid: what each series was at each instant, by its readings, or what fills the gap."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from bucketwise.archivers.reading.formats import RowSource
from bucketwise.buckets.columns import Series
from bucketwise.buckets.fields.selectors import series_order
from bucketwise.buckets.models.series import series_key
from bucketwise.buckets.packing import Rows
from bucketwise.rollups.grids import Filling
from bucketwise.rollups.statistics.steps import Reading

Integers = NDArray[np.int64]
#: Of a chunk: a series at an instant each.
_CELLS = 250_000


@dataclass(frozen=True)
class Instants:
    """The instants of a grid: `start`, and every `step` from there on that is before `end`; milliseconds."""

    start: int
    end: int
    step: int

    def within(self, low: int, high: int) -> Integers:
        """Returns the instants in [low, high)."""
        first = self.start + max(0, -(-(low - self.start) // self.step)) * self.step
        return np.arange(first, max(first, min(high, self.end)), self.step, dtype=np.int64)


def reach_of(gaps: Mapping[str, int], filling: Filling) -> tuple[timedelta, timedelta]:
    """Returns how far before and behind a grid readings matter. Which rows there are does not depend on what
    fills them: a series has some once it was read before the grid."""
    longest = timedelta(milliseconds=max(gaps.values(), default=0))
    return longest, longest if filling.looks_ahead else timedelta(0)


class GriddedReadings:
    """A row for each instant and series, sorted by time and series, from the first reading of a series on.
    One without a reading of its own is `filled`. Of readings of one instant the last counts.

    `readings`: those of the range, and as far around it as `reach_of` says. Memory is bounded by what they
    take, and by the instants that a reading may still tell of: those within `gaps` (milliseconds)."""

    marks = ("filled",)

    def __init__(
        self, readings: RowSource, instants: Instants, filling: Filling, gaps: Mapping[str, int]
    ) -> None:
        self.policy = readings.policy
        self._readings, self._instants, self._filling, self._gaps = readings, instants, filling, gaps
        self._tracks: dict[bytes, _Track] = {}
        self._chunks: deque[_Chunk] = deque()

    def series_types(self) -> dict[str, str]:
        """Returns the types of the series columns in the archive's parts; empty where there are none."""
        return self._readings.series_types()

    def __iter__(self) -> Iterator[Rows]:
        done = self._instants.start
        for rows in self._readings:
            reached = int(rows.time[-1]) + 1
            yield from self._open(rows, self._instants.within(done, reached))
            done = max(done, reached)
            for track in self._tracks.values():
                track.expire(reached, self._gaps)
            yield from self._complete()
        nothing = Rows([], np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int64), {}, {})
        yield from self._open(nothing, self._instants.within(done, self._instants.end))
        for track in self._tracks.values():
            track.expire(None, self._gaps)
        yield from self._complete()

    def _open(self, rows: Rows, instants: Integers) -> Iterator[Rows]:
        """Opens the rows of these instants, up to the last reading. Yields those that are complete."""
        order = np.argsort(rows.row_series, kind="stable")
        ends = np.searchsorted(rows.row_series[order], np.arange(len(rows.series) + 1))
        found = {
            series_key(series): _Held.of(rows, order[ends[at] : ends[at + 1]])
            for at, series in enumerate(rows.series)
        }
        for series in rows.series:
            self._tracks.setdefault(series_key(series), _Track(series))
        keys = sorted(self._tracks, key=lambda it: series_order(self._tracks[it].series))
        for key, held in found.items():
            for name, readings in held.readings.items():
                if readings:
                    self._tracks[key].resolve(name, readings[0], self._filling, self._gaps[name])
        size = max(1, _CELLS // max(1, len(keys)))
        for begin in range(0, len(instants), size):
            chunk = _Chunk.of(
                instants[begin : begin + size],
                [self._tracks[it].series for it in keys],
                self.policy.value_names,
            )
            for row, key in enumerate(keys):
                self._take(chunk, row, self._tracks[key], found.get(key, _NOTHING))
            self._chunks.append(chunk)
            yield from self._complete()
        for key, held in found.items():
            self._tracks[key].is_met = True
            self._tracks[key].last |= {name: it[-1] for name, it in held.readings.items() if it}

    def _take(self, chunk: _Chunk, row: int, track: _Track, held: _Held) -> None:
        """Fills the cells of one series, given its readings up to the last instant."""
        chunk.known[row] = True
        if not track.is_met:
            chunk.known[row] = chunk.instants >= held.times[0]
        chunk.filled[row] = ~np.isin(chunk.instants, held.times)
        for name in self.policy.value_names:
            self._fill(chunk, row, name, track, held.readings.get(name, []))

    def _fill(self, chunk: _Chunk, row: int, name: str, track: _Track, held: list[Reading]) -> None:
        """Fills the cells of one value field."""
        gap, last = self._gaps[name], track.last.get(name)
        places = np.searchsorted([at for at, _ in held], chunk.instants, side="right").tolist()
        for column, (at, place) in enumerate(zip(chunk.instants.tolist(), places, strict=True)):
            before = held[place - 1] if place else last
            after = held[place] if place < len(held) else None
            if not chunk.filled[row, column]:
                own = before[1] if before is not None and before[0] == at else None
                chunk.put(name, row, column, own)
            elif after is None and before is not None and self._filling.looks_ahead:
                track.wait(name, _Waiting(chunk, row, column, before))
            else:
                chunk.put(name, row, column, self._filling.value(at, before, after, gap))

    def _complete(self) -> Iterator[Rows]:
        """Yields the rows of the first chunks, as far as no reading can change them any more."""
        while self._chunks and not self._chunks[0].waiting:
            rows = self._chunks.popleft().rows()
            if len(rows.time):
                yield rows


@dataclass(frozen=True)
class _Held:
    """The readings of one series: when there are any, and those of each value field that are numbers."""

    times: Integers
    readings: Mapping[str, list[Reading]]

    @classmethod
    def of(cls, rows: Rows, own: Integers) -> _Held:
        """Returns those of some rows, which are in the order of time."""
        times = rows.time[own]
        readings = {}
        for name, values in rows.values.items():
            numbers = rows.present[name][own]
            readings[name] = list(zip(times[numbers].tolist(), values[own][numbers].tolist(), strict=True))
        return cls(times, readings)


_NOTHING = _Held(np.zeros(0, dtype=np.int64), {})


@dataclass
class _Chunk:
    """Rows of some adjoining instants: a line a series, a column an instant. `waiting`: how many cells wait
    for the reading behind them."""

    instants: Integers
    series: list[Series]
    values: dict[str, NDArray[np.float64]]
    present: dict[str, NDArray[np.bool_]]
    known: NDArray[np.bool_]
    filled: NDArray[np.bool_]
    waiting: int = 0

    @classmethod
    def of(cls, instants: Integers, series: list[Series], names: Sequence[str]) -> _Chunk:
        """Returns rows without values."""
        shape = len(series), len(instants)
        values = {name: np.zeros(shape) for name in names}
        present = {name: np.zeros(shape, dtype=np.bool_) for name in names}
        return cls(
            instants, series, values, present, np.zeros(shape, np.bool_), np.ones(shape, dtype=np.bool_)
        )

    def put(self, name: str, row: int, column: int, value: float | None) -> None:
        """Sets the value of a cell; None: there is none."""
        if value is not None:
            self.values[name][row, column] = value
            self.present[name][row, column] = True

    def rows(self) -> Rows:
        """Returns the rows, by time, then series."""
        kept = self.known.T.ravel()
        line, column = (it.T.ravel()[kept] for it in np.indices(self.known.shape))
        return Rows(
            self.series,
            line.astype(np.int32),
            self.instants[column],
            {name: it.T.ravel()[kept] for name, it in self.values.items()},
            {name: it.T.ravel()[kept] for name, it in self.present.items()},
            {"filled": self.filled.T.ravel()[kept]},
        )


@dataclass
class _Waiting:
    """A cell whose value depends on the next reading, and the reading before it."""

    chunk: _Chunk
    row: int
    column: int
    before: Reading


@dataclass
class _Track:
    """What is known of a series so far: its last reading of each value field, and the cells that wait for the
    next one."""

    series: Series
    is_met: bool = False
    last: dict[str, Reading] = field(default_factory=dict)
    waiting: dict[str, list[_Waiting]] = field(default_factory=dict)

    def wait(self, name: str, cell: _Waiting) -> None:
        """Has a cell wait for the next reading."""
        cell.chunk.waiting += 1
        self.waiting.setdefault(name, []).append(cell)

    def resolve(self, name: str, after: Reading, filling: Filling, gap: int) -> None:
        """Fills the cells that wait for a reading."""
        for it in self.waiting.pop(name, ()):
            at = int(it.chunk.instants[it.column])
            it.chunk.put(name, it.row, it.column, filling.value(at, it.before, after, gap))
            it.chunk.waiting -= 1

    def expire(self, reached: int | None, gaps: Mapping[str, int]) -> None:
        """Gives up the cells whose next reading would be too far away; None: none comes any more."""
        for name in list(self.waiting):
            if reached is None or reached - self.waiting[name][0].before[0] > gaps[name]:
                for it in self.waiting.pop(name):
                    it.chunk.waiting -= 1
