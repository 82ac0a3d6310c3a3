"""States files: what the readings of a section amount to in the windows of summaries. They stand in for its
parts where these are cold, so that a late reading is counted without a thaw.

A file has a row: `settings` says what the states were made with, and `summaries` has them as summaries back
to back, one for each series and stretch of time between the edges of windows.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
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
from bucketwise.rollups.calendar.levels import Span, levels_of
from bucketwise.rollups.calendar.windows import day_edges, to_ms
from bucketwise.rollups.rolling.slices import reads_at_once
from bucketwise.rollups.statistics import statistics_of
from bucketwise.rollups.summaries import documents
from bucketwise.rollups.summaries.coverage import interval_of
from bucketwise.rollups.summaries.summary import State, aggregate

#: How many readings a state has to stand for on average, unless there are few: states stay in a class that
#: costs many times as much as that of the parts.
LEAST_READINGS, FEW_STATES = 50, 500
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

    def cells(self, policy: Policy, edges: Edges) -> Iterator[CellState]:
        """Yields the states of the cells between these edges. Raises ValueError where they were made with
        other settings, or for other windows."""
        if self.settings != _settings(policy):
            raise ValueError("the states were made with other settings")
        for document in bson.decode_iter(self.summaries, documents.OPTIONS):
            local = "timezone" in document
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
    found = list(_states(policy, decoded.columns))
    if len(found) > max(FEW_STATES, len(decoded.columns.time) // LEAST_READINGS):
        return None
    cells = (documents.of_cell(policy, series, span, state, local=it) for it, series, span, state in found)
    return SectionStates(_settings(policy), b"".join(cells))


def _settings(policy: Policy) -> str:
    return f"{fingerprint(policy)} {layout_fingerprint(policy)}"


def _states(policy: Policy, columns: Columns) -> Iterator[tuple[bool, Series, Span, State]]:
    if not len(columns.time):
        return
    fields, interval = statistics_of(policy), interval_of(policy)
    for local, edges in _edges(policy, int(columns.time.min()), int(columns.time.max())).items():
        cells = list(pairwise(edges.tolist()))
        for series, cell, state in aggregate(columns, edges, fields, interval=interval, local=local):
            yield local, columns.series[series], cells[cell], state


def _edges(policy: Policy, first: int, last: int) -> dict[bool, NDArray[np.int64]]:
    """Returns the edges of all windows that readings from first to last may be in, and those of the slices in
    which a roll-up reads."""
    assert policy.rollup is not None
    zone = ZoneInfo(policy.rollup.timezone if policy.rollup.has_days else "UTC")
    found: dict[bool, set[int]] = {}
    for level in levels_of(policy):
        start, end = first - level.reach, last + 1 + level.reach
        slices = day_edges(start, end, ZoneInfo("UTC") if level.local else zone).tolist()
        found.setdefault(level.local, set()).update(level.edges(start, end), slices)
    return {local: np.array(sorted(edges), dtype=np.int64) for local, edges in found.items()}
