"""The mergeable state of one series in one window, and building it from columns.

The same readings give the same state, to the bit, however they were split and in whatever order they merge.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.columns import Columns, ValueKind
from bucketwise.rollups.statistics import FieldState, FieldStatistics
from bucketwise.rollups.statistics.base import FieldReadings, Numbers
from bucketwise.rollups.summaries import coverage
from bucketwise.rollups.summaries.runs import Runs, runs_of

Integers = NDArray[np.int64]


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
    runs = runs_of(columns, edges, in_order=interval is not None, local=is_local)
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
    order, starts, cell, cells = runs.order, runs.starts, runs.cell, len(runs.series)
    kinds, values = columns.kinds[name], columns.values[name]
    if order is not None:
        kinds, values = kinds[order], values[order]
    finite = kinds == ValueKind.FINITE
    filled, excluded = np.arange(cells), [[0] * cells] * 2
    if not finite.all():
        of_reading = np.repeat(cell, lengths)
        excluded = [
            np.bincount(of_reading[kinds == kind], minlength=cells).tolist()
            for kind in (ValueKind.NONFINITE, ValueKind.NONNUMERIC)
        ]
        kept = np.flatnonzero(finite)
        lengths = np.diff(np.searchsorted(kept, np.append(starts, len(kinds))))
        order, values = kept if order is None else order[kept], values[kept]
        cell, lengths = cell[lengths > 0], lengths[lengths > 0]
        starts = np.cumsum(lengths) - lengths
        filled, cell = np.unique(cell, return_inverse=True)
    numbers = Numbers(values, starts, cell) if len(values) else None
    return FieldReadings(columns, cells, numbers, order, filled, *excluded)
