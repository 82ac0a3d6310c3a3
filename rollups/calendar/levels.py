"""Levels of summaries as data: how long windows are, and which finer windows make them up.

Another level is a row of `LEVEL_RULES`, a name in `bucketwise.config.policies`, and a key of `Retain` there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.decoding.local import LARGEST_MS
from bucketwise.buckets.fields.times import DAY_MS
from bucketwise.config.policies import CALENDAR_LEVELS, LevelName, Policy
from bucketwise.rollups.calendar.windows import (
    HIGHEST,
    HOUR,
    LOWEST,
    day_edges,
    month_edges,
    span_ms,
    step_edges,
    to_ms,
    week_edges,
)

Span = tuple[int, int]  # [start, end) in milliseconds
MINUTE = HOUR // 60
#: What summaries have as their zone, where windows go by the readings' own clocks.
LOCAL = "local"


@dataclass(frozen=True)
class LevelRule:
    """The properties of a level that are the same in every policy.

    `noun`: its windows, in messages. `parts`: the finer levels whose windows may make its own up, the
    coarsest first. `length`: that of a window in milliseconds, counted from the epoch. Where windows follow
    the calendar, it is the usual length, or the longest, and `edges` says where they begin and end in a zone.
    """

    noun: str
    parts: tuple[LevelName, ...]
    length: int
    edges: Callable[[int, int, ZoneInfo], NDArray[np.int64]] | None = None

    @property
    def is_long(self) -> bool:
        """Returns whether its windows are longer than a day, so that each is made from several slices."""
        return self.length > DAY_MS


_UP_TO_HOURS: tuple[LevelName, ...] = ("hourly", "15m", "5m")
LEVEL_RULES: Mapping[LevelName, LevelRule] = {
    "5m": LevelRule("5-minute windows", (), 5 * MINUTE),
    "15m": LevelRule("15-minute windows", ("5m",), 15 * MINUTE),
    "hourly": LevelRule("hours", ("15m", "5m"), HOUR),
    "daily": LevelRule("days", _UP_TO_HOURS, DAY_MS, day_edges),
    "weekly": LevelRule("weeks", ("daily", *_UP_TO_HOURS), 7 * DAY_MS, week_edges),
    "monthly": LevelRule("months", ("daily", *_UP_TO_HOURS), 31 * DAY_MS, month_edges),
}


@dataclass(frozen=True)
class Level:
    """One level of a policy's summaries: where they go and how long they stay."""

    name: LevelName
    collection: str
    zone: ZoneInfo  # of days, weeks and months
    retain: timedelta | None  # those of the series that keep them longest
    local: bool = False  # windows are dates of the readings' own clocks, written as if they were UTC days

    @property
    def row(self) -> LevelRule:
        """Returns the row of the table of levels that defines its windows."""
        return LEVEL_RULES[self.name]

    @property
    def step(self) -> int | None:
        """Returns the length of a window in milliseconds; None where it follows the calendar."""
        return self.row.length if self.row.edges is None else None

    @property
    def is_long(self) -> bool:
        """Returns whether its windows are longer than a day."""
        return self.row.is_long

    @property
    def reach(self) -> int:
        """Returns how far, in milliseconds, the instants in a window may lie before its start or after
        its end, at most."""
        return LARGEST_MS if self.local else 0

    @property
    def zone_name(self) -> str | None:
        """Returns the zone that summaries name; None if the windows are in UTC."""
        return None if self.step is not None else LOCAL if self.local else self.zone.key

    def edges(self, start_ms: int, end_ms: int) -> list[int]:
        """Returns the edges of the whole windows that touch the range."""
        if self.row.edges is not None:
            return [int(edge) for edge in self.row.edges(start_ms, end_ms, self.zone)]
        return step_edges(start_ms, end_ms, self.row.length)

    def windows(self, start_ms: int, end_ms: int) -> list[Span]:
        """Returns the whole windows that touch the range."""
        return list(pairwise(self.edges(start_ms, end_ms)))

    def tiles(self, span: Span) -> bool:
        """Returns whether whole windows of the level make up the span."""
        if self.step is not None:
            return not (span[0] % self.step or span[1] % self.step)
        edges = self.edges(*span)
        return (edges[0], edges[-1]) == span

    def expired_before(self, now: datetime) -> int | None:
        """Returns the instant (milliseconds) before which a window must end for its summary to be past its
        retention; None: it never is."""
        return None if self.retain is None else to_ms(now) - span_ms(self.retain)

    def through(self, due_end: int) -> int:
        """Returns the end of the last window that is over at `due_end`."""
        end = max(LOWEST, min(due_end - self.reach, HIGHEST - 1))
        return self.edges(end, end + 1)[0]


def levels_of(policy: Policy) -> list[Level]:
    """Returns a policy's levels, the finest first."""
    if policy.rollup is None:
        return []
    zone = ZoneInfo(policy.rollup.timezone)
    kept = [it.retain.by_level if it.retain else {} for it in policy.lives]
    own_clocks = policy.local_offset_field is not None
    return [
        Level(name, collection, zone, _longest(name, kept), own_clocks and name in CALENDAR_LEVELS)
        for name, collection in policy.rollup.targets.items()
    ]


def _longest(name: LevelName, kept: Sequence[Mapping[LevelName, timedelta | None]]) -> timedelta | None:
    """Returns how long summaries of a level stay by the rule that keeps them longest."""
    lengths = [it.get(name) for it in kept]
    return None if None in lengths else max(it for it in lengths if it is not None)


def aligned_levels(policy: Policy) -> list[Level]:
    """Returns the levels whose windows are in one time. Days by the readings' own clocks do not meet UTC
    hours: then only the hours are returned."""
    levels = levels_of(policy)
    return [level for level in levels if level.local == levels[0].local]


def sources_of(level: Level, levels: Iterable[Level]) -> list[Level]:
    """Returns the finer levels whose windows may make up those of this one, the coarsest first."""
    by_name = {it.name: it for it in levels if it.local == level.local}
    return [by_name[name] for name in level.row.parts if name in by_name]


def base_levels(levels: Sequence[Level]) -> list[Level]:
    """Returns the levels that are made from readings. Weeks and months are made from days, if there are
    days."""
    has_days = any(level.name == "daily" for level in levels)
    return [level for level in levels if not (level.is_long and has_days)]


def expired_before(
    level: Level, levels: Iterable[Level], now: datetime, through: Mapping[LevelName, int]
) -> int | None:
    """Returns the instants (milliseconds) before which summaries of each level may be deleted. Those
    that a coarser level still has to be made from are kept. `through`: how far each level is rolled up."""
    before = level.expired_before(now)
    if before is None:
        return None
    coarser = [it for it in levels if sources_of(it, [level])]
    return min([before, *(through.get(it.name, LOWEST) + 1 for it in coarser)])
