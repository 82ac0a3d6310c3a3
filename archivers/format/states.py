"""States files: what the readings of a section amount to in the windows of summaries. They stand in for its
parts where these are cold, so that a late reading is counted without a thaw.

A file has a row: `settings` says what the states were made with, and `summaries` has them as summaries back
to back, one for each series and stretch of time between the edges of windows.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from zoneinfo import ZoneInfo

import bson
import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.columns import Columns, Series
from bucketwise.buckets.decoding.decode import BucketSet
from bucketwise.buckets.models.series import series_key
from bucketwise.config.policies import Policy
from bucketwise.config.tables import COLD
from bucketwise.config.written import fingerprint, layout_fingerprint
from bucketwise.rollups.calendar.levels import LOCAL, Span, levels_of
from bucketwise.rollups.calendar.windows import day_edges, to_ms
from bucketwise.rollups.rolling.slices import reads_at_once
from bucketwise.rollups.statistics import statistics_of
from bucketwise.rollups.summaries import documents
from bucketwise.rollups.summaries.coverage import interval_of
from bucketwise.rollups.summaries.summary import State, aggregate

#: How many readings a state has to stand for on average, unless there are few: states stay in a class that
#: costs many times as much as that of the parts.
LEAST_READINGS, FEW_STATES = 50, 500
#: Of how many cells states are made at once.
_AT_ONCE = 200_000
#: The edges of cells (milliseconds), by whether they go by the readings' own clocks.
Edges = Mapping[bool, Sequence[int]]


class CellState(NamedTuple):
    """The state of a series in a cell. `local`: cells go by the readings' own clocks."""

    local: bool
    key: bytes
    series: Series
    cell: int
    state: State


class SectionStates(NamedTuple):
    """What a states file holds; see above."""

    settings: str
    summaries: bytes

    def are_made_with(self, policy: Policy) -> bool:
        """Returns whether they were made with the settings of a policy."""
        return self.settings == _settings(policy)

    def cells(self, policy: Policy, edges: Edges) -> Iterator[CellState]:
        """Yields the states of the cells between these edges. Raises ValueError where they were made with
        other settings, or for other windows."""
        if not self.are_made_with(policy):
            raise ValueError("the states were made with other settings")
        # Where windows go by clocks, no field is called so.
        has_clocks = any(it.local for it in levels_of(policy))
        for document in bson.decode_iter(self.summaries, documents.OPTIONS):
            local = has_clocks and document.get("timezone") == LOCAL
            start, end = to_ms(document["start"]), to_ms(document["end"])
            cuts = edges.get(local, ())
            cell = bisect_right(cuts, start) - 1
            if cell + 1 != bisect_left(cuts, end):
                raise ValueError("the states are of other windows")
            if 0 <= cell < len(cuts) - 1:
                series = documents.series_of(policy, document)
                state = documents.state_of(document, policy)
                yield CellState(local, series_key(series), series, cell, state)


def has_states(policy: Policy) -> bool:
    """Returns whether states may stand in for the readings of a policy: each reading counts by itself."""
    return policy.rollup is not None and bool(policy.rollup.targets) and not reads_at_once(policy)


def states_of(policy: Policy, buckets: BucketSet) -> SectionStates | None:
    """Returns the states of buckets whose parts are to move to a cold class; None where they don't, where
    states would not tell all that the buckets do, and where there would be too many."""
    archive = policy.archive
    if archive is None or not any(it in COLD for it in archive.moves) or not has_states(policy):
        return None
    decoded = (buckets if buckets.policy == policy else BucketSet(buckets.batch, policy)).decoded
    if decoded.quarantined:
        return None
    columns = decoded.columns
    edges = _edges(policy, columns.time)
    most = max(FEW_STATES, len(columns.time) // LEAST_READINGS)
    if sum(_count(columns, *it) for it in edges.items()) > most:
        return None
    found = (
        documents.of_cell(policy, series, span, state, local=local)
        for local, cuts in edges.items()
        for series, span, state in _states(policy, columns, cuts, local=local)
    )
    return SectionStates(_settings(policy), b"".join(sorted(found)))


def _settings(policy: Policy) -> str:
    return f"{fingerprint(policy)} {layout_fingerprint(policy)}"


def _count(columns: Columns, local: bool, edges: NDArray[np.int64]) -> int:
    """Returns how many cells of a series have a reading."""
    clock = columns.local if local and columns.local is not None else columns.time
    cells = np.searchsorted(edges, clock, side="right")
    return len(np.unique(columns.series_of_readings.astype(np.int64) * (len(edges) + 1) + cells))


def _states(
    policy: Policy, columns: Columns, edges: NDArray[np.int64], *, local: bool
) -> Iterator[tuple[Series, Span, State]]:
    """Yields the states between edges, of some windows at a time: what aggregates them has room for each
    series in each window."""
    fields, interval = statistics_of(policy), interval_of(policy)
    step = max(1, _AT_ONCE // len(columns.series))
    for at in range(0, len(edges) - 1, step):
        cuts = edges[at : at + step + 1]
        for series, cell, state in aggregate(columns, cuts, fields, interval=interval, local=local):
            yield columns.series[series], (int(cuts[cell]), int(cuts[cell + 1])), state


def _edges(policy: Policy, times: NDArray[np.int64]) -> dict[bool, NDArray[np.int64]]:
    """Returns the edges of all windows that readings at these times may be in, and those of the slices in
    which a roll-up reads."""
    assert policy.rollup is not None
    if not len(times):
        return {}
    first, last = int(times.min()), int(times.max())
    zone = ZoneInfo(policy.rollup.timezone if policy.rollup.has_days else "UTC")
    found: dict[bool, set[int]] = {}
    for level in levels_of(policy):
        start, end = first - level.reach, last + 1 + level.reach
        slices = day_edges(start, end, ZoneInfo("UTC") if level.local else zone).tolist()
        found.setdefault(level.local, set()).update(level.edges(start, end), slices)
    return {local: np.array(sorted(edges), dtype=np.int64) for local, edges in found.items()}
