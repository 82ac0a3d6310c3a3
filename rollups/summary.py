"""The mergeable state of one series in one window, and building it from columns.

The same readings give the same state, to the bit, however they were split and in whatever order they merge.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from buckets.columns import Columns, Kind
from rollups import bins, coverage, exact

Integers = NDArray[np.int64]
#: Readings.
_AT_ONCE = 1 << 15


class Mark(NamedTuple):
    """The first or last finite number of a window: where times tie, the lower `_id` comes first."""

    at: int  # milliseconds
    id: bytes  # the bucket's `_id`, as bytes that sort as BSON does
    value: float  # with its own bits: -0.0 stays


@dataclass(slots=True)
class ValueState:
    """One value field. Sums count in the units of `rollups.exact`; -0.0 is 0.0 in low and high."""

    count: int = 0  # finite numbers
    nonfinite: int = 0
    nonnumeric: int = 0
    total: int = 0
    squares: int = 0
    low: float = inf
    high: float = -inf
    first: Mark | None = None
    last: Mark | None = None
    bins: bins.Bins = field(default_factory=dict)  # empty where no percentiles are asked for


@dataclass(slots=True)
class State:
    """One series in one window."""

    count: int  # readings
    values: dict[str, ValueState]  # by value field
    occupied: coverage.Runs = ()  # empty where the policy expects no interval


def merge(one: State, other: State) -> State:
    """The state of both together. Associative and commutative."""
    values = {name: _merge_values(value, other.values[name]) for name, value in one.values.items()}
    return State(one.count + other.count, values, coverage.union(one.occupied, other.occupied))


def _merge_values(one: ValueState, other: ValueState) -> ValueState:
    return ValueState(
        one.count + other.count,
        one.nonfinite + other.nonfinite,
        one.nonnumeric + other.nonnumeric,
        one.total + other.total,
        one.squares + other.squares,
        min(one.low, other.low),
        max(one.high, other.high),
        min((mark for mark in (one.first, other.first) if mark), key=_order, default=None),
        max((mark for mark in (one.last, other.last) if mark), key=_order, default=None),
        bins.merge(one.bins, other.bins),
    )


def _order(mark: Mark) -> tuple[int, bytes, bytes]:
    """The bits decide at last, so that merging commutes also where two documents share one `_id`."""
    return mark.at, mark.id, struct.pack(">d", mark.value)


def aggregate(
    columns: Columns, edges: Integers, *, binned: bool, interval: int | None = None, local: bool = False
) -> list[tuple[int, int, State]]:
    """The state of every (series, window) that has a reading, in that order.

    `edges`: n + 1 ascending milliseconds for n adjoining windows. Readings outside them are left out.
    `interval`: in milliseconds, where the policy expects one. `local`: windows and intervals go by the
    readings' own clocks. Gives (index into columns.series, index of the window, state).
    """
    is_local = local and columns.local is not None
    order, starts, series, window = (_cells_of_clocks if is_local else _cells)(columns, edges)
    if not len(order):
        return []
    counts = np.diff(starts, append=len(order))
    fields = [_states(columns, name, order, starts, binned) for name in columns.values]
    occupied: list[coverage.Runs] = [()] * len(starts)
    if interval is not None:
        clock = columns.local if is_local and columns.local is not None else columns.time
        ticks = clock[order]
        if is_local:
            ticks = ticks[np.lexsort((ticks, np.repeat(np.arange(len(starts)), counts)))]
        occupied = coverage.build(ticks, starts, interval)
    return [
        (of_series, of_window, State(count, dict(zip(columns.values, values, strict=True)), runs))
        for of_series, of_window, count, runs, *values in zip(
            series, window, counts.tolist(), occupied, *fields, strict=True
        )
    ]


def _cells(columns: Columns, edges: Integers) -> tuple[Integers, Integers, list[int], list[int]]:
    """The readings inside the windows: by series, then time, stable; where each cell, a series in a window,
    starts among them; the cell's series and window."""
    # Stable, so that where times tie the readings stay in bucket order, then as they lie in the bucket.
    order = columns.sequence(np.arange(len(columns.series)))
    time, of_reading = columns.time[order], columns.bucket_series[columns.bucket[order]]
    bounds = np.searchsorted(of_reading, np.arange(len(columns.series) + 1)).tolist()
    cuts = [low + np.searchsorted(time[low:high], edges) for low, high in pairwise(bounds)]
    lengths = np.diff(np.array(cuts, dtype=np.int64).reshape(-1, len(edges)), axis=1)
    series, window = np.nonzero(lengths)
    sizes = lengths[series, window]
    if sizes.sum() < len(order):
        order = np.concatenate([order[cut[0] : cut[-1]] for cut in cuts])
    return order, np.cumsum(sizes) - sizes, series.tolist(), window.tolist()


