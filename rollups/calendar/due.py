"""Decides which windows a roll-up processes, and in which slices of time. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

from bucketwise.config.policies import LevelName, Policy, Rollup
from bucketwise.rollups.calendar.levels import LEVEL_RULES, Level, Span, base_levels, levels_of, sources_of
from bucketwise.rollups.calendar.windows import HIGHEST, LOWEST, day_of, span_ms, to_ms

_NEVER = -(2**62)


class Spans:
    """Sorted spans of time that do not touch. None is empty."""

    def __init__(self, spans: Iterable[Span]) -> None:
        merged: list[Span] = []
        for start, end in sorted(spans):
            start, end = max(start, LOWEST), min(end, HIGHEST - 1)
            if start >= end:
                continue
            if merged and start <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((start, end))
        self.spans: Sequence[Span] = merged
        self._starts = [start for start, _ in merged]

    def touch(self, start: int, end: int) -> bool:
        """Returns whether any span overlaps [start, end), milliseconds."""
        before = bisect_left(self._starts, end) - 1
        return before >= 0 and self.spans[before][1] > start

    def gaps(self, start: int, end: int) -> Iterator[Span]:
        """Yields the parts of [start, end) that are in none of them."""
        for first, last in self.spans:
            if start < min(first, end):
                yield start, min(first, end)
            start = max(start, last)
        if start < end:
            yield start, end

    def near(self, distance: int) -> Iterator[Sequence[Span]]:
        """Yields the spans, those together between which less than this lies."""
        together: list[Span] = []
        for span in self.spans:
            if together and span[0] - together[-1][1] >= distance:
                yield together
                together = []
            together.append(span)
        if together:
            yield together


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


def over_before(policies: Iterable[Policy], now: datetime) -> int | None:
    """Returns the instant (milliseconds) before which every window that is made of readings is over and
    settled; None: nothing is rolled up."""
    found = [
        level.through(calendar.due_end) - level.reach
        for policy in policies
        if policy.rollup is not None
        for calendar in [Calendar(policy, policy.rollup, now)]
        for level in base_levels(calendar.levels)
    ]
    return min(found, default=None)


def settled_at(policies: Iterable[Policy], ms: int) -> int | None:
    """Returns the present (milliseconds) from which on `over_before` lies after an instant; None: nothing is
    rolled up."""
    found = [
        level.edges(at := max(LOWEST, min(ms + level.reach, HIGHEST - 1)), at + 1)[-1]
        + level.reach
        + span_ms(policy.rollup.settle)
        for policy in policies
        if policy.rollup is not None
        for level in base_levels(levels_of(policy))
    ]
    return max(found, default=None)


def widened(levels: Sequence[Level], spans: Iterable[Span]) -> Spans:
    """Returns the spans, widened to the whole windows that they touch."""
    return Spans(
        (
            min(level.edges(at := max(LOWEST, start - level.reach), at + 1)[0] for level in levels),
            max(level.edges(at := min(HIGHEST, end + level.reach) - 1, at + 1)[-1] for level in levels),
        )
        for start, end in Spans(spans).spans
    )


class Calendar:
    """The windows of one policy as they stand at `now`.

    Work goes in slices: local days, or UTC days where no level goes by days. A window that is no longer than
    a day belongs to the slice that it starts in; where the zone's offset is no whole hour, hours reach over
    into the next one. Weeks and months are made of the slices that they hold. Where days go by the readings'
    own clocks, slices are UTC days, and `reach` is how far apart the two are.

    `through`: how far each level is rolled up, where that is known; `gone`: before when its summaries have
    gone. Those that stand are kept up to date, even past their retention. A level that is rolled up for the
    first time begins with what is not past it.
    """

    def __init__(
        self,
        policy: Policy,
        rollup: Rollup,
        now: datetime,
        through: Mapping[LevelName, int] | None = None,
        gone: Mapping[LevelName, int] | None = None,
    ) -> None:
        self.levels = levels_of(policy)
        self.due_end = to_ms(now) - span_ms(rollup.settle)
        self.recheck_from = to_ms(now) - span_ms(rollup.recheck)
        self.reach = max((level.reach for level in self.levels), default=0)
        self._short = [level for level in self.levels if not level.is_long]
        self._zone = ZoneInfo(rollup.timezone if rollup.has_days else "UTC")
        self._expired = {
            level.name: (gone or {}).get(level.name)
            if through and level.name in through
            else level.expired_before(now)
            for level in self.levels
        }

    def slice_at(self, ms: int, after: int) -> Span:
        """Returns the first slice, from `after` on, with a window that contains the instant."""
        first = min((level.edges(ms, ms + 1)[0] for level in self._short if level.step), default=ms)
        start, end = day_of(first, self._zone)
        return (start, end) if start >= after else day_of(ms, self._zone)

    def windows(self, level: Level, piece: Span, spans: Spans) -> list[Span]:
        """Returns the windows of a slice that are over, settled, not gone, and touched by the spans."""
        expired = self._expired[level.name]
        return [
            (start, end)
            for start, end in level.windows(*piece)
            if (level.is_long or piece[0] <= start)
            and end + level.reach <= self.due_end
            and (expired is None or end >= expired)
            and spans.touch(start - level.reach, end + level.reach)
        ]

    def days_of(self, spans: Iterable[Span]) -> Spans:
        """Returns the spans, widened to the windows of up to a day that they touch."""
        return widened(self._short, spans) if self._short else Spans(spans)

    def due(self, wanted: Mapping[LevelName, Sequence[Span]]) -> Spans:
        """Returns the spans in which windows are over and overlap the wanted spans of their level."""
        found: list[Span] = []
        for level in self.levels:
            end = level.through(self.due_end)
            found += [(start, min(stop, end)) for start, stop in widened([level], wanted[level.name]).spans]
        return Spans(found)
