"""Rows of a coverage: UTC days, or their hours, side by side; and counts by them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.columns import Columns
from bucketwise.buckets.decoding.decode import Decoded
from bucketwise.buckets.fields.selectors import Selector, selected
from bucketwise.buckets.fields.times import DAY_MS
from bucketwise.config.policies import Policy

Counts = NDArray[np.int64]
Flags = NDArray[np.bool_]
Span = tuple[int, int]  # [start, end) in milliseconds


@dataclass(frozen=True)
class Grid:
    """Adjoining rows of `step` milliseconds that make up whole UTC days."""

    start: int
    end: int
    step: int

    @classmethod
    def around(cls, start_ms: int, end_ms: int, step: int) -> Grid:
        """Returns the rows of the whole days that touch a range."""
        return cls(start_ms // DAY_MS * DAY_MS, -(-end_ms // DAY_MS) * DAY_MS, step)

    def __len__(self) -> int:
        return (self.end - self.start) // self.step

    @property
    def spans(self) -> list[Span]:
        """Returns from when to when each row is."""
        return [(at, at + self.step) for at in range(self.start, self.end, self.step)]

    def rows(self, first_ms: int, last_ms: int) -> slice:
        """Returns the rows from one instant to another, as far as they are among these."""
        first, last = ((ms - self.start) // self.step for ms in (first_ms, last_ms))
        return slice(max(0, first), max(0, last + 1))

    def count(self, times: NDArray[np.int64]) -> Counts:
        """Returns how many of these times lie in each row."""
        inside = times[(times >= self.start) & (times < self.end)]
        return np.asarray(np.bincount((inside - self.start) // self.step, minlength=len(self)))

    def zeros(self) -> Counts:
        """Returns a count of zero for each row."""
        return np.zeros(len(self), dtype=np.int64)

    def by_day(self, counts: Counts) -> Counts:
        """Returns the sums of each day's rows."""
        return np.asarray(counts.reshape(-1, DAY_MS // self.step).sum(axis=1))


@dataclass
class Tally:
    """Readings by row: all, and those of the series asked for, with the buckets that hold them. `bytes`: of
    all buckets, each in the row of its first reading."""

    grid: Grid
    policy: Policy
    selector: Selector
    all: Counts = field(init=False)
    readings: Counts = field(init=False)
    buckets: Counts = field(init=False)
    bytes: Counts = field(init=False)

    def __post_init__(self) -> None:
        self.all, self.readings, self.buckets, self.bytes = (self.grid.zeros() for _ in range(4))

    def add(self, batch: Batch, decoded: Decoded) -> None:
        """Counts the readings and bytes of some buckets. `decoded`: the same buckets, decoded."""
        columns, grid = decoded.columns, self.grid
        first = decoded.spans()[:, 0]
        begins = columns.filled[(first[columns.filled] >= grid.start) & (first[columns.filled] < grid.end)]
        rows = (first[begins] - grid.start) // grid.step
        np.add.at(self.bytes, rows, batch.sizes[decoded.units[begins]])
        self.all += grid.count(columns.time)
        mine = self.chosen(columns)
        self.readings += self.grid.count(columns.time[mine])
        self.buckets += self.rows_of(columns, mine)

    def chosen(self, columns: Columns) -> Flags:
        """Returns which readings are of the series asked for, (n,)."""
        return selected(columns.series, self.policy, self.selector)[columns.series_of_readings]

    def rows_of(self, columns: Columns, readings: Flags) -> Counts:
        """Returns how many buckets have some of these readings in each row."""
        grid, times = self.grid, columns.time
        at = np.flatnonzero(readings & (times >= grid.start) & (times < grid.end))
        pairs = (times[at] - grid.start) // grid.step * len(columns.lengths) + columns.bucket[at]
        rows = np.unique(pairs) // max(1, len(columns.lengths))
        return np.asarray(np.bincount(rows, minlength=len(grid)))