def _cells_of_clocks(columns: Columns, edges: Integers) -> tuple[Integers, Integers, list[int], list[int]]:
    """The same by the readings' own clocks. These may be put back: windows do not follow from time."""
    assert columns.local is not None
    window = np.searchsorted(edges, columns.local, side="right") - 1
    inside = np.flatnonzero((window >= 0) & (window < len(edges) - 1))
    series = columns.bucket_series[columns.bucket]
    order = inside[np.lexsort((columns.time[inside], window[inside], series[inside]))]
    series, window = series[order], window[order]
    starts = np.flatnonzero(np.append(True, (np.diff(series) != 0) | (np.diff(window) != 0))[: len(order)])
    return order, starts, series[starts].tolist(), window[starts].tolist()


def _states(columns: Columns, name: str, order: Integers, starts: Integers, binned: bool) -> list[ValueState]:
    """One value field's state of each cell; `order` lists the readings cell by cell, by time in each. Some
    cells at once, so that what is made on the way stays in the processor's cache."""
    edges = np.append(starts, len(order))
    firsts = np.unique(np.searchsorted(starts, np.arange(0, len(order), _AT_ONCE)))
    return [
        state
        for low, high in pairwise([*firsts.tolist(), len(starts)])
        for state in _some_states(
            columns, name, order[edges[low] : edges[high]], starts[low:high] - edges[low], binned
        )
    ]


def _some_states(
    columns: Columns, name: str, order: Integers, starts: Integers, binned: bool
) -> list[ValueState]:
    kinds = columns.kinds[name][order]
    cell = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(order)))
    nonfinite = np.bincount(cell[kinds == Kind.NONFINITE], minlength=len(starts)).tolist()
    nonnumeric = np.bincount(cell[kinds == Kind.NONNUMERIC], minlength=len(starts)).tolist()
    states = [ValueState(0, *counts) for counts in zip(nonfinite, nonnumeric, strict=True)]
    finite = np.flatnonzero(kinds == Kind.FINITE)
    if not finite.size:
        return states
    order, cell = order[finite], cell[finite]
    values, starts = columns.values[name][order], np.flatnonzero(np.diff(cell, prepend=-1))
    ends = np.append(starts[1:], len(cell)) - 1
    totals, squares = exact.sums_and_squares(values, starts)
    parts = zip(
        cell[starts].tolist(),
        (ends + 1 - starts).tolist(),
        totals,
        squares,
        (np.minimum.reduceat(values, starts) + 0.0).tolist(),
        (np.maximum.reduceat(values, starts) + 0.0).tolist(),
        _marks(columns, order[starts], values[starts]),
        _marks(columns, order[ends], values[ends]),
        bins.build(values, starts) if binned else [{} for _ in starts],
        strict=True,
    )
    for at, count, total, square, low, high, first, last, counted in parts:
        states[at] = ValueState(
            count, nonfinite[at], nonnumeric[at], total, square, low, high, first, last, counted
        )
    return states


def _marks(columns: Columns, readings: Integers, values: NDArray[np.float64]) -> list[Mark]:
    ids = columns.bucket_order[columns.bucket[readings]].tolist()
    return list(map(Mark, columns.time[readings].tolist(), ids, values.tolist()))
