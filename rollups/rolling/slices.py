"""Reading one slice of time into mergeable states: the part of a roll-up that writes nothing.

So it may be done anywhere, by several at once. What it gives is taken in the order of time, by the run that
writes: see `rollups.rolling.rollup`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from buckets.bson.raw import Batch
from buckets.columns import Quarantined, Series
from buckets.decoding.decode import decode
from buckets.decoding.local import LARGEST_MS
from buckets.layouts.groups import Unions
from buckets.models.series import series_key
from buckets.source import Source
from config.policies import Policy
from rollups.calendar.levels import Span
from rollups.summaries.coverage import interval_of
from rollups.summaries.summary import State, aggregate, merge
from rollups.tasks import at_once

Document = dict[str, Any]
Archived = Callable[[int, int], Iterable[Batch]]
#: Bytes of a state of one value field, and of a bin of it, as Python holds them: about.
_STATE, _BIN = 1000, 100


@dataclass(frozen=True)
class Share:
    """A part of the live buckets, by the first series field: not before any of `low`, and before `high`.

    Shares of the same bounds hold each bucket once, whatever stands in the field, or nothing, and in whatever
    order the bounds are to the server: only comparisons of an expression go across types, and each of two
    shares asks for the contrary of the other.
    """

    low: Sequence[Any] = ()
    high: Sequence[Any] = ()  # one value, or none

    def query(self, policy: Policy) -> Document | None:
        field_name = f"${policy.series_fields[0]}" if policy.series_fields else ""
        asked = [("$gte", it) for it in self.low] + [("$lt", it) for it in self.high]
        parts = [{"$expr": {operator: [field_name, {"$literal": it}]}} for operator, it in asked]
        return {"$and": parts} if parts else None


WHOLE = Share()


def shares(bounds: Sequence[Any]) -> list[Share]:
    """One more than there are bounds."""
    return [Share(bounds[:at], bounds[at : at + 1]) for at in range(len(bounds) + 1)]


@dataclass(frozen=True)
class Asked:
    """What to read: the readings in the cells between these edges (milliseconds), by whether the cells go by
    the readings' own clocks; of one share of the live buckets, the archived ones with the first. `is_plain`:
    the times of all live ones are plain, as who asks has seen. See `Source.look_at_texts`."""

    edges: Mapping[bool, Sequence[int]]
    share: Share = WHOLE
    is_plain: bool = False


@dataclass
class Cells:
    """The states of one slice of time: of each series in each cell, cells being what windows are made of."""

    edges: Sequence[int]  # of the cells
    series: dict[bytes, Series] = field(default_factory=dict)
    states: dict[tuple[bytes, int], State] = field(default_factory=dict)

    def add(self, key: bytes, series: Series, cell: int, state: State) -> None:
        self.series.setdefault(key, series)
        standing = self.states.get((key, cell))
        self.states[key, cell] = state if standing is None else merge(standing, state)

    def by_window(self, windows: Mapping[Span, Span]) -> dict[tuple[bytes, Span], State]:
        """Returns the states of windows. `windows`: which window a span of whole cells is a part of."""
        at = {edge: number for number, edge in enumerate(self.edges)}
        window_of = {
            cell: window for (start, end), window in windows.items() for cell in range(at[start], at[end])
        }
        merged: dict[tuple[bytes, Span], State] = {}
        for (key, cell), state in self.states.items():
            window = window_of.get(cell)
            if window is not None:
                standing = merged.get((key, window))
                merged[key, window] = state if standing is None else merge(standing, state)
        return merged


@dataclass
class Found:
    """What a slice holds; by whether its cells go by the readings' own clocks."""

    cells: dict[bool, Cells]
    quarantined: list[Quarantined] = field(default_factory=list)

    def add(self, other: Found) -> None:
        """What another share of the same slice holds."""
        for local, cells in other.cells.items():
            for (key, cell), state in cells.states.items():
                self.cells[local].add(key, cells.series[key], cell, state)
        self.quarantined += other.quarantined

    def size(self) -> int:
        """Bytes that it takes in memory, about."""
        states = [state for cells in self.cells.values() for state in cells.states.values()]
        return sum(_STATE + _BIN * len(value.bins) for state in states for value in state.values.values())


@dataclass(frozen=True)
class Reader:
    """How slices are read. `read(asked)` may be under way for several at once; `memory` (bytes) is what those
    that wait for their turn may take."""

    read: Callable[[Asked], Future[Found]]
    workers: int = 1  # slices that are read at once; 1: each when it is asked for
    memory: int = 0

    def ahead(self, size: int) -> int:
        """How many may be under way, where each is of this size."""
        if self.workers == 1:
            return 1
        most = 2 * self.workers  # while one is written, nobody has to wait
        return max(1, min(most, self.memory // size if size else most))


def here(source: Source, archived: Archived, policy: Policy) -> Reader:
    """Slices are read in this process, one after another."""
    unions = Unions()
    return Reader(lambda asked: at_once(read, source, archived, policy, asked, unions))


def read(source: Source, archived: Archived, policy: Policy, asked: Asked, unions: Unions) -> Found:
    """Live and archived buckets alike; of one that reaches over a slice's rim, what is inside.
    `archived(start_ms, end_ms)` gives archived ones that may hold a reading in the range and are not live."""
    found = Found({local: Cells(edges) for local, edges in asked.edges.items()})
    start = min(edges[0] - local * LARGEST_MS for local, edges in asked.edges.items())
    end = max(edges[-1] + local * LARGEST_MS for local, edges in asked.edges.items())
    binned = bool(policy.rollup and policy.rollup.percentiles)
    interval = interval_of(policy)
    live = (source.rough if asked.is_plain else source).batches(start, end, asked.share.query(policy))
    for batch in chain(live, () if asked.share.low else archived(start, end)):
        decoded = decode(batch, policy, unions)
        found.quarantined += decoded.quarantined
        columns = decoded.columns
        keys = [series_key(series) for series in columns.series]
        for local, cells in found.cells.items():
            edges = np.array(cells.edges, dtype=np.int64)
            for series, cell, state in aggregate(
                columns, edges, binned=binned, interval=interval, local=local
            ):
                cells.add(keys[series], columns.series[series], cell, state)
    return found
