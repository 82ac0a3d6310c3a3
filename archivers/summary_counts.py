"""Counts the readings of each row by summaries, where whole windows make up the row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from bson.datetime_ms import DatetimeMS
from pymongo.client_session import ClientSession
from pymongo.collection import Collection

from bucketwise.archivers.kinds.evidence import Counts, Flags, Grid, Span
from bucketwise.buckets.bson.cursor import SIMPLE
from bucketwise.buckets.fields.selectors import Selector, selects, summary_query
from bucketwise.buckets.fields.times import DAY_MS
from bucketwise.rollups import progress
from bucketwise.rollups.calendar.levels import Level, levels_of
from bucketwise.rollups.calendar.windows import HIGHEST, LOWEST, to_ms
from bucketwise.rollups.context import RunContext
from bucketwise.rollups.summaries import documents

Document = dict[str, Any]

_UNSET = 2**62


class _Window(NamedTuple):
    """Summaries of one window: their readings."""

    start: int
    end: int
    readings: int


@dataclass(frozen=True)
class SummaryCounts:
    """Readings by row. `known`: summaries cover the whole row, which is rolled up. Elsewhere the counts are
    zero: where `touched`, there are summaries of longer windows; where `gone`, they have expired."""

    known: Flags
    all: Counts
    readings: Counts  # of the series asked for
    touched: Flags
    gone: Flags


class SummaryCounter:
    """Counts readings by the summaries of one policy."""

    def __init__(self, context: RunContext, selector: Selector) -> None:
        self._database, self._policy = database, policy = context.database, context.policy
        self._selector = selector
        self._through = progress.load(database, policy).through
        self._gone = progress.gone_before(database, policy)
        self._ended = progress.ended_before(database, policy)
        self._levels = [it for it in reversed(levels_of(policy)) if not it.local]

    def count(self, grid: Grid, session: ClientSession | None = None) -> SummaryCounts:
        """Counts each row by the coarsest level whose windows make it up."""
        known, zero = np.zeros(len(grid), dtype=np.bool_), grid.zeros
        every, mine = zero(), zero()
        for level in self._levels:
            fresh = self._standing(level, grid) & ~known
            if fresh.any():
                for counts, selector in ((every, {}), (mine, self._selector)):
                    found = self._counted(level, grid, selector, session)
                    counts[fresh] = found[fresh]
                known |= fresh
        return SummaryCounts(
            known, every, mine, self._touched(grid, ~known, session), self._all_gone(grid) & ~known
        )

    def span(self) -> Span | None:
        """Returns from when to when there are summaries; None where there are none."""
        ends = []
        for level in self._levels:
            for order, key in ((1, "start"), (-1, "end")):
                found = self._collection(level).find(SUMMARIES, {key: 1}).sort("start", order).limit(1)
                ends += [to_ms(it[key]) for it in found]
        return (min(ends), max(ends)) if ends else None

    def _standing(self, level: Level, grid: Grid) -> Flags:
        """Returns the rows of which all windows of a level are rolled up, and not past their retention."""
        if level.step is None and grid.step < DAY_MS:
            return np.zeros(len(grid), dtype=np.bool_)
        through, gone = self._through.get(level.name, -_UNSET), self._gone.get(level.name, -_UNSET)
        return np.array(
            [
                end <= through
                and _is_named((start, end))
                and level.tiles((start, end))
                and level.windows(start, start + 1)[0][1] >= gone
                for start, end in grid.spans
            ],
            dtype=np.bool_,
        )

    def _all_gone(self, grid: Grid) -> Flags:
        """Returns the rows of which the summaries of every level are past their retention; without levels,
        those before the end of the archive."""
        if not self._levels:
            ended = -_UNSET if self._ended is None else self._ended
            return np.array([end <= ended for _, end in grid.spans], dtype=np.bool_)
        found = np.ones(len(grid), dtype=np.bool_)
        for level in self._levels:
            if (gone := self._gone.get(level.name)) is None:
                return np.zeros(len(grid), dtype=np.bool_)
            found &= [_is_named(it) and level.windows(it[1] - 1, it[1])[-1][1] < gone for it in grid.spans]
        return found

    def _counted(self, level: Level, grid: Grid, selector: Selector, session: ClientSession | None) -> Counts:
        counts = grid.zeros()
        for window in self._windows(level, (grid.start, grid.end), selector, session):
            counts[(window.start - grid.start) // grid.step] += window.readings
        return counts

    def _touched(self, grid: Grid, wanted: Flags, session: ClientSession | None) -> Flags:
        """Returns which of these rows are in a window of any level that has a summary."""
        found = np.zeros(len(grid), dtype=np.bool_)
        start, end = max(grid.start, LOWEST), min(grid.end, HIGHEST)
        if wanted.any() and start < end:
            for level in self._levels:
                edges = level.edges(start, end)
                for window in self._windows(level, (edges[0], edges[-1]), self._selector, session):
                    found[grid.rows(window.start, window.end - 1)] = True
        return found & wanted

    def _windows(
        self, level: Level, span: Span, selector: Selector, session: ClientSession | None
    ) -> Iterator[_Window]:
        """Yields the windows that begin in a span."""
        wanted = {**SUMMARIES, "start": {"$gte": DatetimeMS(span[0]), "$lt": DatetimeMS(span[1])}}
        collection = self._collection(level)
        if not selector:
            key = {"start": "$start", "end": "$end"}
            summed = {"$group": {"_id": key, "count": {"$sum": "$count"}}}
            for found in collection.aggregate([{"$match": wanted}, summed], session=session):
                yield _window({**found["_id"], "count": found["count"]})
            return
        query, fields = {**wanted, **summary_query(selector)}, {"start": 1, "end": 1, "count": 1}
        for found in collection.find(query, fields, session=session, collation=SIMPLE):
            if selects(documents.series_of(self._policy, found), self._policy, selector):
                yield _window(found)

    def _collection(self, level: Level) -> Collection[Document]:
        return self._database.get_collection(level.collection, codec_options=documents.OPTIONS)


#: Only summaries have such an `_id`.
SUMMARIES: Document = {"_id.series": {"$exists": True}}


def _is_named(row: Span) -> bool:
    """Returns whether windows may make the row up. There are none at the ends of the calendar."""
    return row[0] >= LOWEST and row[1] < HIGHEST


def _window(found: Document) -> _Window:
    start, end = to_ms(found["start"]), to_ms(found["end"])
    return _Window(start, end, int(found["count"]))
