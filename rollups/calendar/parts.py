"""Decides what each due window is made of: finer summaries, existing or from the same run, or readings.
Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bucketwise.config.policies import LevelName
from bucketwise.rollups.calendar.due import Calendar, Spans
from bucketwise.rollups.calendar.levels import LEVEL_RULES, Level, Span, sources_of

_NEVER = -(2**62)


class Part(NamedTuple):
    """A stretch of a due window that lies inside one slice, and the level of the summaries that it is
    made of."""

    window: Span
    span: Span
    source: Level | None  # None: it is made of readings


@dataclass(frozen=True)
class Slice:
    """A stretch of time with the parts of its due windows, by their level."""

    span: Span
    parts: Mapping[LevelName, Sequence[Part]]

    @property
    def short(self) -> list[Part]:
        """Returns the windows that are no longer than a day."""
        return [it for name, parts in self.parts.items() if not LEVEL_RULES[name].is_long for it in parts]

    @property
    def needs_no_reading(self) -> bool:
        """Returns whether existing summaries are enough: no reading has to be read, and no finer
        summary made first."""
        return not self.short and all(it.source for parts in self.parts.values() for it in parts)

    def windows(self, level: Level) -> list[Span]:
        """Returns the due windows of a level that lie in the slice, or that the slice is a part of."""
        return [part.window for part in self.parts[level.name]]

    def merged(self, level: Level) -> list[Part]:
        """Returns the parts that are made of finer summaries."""
        return [part for part in self.parts[level.name] if part.source is not None]

    def read(self, level: Level) -> list[Part]:
        """Returns the parts that are made of readings."""
        return [part for part in self.parts[level.name] if part.source is None]

    def to_read(self, levels: Sequence[Level]) -> dict[bool, list[Span]]:
        """Returns the spans to read, by whether they go by the readings' own clocks."""
        found: dict[bool, list[Span]] = {}
        for level in levels:
            if spans := [part.span for part in self.read(level)]:
                found.setdefault(level.local, []).extend(spans)
        return found


@dataclass(frozen=True)
class ExistingSummaries:
    """The summaries that earlier runs have written and that are still up to date.

    `through`: how far each level is rolled up. `gone`: the instants before which summaries have expired.
    `uncertain`: spans whose summaries may have changed without a record of it.
    """

    through: Mapping[LevelName, int] = field(default_factory=dict)
    gone: Mapping[LevelName, int] = field(default_factory=dict)
    uncertain: Spans = Spans(())  # noqa: RUF009  (it never changes)

    def has(self, level: Level, window: Span) -> bool:
        """Returns whether the summaries of a window exist, are complete, and have not changed."""
        if window[1] > self.through.get(level.name, _NEVER) or self.uncertain.touch(*window):
            return False
        return window[1] >= self.gone.get(level.name, _NEVER)


@dataclass(frozen=True)
class Partition:
    """Splits slices into parts. `spans`: the spans of each level that this run looks at."""

    calendar: Calendar
    spans: Mapping[LevelName, Spans]
    existing: ExistingSummaries

    def of(self, piece: Span) -> Slice:
        """Returns the due windows of a slice and what each is made of: the coarsest level that tiles it."""
        due: dict[LevelName, set[Span]] = {}
        parts: dict[LevelName, list[Part]] = {}
        for level in self.calendar.levels:
            windows = self.calendar.windows(level, piece, self.spans[level.name])
            due[level.name] = set(windows)
            sources = sources_of(level, self.calendar.levels)
            spans = (_inside(window, piece) if level.is_long else window for window in windows)
            parts[level.name] = [
                Part(window, span, self._source(sources, span, due))
                for window, span in zip(windows, spans, strict=True)
            ]
        return Slice(piece, parts)

    def extended(self, piece: Span) -> Slice:
        """Returns the slice. If it only holds parts of weeks and months that existing summaries make
        up, extends it for as long as that is so, so that these are made in one step."""
        found = self.of(piece)
        limit = min((it.window[1] for parts in found.parts.values() for it in parts), default=piece[1])
        for _ in range(2):
            if limit <= piece[1] or not found.needs_no_reading:
                break
            wide = self.of((piece[0], limit))
            if wide.needs_no_reading:
                return wide
            begin = min((it.window[0] for it in wide.short), default=piece[1])
            limit = self.calendar.slice_at(begin, piece[0])[0]
        return found

    def _source(
        self, sources: Sequence[Level], span: Span, due: Mapping[LevelName, set[Span]]
    ) -> Level | None:
        for finer in sources:
            if finer.tiles(span) and all(
                inner in due[finer.name] or self._is_up_to_date(finer, inner)
                for inner in finer.windows(*span)
            ):
                return finer
        return None

    def _is_up_to_date(self, level: Level, window: Span) -> bool:
        """Returns whether the summaries of a window are up to date, and this run does not look at it."""
        start, end = window[0] - level.reach, window[1] + level.reach
        return self.existing.has(level, window) and not self.spans[level.name].touch(start, end)


def _inside(window: Span, piece: Span) -> Span:
    return max(window[0], piece[0]), min(window[1], piece[1])
