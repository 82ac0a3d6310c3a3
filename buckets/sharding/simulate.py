"""What shards take over time, as MongoDB 6.0 and later place data: by its size, in ranges of 128 MB.

A shard key's values are cells in their order. Ranges of them belong to shards; their bounds may lie inside a
cell, unless it is of one value. In each window of time documents are written where their range is; then the
balancer moves ranges, the lowest first, from the shard with most data to the one with least, until these are
less than three range sizes apart. No range holds a cell of one value that is larger than it: that is jumbo,
and stays.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
RANGE_BYTES = 128 << 20
_THRESHOLD = 3
#: With more data than so many ranges, several are moved as one: it takes no longer.
_MAX_RANGES = 5000


@dataclass(frozen=True)
class SimulationInput:
    """The documents of a simulation, and where they start. `solid`: k, the cells of one value each;
    `cuts`: the cells at which ranges begin when the collection is sharded, each range on the next
    shard."""

    writes: Floats  # w windows × k cells: documents
    data: Floats  # w × k: bytes
    solid: NDArray[np.bool_]
    cuts: Sequence[int] = ()


@dataclass(frozen=True)
class SimulationResult:
    """The result of a simulation. `starts` and `owners` are the ranges at the end."""

    writes: Floats  # w × shards: documents
    data: Floats  # w × shards: bytes that a shard has after each window
    migrations: int
    jumbo: int
    starts: Floats
    owners: NDArray[np.int64]

    @property
    def hottest(self) -> float:
        """Returns the largest share of the writes of a window that one shard takes."""
        totals = self.writes.sum(axis=1)
        return float((self.writes.max(axis=1)[totals > 0] / totals[totals > 0]).max(initial=0.0))

    def shards_of(self, first: float, behind: float) -> set[int]:
        """Returns which shards have a part of [first, behind), in cells."""
        low = int(np.searchsorted(self.starts, first, side="right")) - 1
        high = int(np.searchsorted(self.starts, behind, side="left"))
        return set(self.owners[low : max(high, low + 1)].tolist())


def simulate(flow: SimulationInput, shards: int, range_bytes: float = RANGE_BYTES) -> SimulationResult:
    """Returns on which shards the documents end up."""
    count, cells = flow.data.shape
    ranges = _Ranges(flow, shards, range_bytes)
    writes, data = np.zeros((count, shards)), np.zeros((count, shards))
    stored = np.zeros(cells)
    for window in range(count):
        writes[window] = ranges.per_shard(flow.writes[window])
        stored = stored + flow.data[window]
        data[window] = ranges.balance(stored)
    jumbo = int((flow.solid & (stored > range_bytes)).sum())
    migrations = round(ranges.moves * ranges.size / range_bytes)
    return SimulationResult(writes, data, migrations, jumbo, *ranges.bounds())


class _Ranges:
    """The ranges and their shards: each range by its start, and the starts of each shard, the lowest
    first."""

    def __init__(self, flow: SimulationInput, shards: int, range_bytes: float) -> None:
        self._solid, self._shards, self._largest = flow.solid, shards, range_bytes
        self.size = max(range_bytes, float(flow.data.sum()) / _MAX_RANGES)
        self.moves = 0
        starts = [0.0, *map(float, flow.cuts)]
        ends = [*starts[1:], float(len(flow.solid))]
        self._ends = dict(zip(starts, ends, strict=True))
        self._owners = {start: number % shards for number, start in enumerate(starts)}
        self._lowest: list[list[float]] = [
            [start for start in starts if self._owners[start] == shard] for shard in range(shards)
        ]

    def bounds(self) -> tuple[Floats, NDArray[np.int64]]:
        """Returns starts, in order, and owners of the ranges."""
        starts = sorted(self._ends)
        return np.array(starts), np.array([self._owners[it] for it in starts], dtype=np.int64)

    def per_shard(self, cells: Floats) -> Floats:
        """Returns how much of what is in the cells each shard has."""
        starts, owners = self.bounds()
        below = _interpolated(np.append(starts, len(cells)), _summed(cells))
        return np.bincount(owners, np.diff(below), self._shards).astype(np.float64)

    def balance(self, data: Floats) -> Floats:
        """Moves ranges until the shards are balanced, as far as they can be. Returns the bytes of each."""
        sizes, below = self.per_shard(data), _summed(data)
        jumbo = np.flatnonzero(self._solid & (data > self._largest))
        stuck: list[tuple[int, float]] = []
        while True:
            target = int(sizes.argmin())
            for shard in np.argsort(-sizes, kind="stable").tolist():
                if sizes[shard] - sizes[target] < _THRESHOLD * self.size:
                    moved = 0.0
                    break
                if moved := self._move(shard, target, below, jumbo, stuck):
                    sizes[shard] -= moved
                    sizes[target] += moved
                    break
            if not moved:
                break
        for shard, start in stuck:
            heapq.heappush(self._lowest[shard], start)
        return sizes

    def _move(
        self, shard: int, target: int, below: Floats, jumbo: NDArray[np.int64], stuck: list[tuple[int, float]]
    ) -> float:
        """Moves the lowest range of a shard that can be moved. Returns its bytes; 0 where there is none."""
        starts = self._lowest[shard]
        while starts:
            start = heapq.heappop(starts)
            end = self._ends[start]
            at = int(np.searchsorted(jumbo, int(start)))
            stop = min(end, float(jumbo[at])) if at < len(jumbo) else end
            if stop <= start:  # it begins with what is jumbo
                stuck.append((shard, start))
                if start + 1 < end:
                    self._cut(start, start + 1, shard)
                continue
            cut = min(stop, self._reach(start, below))
            moved = float(np.diff(_interpolated(np.array([start, cut]), below))[0])
            if moved <= 0:
                stuck.append((shard, start))
                if cut < end:
                    self._cut(start, cut, shard)
                continue
            if cut < end:
                self._cut(start, cut, shard)
            self._owners[start] = target
            heapq.heappush(self._lowest[target], start)
            self.moves += 1
            return moved
        return 0.0

    def _reach(self, start: float, below: Floats) -> float:
        """Returns how far a range reaches that begins there and is as large as one may be."""
        target = float(_interpolated(np.array([start]), below)[0]) + self.size
        cell = int(np.searchsorted(below, target, side="right")) - 1
        if cell >= len(self._solid):
            return float(len(self._solid))
        if self._solid[cell]:
            return float(cell if cell > start else cell + 1)
        return float(cell + (target - below[cell]) / (below[cell + 1] - below[cell]))

    def _cut(self, start: float, at: float, shard: int) -> None:
        self._ends[start], self._ends[at] = at, self._ends[start]
        self._owners[at] = shard
        heapq.heappush(self._lowest[shard], at)


def _summed(cells: Floats) -> Floats:
    return np.concatenate([[0.0], np.cumsum(cells)])


def _interpolated(places: Floats, below: Floats) -> Floats:
    """Returns how much lies below each place, in cells; evenly spread inside a cell."""
    return np.interp(places, np.arange(len(below)), below)
