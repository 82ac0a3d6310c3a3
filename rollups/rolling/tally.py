"""Collects the states of due windows, from readings and from finer summaries, until every part is there."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

import bson
from bson.datetime_ms import DatetimeMS

from bucketwise.buckets.bson.cursor import find_raw
from bucketwise.buckets.columns import Series
from bucketwise.buckets.models.series import series_key
from bucketwise.config.policies import Policy
from bucketwise.rollups.calendar.levels import Level, Span
from bucketwise.rollups.calendar.parts import Part
from bucketwise.rollups.calendar.windows import to_ms
from bucketwise.rollups.context import RunContext
from bucketwise.rollups.rolling.portions import SpilledRecords, portion_of
from bucketwise.rollups.rolling.slices import CellStates
from bucketwise.rollups.statistics import FieldStatistics
from bucketwise.rollups.summaries import documents
from bucketwise.rollups.summaries.summary import State, merge
from bucketwise.rollups.summaries.targets import identity_of, target

#: A series, by its key, and a window.
Cell = tuple[bytes, Span]


@dataclass
class Tally:
    """Windows of one level, and what is known of them so far."""

    fields: FieldStatistics
    windows: dict[Span, int | None] = field(default_factory=dict)  # up to where it is made of readings
    merged: set[Span] = field(default_factory=set)  # windows that finer summaries have a part in
    series: dict[bytes, Series] = field(default_factory=dict)
    states: dict[Cell, State] = field(default_factory=dict)
    outlived: set[Cell] = field(default_factory=set)  # hold a summary whose readings are gone
    unsound: set[Cell] = field(default_factory=set)  # lack a summary that can't be merged
    elsewhere: Set[int] = frozenset()  # starts of cells in which series that are not in it have readings

    def open(self, parts: Iterable[Part]) -> None:
        """Takes note of windows, and where they are made of readings."""
        for window, span, source in parts:
            known = self.windows.get(window)
            self.windows[window] = span[1] if source is None else known
            if source is not None:
                self.merged.add(window)

    def add_read(self, cells: CellStates, parts: Sequence[Part]) -> None:
        """Adds the states of readings."""
        self.series |= cells.series
        found = cells.by_window({part.span: part.window for part in parts})
        if not self.states:
            self.states = found
        else:
            for cell, state in found.items():
                self.add(cell, state)

    def add(self, cell: Cell, state: State) -> None:
        """Merges a state into that of its cell."""
        existing = self.states.get(cell)
        self.states[cell] = state if existing is None else merge(self.fields, existing, state)

    def filled(self) -> set[Span]:
        """Returns the windows that hold a reading of any series."""
        starts = sorted(self.elsewhere)
        touched = {it for it in self.windows if bisect_left(starts, it[0]) < bisect_left(starts, it[1])}
        return touched | {window for _, window in self.states}

    def readings_span(self, window: Span) -> Span:
        """Returns where readings that are gone may make a window less than it was: where it is made of them.
        What finer summaries tell is what it should be."""
        read_to = self.windows[window]
        return (window[0], read_to) if read_to is not None and window in self.merged else window


@dataclass
class SummaryReader:
    """Reads the finer summaries of one slice again, to make coarser ones from them."""

    context: RunContext
    spilled: SpilledRecords

    def states(
        self, level: Level, windows: Sequence[Span], portions: range
    ) -> Iterator[tuple[Cell, Series, State | None]]:
        """Yields the states of all series of these portions in these windows; None for a state that can't be
        merged."""
        wanted, policy = set(windows), self.context.policy
        for raw in self.spilled.of((level.name, *windows), partial(self._read, level, windows), portions):
            summary = bson.decode(raw, documents.OPTIONS)
            if documents.is_of_series(policy, summary) and (window := window_of(summary)) in wanted:
                series = documents.series_of(policy, summary)
                yield (series_key(series), window), series, sound_state(policy, summary)

    def _read(self, level: Level, windows: Sequence[Span]) -> Iterator[bytes]:
        query = {"start": {"$gte": DatetimeMS(windows[0][0]), "$lt": DatetimeMS(windows[-1][1])}}
        fields = documents.state_projection(self.context.policy)
        return chain.from_iterable(
            find_raw(target(self.context.database, level.collection), query, fields=fields)
        )


def portion_of_summary(policy: Policy, raw: bytes) -> int:
    """Returns which portion a summary is in: that of its series; where it was made with other settings, the
    first, so that it goes before another is written in its place."""
    identity = identity_of(raw)
    try:
        summary = {"_id": bson.decode(identity, documents.OPTIONS)}
    except bson.InvalidBSON:
        return 0
    if not documents.is_of_series(policy, summary):
        return 0
    return portion_of(series_key(documents.series_of(policy, summary)))


def window_of(summary: Mapping[str, Any]) -> Span:
    """Returns the window that a summary document is of, milliseconds."""
    return to_ms(summary["start"]), to_ms(summary["end"])


def sound_state(policy: Policy, summary: Mapping[str, Any]) -> State | None:
    """Returns a summary's mergeable state; None where it was made with other settings."""
    try:
        return documents.state_of(summary, policy)
    except (KeyError, TypeError, ValueError):
        return None
