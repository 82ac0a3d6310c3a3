"""The mergeable state of one series in one window, and building it from columns.

The same readings give the same state, to the bit, however they were split and in whatever order they merge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.columns import NO_STATE, Columns, ValueKind
from bucketwise.buckets.decoding.order import Order
from bucketwise.buckets.layouts.layout import positions_in
from bucketwise.buckets.phases import phase
from bucketwise.rollups.statistics import FieldState, FieldStatistics, is_ordered
from bucketwise.rollups.statistics.base import FieldReadings, Numbers, StateReadings
from bucketwise.rollups.summaries import coverage

Integers = NDArray[np.int64]
#: Average readings in a run from which on it pays to leave them where they are.
LONG = 8
#: Readings of a run, of those that are in the order of time: as many as a bucket mostly has.
LENGTH = 64


@dataclass(frozen=True)
class Runs:
    """r runs of the readings of c cells. In a run times ascend; where they tie, readings are in the order of
    `Columns`, in a run and from one to the next."""

    order: Integers | None  # n: the readings, run by run; None: all of them, as they lie
    starts: Integers  # r: where each run starts in that order
    cell: Integers  # r: of each run
    series: list[int]  # c: index into columns.series; cells are sorted by series, then window
    window: list[int]  # c: index of the window
    is_in_order: bool = False  # each cell is one run


def runs_of(columns: Columns, edges: Integers, *, in_order: bool, local: bool) -> Runs:
    """Returns the readings inside the windows. `in_order`: each cell must be one run. `local`: windows go by
    the readings' own clocks."""
    if local:
        return _by_clocks(columns, edges)
    found = None if in_order or columns.reading_series is not None else _by_buckets(columns, edges)
    return _by_time(columns, edges) if found is None else found


def _by_buckets(columns: Columns, edges: Integers) -> Runs | None:
    """Returns runs that are buckets; None where times don't ascend in each bucket, or buckets are short."""
    time, starts = columns.time, columns.starts[columns.filled]
    if not len(time) or len(time) < LONG * len(starts):
        return None
    ascends = time[1:] >= time[:-1]
    ascends[starts[1:] - 1] = True
    if not ascends.all():
        return None
    lengths = np.diff(starts, append=len(time))
    window = np.searchsorted(edges, time[starts], side="right")
    parted = window != np.searchsorted(edges, time[starts + lengths - 1], side="right")
    if parted.any():
        readings = positions_in(starts[parted], lengths[parted])
        changes = np.diff(np.searchsorted(edges, time[readings], side="right"), prepend=-1)
        starts = np.union1d(starts, readings[changes != 0])
        lengths = np.diff(starts, append=len(time))
        window = np.searchsorted(edges, time[starts], side="right")
    inside = (window > 0) & (window < len(edges))
    starts, lengths, window = starts[inside], lengths[inside], window[inside]
    series = columns.series_at(starts)
    cells, cell = np.unique(series * len(edges) + window - 1, return_inverse=True)
    order = None
    if not inside.all():
        order, starts = positions_in(starts, lengths), np.cumsum(lengths) - lengths
    return Runs(order, starts, cell, *(part.tolist() for part in np.divmod(cells, len(edges))))


def _by_time(columns: Columns, edges: Integers) -> Runs:
    # Stable, so that where times tie the readings stay in bucket order, then as they lie in the bucket.
    sorted_ = Order.of(columns, np.arange(len(columns.series)))
    order, time = sorted_.readings, sorted_.take(columns.time)
    bounds = np.append(0, np.cumsum(columns.readings_of_series)).tolist()
    cuts = [low + np.searchsorted(time[low:high], edges) for low, high in pairwise(bounds)]
    lengths = np.diff(np.array(cuts, dtype=np.int64).reshape(-1, len(edges)), axis=1)
    series, window = np.nonzero(lengths)
    sizes = lengths[series, window]
    if sizes.sum() < len(order):
        order = np.concatenate([order[cut[0] : cut[-1]] for cut in cuts])
    starts = np.cumsum(sizes) - sizes
    return Runs(order, starts, np.arange(len(starts)), series.tolist(), window.tolist(), is_in_order=True)


def _by_clocks(columns: Columns, edges: Integers) -> Runs:
    """Returns runs by the readings' own clocks, which may be put back: windows do not follow from time."""
    assert columns.local is not None
    window = np.searchsorted(edges, columns.local, side="right") - 1
    inside = np.flatnonzero((window >= 0) & (window < len(edges) - 1))
    series = columns.series_of_readings
    order = inside[np.lexsort((columns.time[inside], window[inside], series[inside]))]
    series, window = series[order], window[order]
    starts = np.flatnonzero(np.append(True, (np.diff(series) != 0) | (np.diff(window) != 0))[: len(order)])
    return Runs(order, starts, np.arange(len(starts)), series[starts].tolist(), window[starts].tolist())


@dataclass(slots=True)
class State:
    """One series in one window."""

    count: int  # readings
    values: dict[str, FieldState]  # by value field
    occupied: coverage.Runs = ()  # empty where the policy expects no interval


