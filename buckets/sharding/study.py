"""One shard key on drawn documents: its pattern, its load, and what MongoDB's rules say of it.

A shard key's values are cells in their order. Ranges of them belong to shards; their bounds may lie inside a
cell, unless it is of one value. In each window of time documents are written where their range is; then the
balancer moves ranges, the lowest first, from the shard with most data to the one with least, until these are
less than three range sizes apart. No range holds a cell of one value that is larger than it: that is jumbo,
and stays.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.bson.cursor import keeps_ids_unique
from bucketwise.buckets.models import model_of
from bucketwise.buckets.sharding.keys import (
    DrawnDocuments,
    Query,
    ShardKey,
    Span,
    hash_bound,
    numbered,
    rank_correlation,
    spans,
)
from bucketwise.config.policies import Policy

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


#: Of a key that is monotonic. And of a field that new values come to: this share of the documents has a
#: value of its own; of one where nearly all have, it is half of them.
_MONOTONIC, _GROWING, _UNIQUE = 0.9, 0.1, 0.5
#: A field that ascends is coarse where so many documents share a value.
_COARSE = 20
#: Drawn documents in a window, and windows at most.
_WINDOW_DOCUMENTS, _MAX_WINDOWS = 500, 48
#: Documents of one value that are needed to tell its share.
_CERTAIN = 5
#: Slices that stand for hashes, where these are all different.
_SLICES = 512


@dataclass(frozen=True)
class Study:
    """A shard key on drawn documents. `growth`: how many times the documents of the collection there are to
    be."""

    drawn: DrawnDocuments
    key: ShardKey
    shards: int
    growth: float = 1.0

    @cached_property
    def values(self) -> list[bytes]:
        """Returns the key of each document."""
        return self.drawn.keys(self.key)

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """Returns how many documents have each distinct value, in the order of the values."""
        return np.bincount(self._numbers)

    @cached_property
    def _numbers(self) -> NDArray[np.int64]:
        return numbered(self.values)

    @property
    def most_frequent(self) -> float:
        """Returns the share of the documents that have the most frequent value."""
        return float(self.counts.max()) / len(self.drawn)

    @cached_property
    def correlation(self) -> float:
        """Returns the rank correlation of the key with the order of arrival."""
        return rank_correlation(self._numbers, self.drawn.arrived)

    @property
    def is_monotonic(self) -> bool:
        """Returns whether values of the key rise or fall with the order of inserts, so that inserts go to one
        shard."""
        return abs(self.correlation) >= _MONOTONIC

    @cached_property
    def is_growing(self) -> bool:
        """Returns whether more documents bring more values: in any of its fields."""
        return any(
            self.drawn.columns[path].single >= _GROWING or self._ascends(path) for path in self.key.paths
        )

    def _ascends(self, path: str) -> bool:
        return abs(self.drawn.arrival_correlations[path]) >= _MONOTONIC

    @cached_property
    def pattern(self) -> tuple[str, str]:
        """Returns what kind of key it is, and why."""
        paths, count = self.key.paths, len(self.counts)
        first, later = paths[0], paths[1:]
        if self.key.is_hashed_first:
            return "hashed", f"by the hash of {first}, documents are spread whatever their order"
        if self._ascends(first):
            reason = f"{first} grows as documents arrive (by {self.drawn.arrival_by})"
            if not later:
                return "ascending", f"{reason}: every insert goes to the last range, on one shard"
            if len(self.drawn) >= _COARSE * (int(self.drawn.columns[first].numbers.max()) + 1):
                return (
                    "multi-hotspot",
                    f"{reason} in coarse steps; {later[0]} spreads each over ranges",
                )
            return (
                "firehose",
                f"{reason}: every insert goes to one shard, which zones can make the strong one",
            )
        if ascending := next((path for path in later if self._ascends(path)), None):
            return "multi-hotspot", f"each value of {first} has a place of its own, where {ascending} ascends"
        if self.drawn.columns[first].single >= _UNIQUE:
            return "random", f"nearly every document has its own {first}, in no order of arrival"
        return "location", f"documents of one {first} lie together ({count:,} values in the sample)"

    @cached_property
    def cells(self) -> list[bytes]:
        """Returns the first key of each cell."""
        if self._is_even:
            return [hash_bound(number, _SLICES) for number in range(_SLICES)]
        return sorted(set(self.values))

    @cached_property
    def _is_even(self) -> bool:
        """Returns whether hashes are all different, so that each slice of them has as much as any other."""
        return self.key.is_hashed_first and self.drawn.columns[self.key.paths[0]].single >= _UNIQUE

    @cached_property
    def windows(self) -> list[NDArray[np.int64]]:
        """Returns the documents that arrived in each window: windows have about equally many."""
        count = max(1, min(_MAX_WINDOWS, len(self.drawn) // _WINDOW_DOCUMENTS))
        return np.array_split(self.drawn.arrived.argsort(kind="stable"), count)

    @cached_property
    def placed(self) -> SimulationResult:
        """Returns on which shards the documents end up."""
        return simulate(self._flow, self.shards)

    @cached_property
    def cuts(self) -> list[int]:
        """Returns the cells at which to split beforehand: none where inserts go to one end anyway."""
        if self.key.is_hashed_first:
            bounds = [hash_bound(number, self.shards) for number in range(1, self.shards)]
            places = [bisect_left(self.cells, it) for it in bounds]
        elif self.is_monotonic:
            return []
        else:
            places = self._quantiles(np.cumsum(self.counts) / len(self.drawn))
        return sorted({it for it in places if 0 < it < len(self.cells)})

    def _quantiles(self, below: NDArray[np.float64]) -> list[int]:
        """Cells that part the documents evenly; where a value of the first field begins, if one does nearby,
        or each has a range that grows at its end."""
        wanted = np.arange(1, self.shards) / self.shards
        firsts = np.flatnonzero(np.diff(self._first_of_cells)) + 1
        shares = np.concatenate([[0.0], below])
        places = []
        for share in wanted.tolist():
            place = int(np.abs(shares - share).argmin())
            if len(firsts):
                near = int(firsts[np.abs(shares[firsts] - share).argmin()])
                if self.pattern[0] == "multi-hotspot" or abs(shares[near] - share) * 4 * self.shards <= 1:
                    place = near
            places.append(place)
        return places

    @cached_property
    def _first_of_cells(self) -> NDArray[np.int64]:
        found = np.zeros(len(self.counts), dtype=np.int64)
        found[self._numbers] = self.drawn.columns[self.key.paths[0]].numbers
        return found

    def begins_value(self, cell: int) -> bool:
        """Returns whether a cell is the first of a value of the first field."""
        return bool(self._first_of_cells[cell] != self._first_of_cells[cell - 1])

    def row_of(self, cell: int) -> int:
        """Returns a drawn document whose key begins a cell."""
        return self.values.index(self.cells[cell])

    @property
    def _flow(self) -> SimulationInput:
        scale = self.growth * self.drawn.documents / len(self.drawn)
        mean = self.drawn.data / max(1, self.drawn.documents) / max(1.0, float(self.drawn.sizes.mean()))
        sizes = self.drawn.sizes * mean
        shape = (len(self.windows), len(self.cells))
        writes, data = np.zeros(shape), np.zeros(shape)
        for window, rows in enumerate(self.windows):
            if self._is_even:
                writes[window], data[window] = len(rows) / _SLICES, sizes[rows].sum() / _SLICES
            else:
                writes[window] = np.bincount(self._numbers[rows], minlength=shape[1])
                data[window] = np.bincount(self._numbers[rows], sizes[rows], shape[1])
        solid = np.full(shape[1], not self.is_growing)
        if self.is_growing and not self._is_even:
            # However many documents come, each value has as many as now.
            solid = (self.counts >= _CERTAIN) & (
                self.counts / len(self.drawn) * self.drawn.data > RANGE_BYTES
            )
        return SimulationInput(writes * scale, data * scale, solid, self.cuts)

    def targeted(self, queries: Sequence[Query]) -> float:
        """Returns the share of the queries that one shard answers."""
        single = sum(len(self._shards_of(spans(self.key, query))) <= 1 for query in queries)
        return single / max(1, len(queries))

    def _shards_of(self, wanted: Iterable[Span]) -> set[int]:
        found: set[int] = set()
        for low, high in wanted:
            if self._is_even:
                first, behind = bisect_right(self.cells, low) - 1, bisect_left(self.cells, high)
            else:
                first, behind = bisect_left(self.cells, low), bisect_left(self.cells, high)
            first = max(0, min(first, behind - 1))
            found |= self.placed.shards_of(first, max(behind, first + 1))
        return found


class Rule(NamedTuple):
    """A remark on a key. `severity`: "error" where MongoDB refuses the key, "warning" where it is costly,
    else "note"."""

    rule: str
    severity: str
    message: str


def refusals(key: ShardKey, policy: Policy, native: dict[str, Any] | None) -> list[Rule]:
    """Returns why MongoDB rejects this key, as far as names tell. `native`: the options of a native
    time-series collection."""
    found = []
    hashed = [path for path, is_hashed in key.fields if is_hashed]
    if len(hashed) > 1:
        found.append(Rule("one-hashed", "error", f"{', '.join(hashed)}: only one field may be hashed"))
    model = model_of(policy)
    arrays = [".".join(it) for it in (model.array, model.attributes and model.attributes.array) if it]
    for path in key.paths:
        if "*" in path or any(path.startswith(f"{it}.") for it in arrays):
            found.append(Rule("no-arrays", "error", f"{path} lies in an array; no field of a key may"))
    if native is not None:
        found += _native(key, str(native["timeField"]), native.get("metaField"))
    return found


def _native(key: ShardKey, time: str, meta: str | None) -> Iterator[Rule]:
    for path in key.paths:
        if path != time and (meta is None or path.split(".")[0] != meta):
            fields = " and ".join(filter(None, (meta, time)))
            message = f"{path}: a time-series collection is sharded by {fields} alone"
            yield Rule("time-series", "error", message)
    if time in key.paths[:-1] or (time, True) in key.fields:
        yield Rule("time-series", "error", f"{time} has to be the last field, in ascending order")
    elif time in key.paths:
        yield Rule("time-series", "warning", f"MongoDB 8.0 deprecates {time} in the key of a time-series")


def remarks(study: Study, policy: Policy) -> Iterator[Rule]:
    """Yields what is to be known of a key that MongoDB would take, by these documents; first of all
    arrays."""
    key, distinct = study.key, len(study.counts)
    for path in key.paths:
        if study.drawn.columns[path].has_arrays:
            yield Rule("no-arrays", "error", f"{path} is or lies in an array in some documents; none may")
        if missing := study.drawn.columns[path].missing:
            message = f"{missing:.1%} of the documents have no {path}: these all lie under null"
            yield Rule("missing", "warning", message)
    if not study.is_growing and distinct < study.shards:
        message = f"distinct values: {distinct}. No more of the {study.shards} shards can have data"
        yield Rule("cardinality", "warning", message)
    if study.placed.jumbo:
        message = f"{study.placed.jumbo} values have more data than a range may have: jumbo, they can't move"
        yield Rule("jumbo", "warning", message)
    model = model_of(policy)
    if written := [
        it for it in key.paths if any(f"{it}.".startswith(f"{path}.") for path in model.changing_fields)
    ]:
        message = (
            f"{', '.join(written)} changes as buckets fill: allowed since 4.2, but each change may move it"
        )
        yield Rule("immutable", "warning", message)
    if model.keeps_ids_unique and not keeps_ids_unique(key.document):
        yield Rule("unique-id", "note", UNIQUE)


UNIQUE = (
    "MongoDB keeps _id unique inside a shard only: let drivers make ObjectIds. A run that meets two "
    "documents with one _id halts, and deletes nothing"
)
