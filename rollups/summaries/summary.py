"""The mergeable state of one series in one window, and building it from columns.

The same readings give the same state, to the bit, however they were split and in whatever order they merge.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import repeat
from math import inf
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.columns import Columns, ValueKind
from bucketwise.rollups.summaries import bins, coverage, exact
from bucketwise.rollups.summaries.numbers import Numbers
from bucketwise.rollups.summaries.runs import Runs, runs_of

Integers = NDArray[np.int64]


class EdgeValue(NamedTuple):
    """The first or last finite number of a window: where times tie, the lower `_id` comes first."""

    at: int  # milliseconds
    id: bytes  # the bucket's `_id`, as bytes that sort as BSON does
    value: float  # with its own bits: -0.0 stays


@dataclass(slots=True)
class ValueState:
    """One value field. Sums count in the units of `summaries.exact`; -0.0 is 0.0 in low and high."""

    count: int = 0  # finite numbers
    nonfinite: int = 0
    nonnumeric: int = 0
    total: int = 0
    squares: int = 0
    low: float = inf
    high: float = -inf
    first: EdgeValue | None = None
    last: EdgeValue | None = None
    bins: bins.Bins = field(default_factory=dict)  # empty where no percentiles are asked for


@dataclass(slots=True)
class State:
    """One series in one window."""

    count: int  # readings
    values: dict[str, ValueState]  # by value field
    occupied: coverage.Runs = ()  # empty where the policy expects no interval


def plain(state: State) -> tuple[Any, ...]:
    """Returns the state as tuples, which are pickled in a third of the time."""
    values = [
        (name, _numbers(it), it.first and tuple(it.first), it.last and tuple(it.last), it.bins)
        for name, it in state.values.items()
    ]
    return state.count, state.occupied, values


def state_of(found: tuple[Any, ...]) -> State:
    """Returns the state that `plain` gave as this."""
    count, occupied, values = found
    return State(count, {name: _value_of(*it) for name, *it in values}, occupied)


def _numbers(value: ValueState) -> tuple[float, ...]:
    counts = value.count, value.nonfinite, value.nonnumeric
    return *counts, value.total, value.squares, value.low, value.high


def _value_of(numbers: tuple[Any, ...], first: Any, last: Any, counted: bins.Bins) -> ValueState:
    value = ValueState(*numbers)
    value.first, value.last, value.bins = first and EdgeValue(*first), last and EdgeValue(*last), counted
    return value


def merge(one: State, other: State) -> State:
    """Returns the state of both together. Associative and commutative."""
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
        min((edge for edge in (one.first, other.first) if edge), key=_order, default=None),
        max((edge for edge in (one.last, other.last) if edge), key=_order, default=None),
        bins.merge(one.bins, other.bins),
    )


def _order(edge: EdgeValue) -> tuple[int, bytes, bytes]:
    """Returns a key that orders edge values. Bits decide last, so that merging commutes also where two
    documents share one `_id`."""
    return edge.at, edge.id, struct.pack(">d", edge.value)


def aggregate(
    columns: Columns, edges: Integers, *, binned: bool, interval: int | None = None, local: bool = False
) -> list[tuple[int, int, State]]:
    """Returns the state of every (series, window) that has a reading, in that order, as (index into
    columns.series, index of the window, state).

    `edges`: n + 1 ascending milliseconds for n adjoining windows. Readings outside them are left out.
    `interval`: in milliseconds, where the policy expects one. `local`: windows and intervals go by the
    readings' own clocks."""
    is_local = local and columns.local is not None
    runs = runs_of(columns, edges, in_order=interval is not None, local=is_local)
    if not len(runs.starts):
        return []
    size = len(columns.time) if runs.order is None else len(runs.order)
    lengths = np.diff(runs.starts, append=size)
    counts = np.bincount(runs.cell, lengths).astype(np.int64).tolist()
    fields = [_states(columns, name, runs, lengths, binned) for name in columns.values]
    occupied: list[coverage.Runs] = [()] * len(counts)
    if interval is not None:
        occupied = _occupied(columns, runs, lengths, interval, is_local)
    return [
        (of_series, of_window, State(count, dict(zip(columns.values, values, strict=True)), filled))
        for of_series, of_window, count, filled, *values in zip(
            runs.series, runs.window, counts, occupied, *fields, strict=True
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


def _states(columns: Columns, name: str, runs: Runs, lengths: Integers, binned: bool) -> list[ValueState]:
    """Returns one value field's state of each cell."""
    order, starts, cell, cells = runs.order, runs.starts, runs.cell, len(runs.series)
    kinds, values = columns.kinds[name], columns.values[name]
    if order is not None:
        kinds, values = kinds[order], values[order]
    finite = kinds == ValueKind.FINITE
    filled, others = np.arange(cells), [[0] * cells] * 2
    if not finite.all():
        of_reading = np.repeat(cell, lengths)
        others = [
            np.bincount(of_reading[kinds == kind], minlength=cells).tolist()
            for kind in (ValueKind.NONFINITE, ValueKind.NONNUMERIC)
        ]
        kept = np.flatnonzero(finite)
        lengths = np.diff(np.searchsorted(kept, np.append(starts, len(kinds))))
        order, values = kept if order is None else order[kept], values[kept]
        cell, lengths = cell[lengths > 0], lengths[lengths > 0]
        starts = np.cumsum(lengths) - lengths
        filled, cell = np.unique(cell, return_inverse=True)
    states = [ValueState(0, *counts) for counts in zip(*others, strict=True)]
    if len(values):
        found = _finite(columns, order, Numbers(values, starts, cell), binned)
        for at, state in zip(filled.tolist(), found, strict=True):
            state.nonfinite, state.nonnumeric = states[at].nonfinite, states[at].nonnumeric
            states[at] = state
    return states


def _finite(columns: Columns, order: Integers | None, numbers: Numbers, binned: bool) -> Iterator[ValueState]:
    """Yields the state of each group of finite numbers; `order` says which readings they are."""
    starts, lasts = numbers.starts, numbers.starts + numbers.lengths - 1
    first_readings, last_readings = (at if order is None else order[at] for at in (starts, lasts))
    # Where times tie, the first run is the one that comes first among the columns, and the last the last.
    first = _extreme(numbers, columns.time[first_readings], np.minimum, -1)
    last = _extreme(numbers, columns.time[last_readings], np.maximum, 1)
    low, high = np.full(numbers.groups, inf), np.full(numbers.groups, -inf)
    np.minimum.at(low, numbers.group, numbers.low)
    np.maximum.at(high, numbers.group, numbers.high)
    return map(
        ValueState,
        np.bincount(numbers.group, numbers.lengths).astype(np.int64).tolist(),
        repeat(0),
        repeat(0),
        *exact.sums_and_squares(numbers),
        (low + 0.0).tolist(),
        (high + 0.0).tolist(),
        _edge_values(columns, first_readings[first], numbers.values[starts[first]]),
        _edge_values(columns, last_readings[last], numbers.values[lasts[last]]),
        bins.build(numbers) if binned else [{} for _ in first],
    )


def _extreme(numbers: Numbers, times: Integers, ufunc: np.ufunc, step: Literal[1, -1]) -> Integers:
    """Returns for each group the run with the extreme time: the last of those that tie, or going backwards
    the first."""
    extreme = np.empty(numbers.groups, dtype=np.int64)
    extreme[numbers.group] = times
    ufunc.at(extreme, numbers.group, times)
    runs = np.flatnonzero(times == extreme[numbers.group])[::step]
    found = np.empty_like(extreme)
    found[numbers.group[runs]] = runs  # the last to be written stays
    return found


def _edge_values(columns: Columns, readings: Integers, values: NDArray[np.float64]) -> list[EdgeValue]:
    ids = columns.bucket_order[columns.bucket[readings]].tolist()
    return list(map(EdgeValue, columns.time[readings].tolist(), ids, values.tolist()))