def merge(fields: FieldStatistics, one: State, other: State) -> State:
    """Returns the state of both together. Associative and commutative."""
    values = {
        name: tuple(
            [it.merge(a, b) for it, a, b in zip(kinds, one.values[name], other.values[name], strict=True)]
        )
        for name, kinds in fields.items()
    }
    return State(one.count + other.count, values, coverage.union(one.occupied, other.occupied))


def closed(fields: FieldStatistics, state: State, window: tuple[int, int]) -> State:
    """Returns what is shown of a state in a window (milliseconds). Such states of several series merge."""
    values = {
        name: tuple([it.close(a, window) for it, a in zip(kinds, state.values[name], strict=True)])
        for name, kinds in fields.items()
    }
    return State(state.count, values, state.occupied)


@phase("sum")
def aggregate(
    columns: Columns,
    edges: Integers,
    fields: FieldStatistics,
    *,
    interval: int | None = None,
    local: bool = False,
) -> list[tuple[int, int, State]]:
    """Returns the state of every (series, window) that has a reading, in that order, as (index into
    columns.series, index of the window, state).

    `fields`: the statistics of each value field. `edges`: n + 1 ascending milliseconds for n adjoining
    windows. Readings outside them are left out.
    `interval`: in milliseconds, where the policy expects one. `local`: windows and intervals go by the
    readings' own clocks."""
    is_local = local and columns.local is not None
    in_order = interval is not None or is_ordered(fields)
    runs = runs_of(columns, edges, in_order=in_order, local=is_local)
    if not len(runs.starts):
        return []
    size = len(columns.time) if runs.order is None else len(runs.order)
    lengths = np.diff(runs.starts, append=size)
    counts = np.bincount(runs.cell, lengths).astype(np.int64).tolist()
    states = []
    for name in columns.values:
        readings = _readings(columns, name, runs, lengths)
        states.append(zip(*(it.states(readings) for it in fields[name]), strict=True))
    occupied: list[coverage.Runs] = [()] * len(counts)
    if interval is not None:
        occupied = _occupied(columns, runs, lengths, interval, is_local)
    return [
        (of_series, of_window, State(count, dict(zip(columns.values, values, strict=True)), filled))
        for of_series, of_window, count, filled, *values in zip(
            runs.series, runs.window, counts, occupied, *states, strict=True
        )
    ]


def _occupied(
    columns: Columns, runs: Runs, lengths: Integers, interval: int, is_local: bool
) -> list[coverage.Runs]:
    clock = columns.local if is_local and columns.local is not None else columns.time
    ticks = clock if runs.order is None else clock[runs.order]
    if is_local:
        ticks = ticks[np.lexsort((ticks, np.repeat(runs.cell, lengths)))]
    return coverage.build(ticks, runs.starts, interval)


def _readings(columns: Columns, name: str, runs: Runs, lengths: Integers) -> FieldReadings:
    """Returns the readings of one value field, by cell."""
    order, cells = runs.order, len(runs.series)
    kinds, values = columns.kinds[name], columns.values[name]
    finite = kinds == ValueKind.FINITE
    if order is not None:
        values = values[order]
        if not finite.all():
            kinds, finite = kinds[order], finite[order]
        else:
            finite = finite[: len(order)]
    excluded = [[0] * cells] * 2
    if not finite.all():
        of_reading = np.repeat(runs.cell, lengths)
        excluded = [
            np.bincount(of_reading[kinds == kind], minlength=cells).tolist()
            for kind in (ValueKind.NONFINITE, ValueKind.NONNUMERIC)
        ]
    found = _chosen(columns, runs, values, finite, excluded)
    if name not in columns.states:
        return found
    states = columns.states[name]
    codes = states.codes if order is None else states.codes[order]
    places = _chosen(columns, runs, codes.astype(np.float64), codes != NO_STATE, excluded)
    return replace(found, states=StateReadings(places, states.names))


def _chosen(
    columns: Columns,
    runs: Runs,
    values: NDArray[np.float64],
    chosen: NDArray[np.bool_],
    excluded: Sequence[Sequence[int]],
) -> FieldReadings:
    """Returns some of the readings, by cell. `values`, `chosen`: in the order of the runs."""
    order, starts, cell, cells = runs.order, runs.starts, runs.cell, len(runs.series)
    filled = np.arange(cells)
    if not chosen.all():
        kept = np.flatnonzero(chosen)
        lengths = np.diff(np.searchsorted(kept, np.append(starts, len(chosen))))
        order, values = kept if order is None else order[kept], values[kept]
        cell, lengths = cell[lengths > 0], lengths[lengths > 0]
        starts = np.cumsum(lengths) - lengths
        filled, cell = np.unique(cell, return_inverse=True)
    numbers = Numbers(values, starts, cell) if len(values) else None
    if numbers is not None and runs.is_in_order:
        numbers = numbers.cut(LENGTH)
    nonfinite, nonnumeric = excluded
    return FieldReadings(columns, cells, numbers, order, filled, nonfinite, nonnumeric)
