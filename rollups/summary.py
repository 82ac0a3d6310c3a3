"""The mergeable state of one series in one window, and building it from columns.

The same readings give the same state, to the bit, however they were split and in whatever order they merge.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from buckets.columns import Columns, Kind
from rollups import bins, coverage, exact

Integers = NDArray[np.int64]


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
    clock = columns.time if not local or columns.local is None else columns.local
    window = np.searchsorted(edges, clock, side="right") - 1
    inside = np.flatnonzero((window >= 0) & (window < len(edges) - 1))
    if not inside.size:
        return []
    series = columns.bucket_series[columns.bucket[inside]]
    # Stable, so that where times tie the readings stay in bucket order, then as they lie in the bucket.
    # By window too: own clocks may be put back, and then windows do not follow from time.
    keys = (columns.time[inside], window[inside], series) if local else (columns.time[inside], series)
    order = inside[np.lexsort(keys)]
    series, window = columns.bucket_series[columns.bucket[order]], window[order]
    starts = _starts((series[1:] != series[:-1]) | (window[1:] != window[:-1]))
    counts = np.diff(starts, append=len(order))
    cell = np.repeat(np.arange(len(starts), dtype=np.int64), counts)
    fields = [_states(columns, name, order, cell, len(starts), binned) for name in columns.values]
    occupied: list[coverage.Runs] = [()] * len(starts)
    if interval is not None:
        ticks = clock[order] if not local else clock[order][np.lexsort((clock[order], cell))]
        occupied = coverage.build(ticks, starts, interval)
    return [
        (of_series, of_window, State(count, dict(zip(columns.values, values, strict=True)), runs))
        for of_series, of_window, count, runs, *values in zip(
            series[starts].tolist(), window[starts].tolist(), counts.tolist(), occupied, *fields, strict=True
        )
    ]


def _starts(changes: NDArray[np.bool_]) -> Integers:
    """Where runs begin, given where each element differs from the one before it."""
    return np.concatenate(([0], np.flatnonzero(changes) + 1)).astype(np.int64)


def _states(
    columns: Columns, name: str, order: Integers, cell: Integers, cells: int, binned: bool
) -> list[ValueState]:
    """One value field's state of each cell; `order` lists the readings cell by cell, by time in each."""
    kinds = columns.kinds[name][order]
    nonfinite = np.bincount(cell[kinds == Kind.NONFINITE], minlength=cells).tolist()
    nonnumeric = np.bincount(cell[kinds == Kind.NONNUMERIC], minlength=cells).tolist()
    states = [ValueState(0, nonfinite[at], nonnumeric[at]) for at in range(cells)]
    finite = np.flatnonzero(kinds == Kind.FINITE)
    if not finite.size:
        return states
    order, cell = order[finite], cell[finite]
    values, times, buckets = columns.values[name][order], columns.time[order], columns.bucket[order]
    starts = _starts(cell[1:] != cell[:-1])
    ends = np.append(starts[1:], len(cell)) - 1
    marks = [
        [
            Mark(at, bytes(columns.bucket_order[bucket]), value)
            for at, bucket, value in zip(
                times[where].tolist(), buckets[where].tolist(), values[where].tolist(), strict=True
            )
        ]
        for where in (starts, ends)
    ]
    parts = zip(
        cell[starts].tolist(),
        np.diff(starts, append=len(cell)).tolist(),
        exact.sums(values, starts),
        exact.squares(values, starts),
        (np.minimum.reduceat(values, starts) + 0.0).tolist(),
        (np.maximum.reduceat(values, starts) + 0.0).tolist(),
        *marks,
        bins.build(values, starts) if binned else [{} for _ in starts],
        strict=True,
    )
    for at, count, total, squares, low, high, first, last, counted in parts:
        states[at] = ValueState(
            count, nonfinite[at], nonnumeric[at], total, squares, low, high, first, last, counted
        )
    return states
