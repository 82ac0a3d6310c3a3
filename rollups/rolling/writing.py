"""Writes the summaries of slices, where they differ from those that stand."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from bson.raw_bson import RawBSONDocument

from buckets.columns import Series
from rollups.calendar.due import Calendar, Kind, Span
from rollups.calendar.windows import LOWEST
from rollups.context import RunContext
from rollups.rolling.ahead import Windows
from rollups.rolling.options import RollupReport
from rollups.rolling.records import Records
from rollups.rolling.slices import Cells, Found
from rollups.rolling.worn import Worn
from rollups.summaries import documents
from rollups.summaries.summary import State
from rollups.summaries.targets import Changes


@dataclass
class SummaryWriter:
    """Makes summaries of what was read, compares them with those that stand, and counts the differences;
    `records` writes them, or leaves them."""

    context: RunContext
    calendar: Calendar
    records: Records
    worn: Worn
    report: RollupReport
    counted_to: int = LOWEST  # readings before it are counted already

    def write(self, windows: Windows, found: Found) -> None:
        """Takes one slice. Slices come in the order of time."""
        self.records.quarantine.add(found.quarantined)
        counted = min(found.cells)  # readings are counted by one clock only
        self._count(found.cells[counted], self.calendar.by_clock(windows)[counted])
        for kind in self.calendar.kinds:
            if windows[kind.name]:
                self._write(kind, windows[kind.name], found.cells[kind.local])

    def _count(self, piece: Cells, windows: list[Span]) -> None:
        cells = [
            start >= self.counted_to and any(low <= start < high for low, high in windows)
            for start, _ in pairwise(piece.edges)
        ]
        states = [state for (_, cell), state in piece.states.items() if cells[cell]]
        readings = sum(state.count for state in states)
        self.counted_to = max(self.counted_to, piece.edges[-1])
        self.report.readings += readings
        for name in self.context.policy.numeric_names:
            self.report.finite[name] += sum(state.values[name].count for state in states)
        self.context.progress("rolled-up readings", readings)

    def _write(self, kind: Kind, windows: list[Span], piece: Cells) -> None:
        merged = piece.by_window(windows)
        computed = {
            documents.identity(self.context.policy, piece.series[key], window[0]): self._document(
                kind, piece.series[key], window, state
            )
            for (key, window), state in merged.items()
        }
        filled = {window for _, window in merged}
        changes = Changes(self.context.database, kind.collection)
        fields = {name.split(".")[0] for name in self.context.policy.series_names}

        def keeps(window: Span, standing: RawBSONDocument, computed: bytes | None) -> bool:
            if computed is None and window in filled:
                # One that was made with other settings goes where the window has readings.
                series, start = standing["_id"]["series"], documents.milliseconds(standing["start"])
                if start != window[0] or set(series) != fields:
                    return False
            return self.worn.is_worn(window, bytes(standing.raw), computed)

        changes.compare(windows, computed, keeps)
        self.records.apply(changes)
        self.report.of(kind.name).add(changes, len(windows))

    def _document(self, kind: Kind, series: Series, window: Span, state: State) -> bytes:
        policy = self.context.policy
        if kind.name == "hourly":
            return documents.hourly(policy, series, window[0], state)
        return documents.daily(policy, series, *window, kind.zone_name, state)
