"""What is due: which windows a roll-up looks at, and in which slices of time. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Literal
from zoneinfo import ZoneInfo

from buckets.decoding.local import LARGEST_MS
from config.policies import Policy, Rollup
from rollups.calendar.windows import HIGHEST, HOUR, LOWEST, day_edges, day_of, hour_edges, span_ms, to_ms

Span = tuple[int, int]  # [start, end) in milliseconds
KindName = Literal["hourly", "daily"]


class Spans:
    """Spans of time: sorted, apart from one another, none empty."""

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
        before = bisect_left(self._starts, end) - 1
        return before >= 0 and self.spans[before][1] > start


@dataclass(frozen=True)
class Kind:
    """Hourly or daily summaries of a policy: where they go and how long they stay."""

    name: KindName
    collection: str
    zone: ZoneInfo  # of days; hours are UTC hours
    retain: timedelta | None
    local: bool = False  # windows are dates of the readings' own clocks, written as if they were UTC days

    @property
    def reach(self) -> int:
        """A window holds instants this many milliseconds before its start, and after its end, at most."""
        return LARGEST_MS if self.local else 0

    @property
    def zone_name(self) -> str:
        return "local" if self.local else self.zone.key

    def edges(self, start_ms: int, end_ms: int) -> list[int]:
        found = (
            hour_edges(start_ms, end_ms) if self.name == "hourly" else day_edges(start_ms, end_ms, self.zone)
        )
        return [int(edge) for edge in found]

    def expired_before(self, now: datetime) -> int | None:
        """A summary whose window ends before it is past its retention; None: it never is."""
        return None if self.retain is None else to_ms(now) - span_ms(self.retain)

    def through(self, due_end: int) -> int:
        """The end of the last window that is over at `due_end`."""
        end = max(LOWEST, min(due_end - self.reach, HIGHEST - 1))
        return self.edges(end, end + 1)[0]


def kinds_of(policy: Policy) -> list[Kind]:
    rollup, retain = policy.rollup, policy.retain
    if rollup is None:
        return []
    zone = ZoneInfo(rollup.timezone)
    kinds = []
    if rollup.hourly is not None:
        kinds.append(Kind("hourly", rollup.hourly, zone, retain.hourly if retain else None))
    if rollup.daily is not None:
        local = policy.local_offset_field is not None
        kinds.append(Kind("daily", rollup.daily, zone, retain.daily if retain else None, local))
    return kinds


def kinds_that_meet(policy: Policy) -> list[Kind]:
    """The kinds whose windows tell of one time. Days by the readings' own clocks do not meet UTC hours: of
    the two the hours."""
    kinds = kinds_of(policy)
    return kinds[:1] if any(kind.local for kind in kinds) else kinds


def widened(kinds: Sequence[Kind], spans: Iterable[Span]) -> Spans:
    """The spans, widened to the whole windows that they touch."""
    return Spans(
        (
            min(kind.edges(at := max(LOWEST, start - kind.reach), at + 1)[0] for kind in kinds),
            max(kind.edges(at := min(HIGHEST, end + kind.reach) - 1, at + 1)[-1] for kind in kinds),
        )
        for start, end in Spans(spans).spans
    )


class Calendar:
    """The windows of one policy as they stand at `now`.

    Work goes in slices: local days, or UTC days where no daily summary is made. A window belongs to the
    slice that it starts in; where the zone's offset is no whole hour, hours reach over into the next one.
    Where days go by the readings' own clocks, slices are UTC days, and `reach` is how far apart the two are.
    """

    def __init__(self, policy: Policy, rollup: Rollup, now: datetime) -> None:
        self.kinds = kinds_of(policy)
        self.due_end = to_ms(now) - span_ms(rollup.settle)
        self.recheck_from = to_ms(now) - span_ms(rollup.recheck)
        self.reach = max((kind.reach for kind in self.kinds), default=0)
        self._hours = any(kind.name == "hourly" for kind in self.kinds)
        self._days = any(kind.name == "daily" for kind in self.kinds)
        self._zone = ZoneInfo(rollup.timezone if self._days else "UTC")
        self._expired = {kind.name: kind.expired_before(now) for kind in self.kinds}

    def slice_at(self, ms: int, after: int) -> Span:
        """The first slice, from `after` on, with a window that holds the instant."""
        start, end = day_of(ms // HOUR * HOUR if self._hours else ms, self._zone)
        return (start, end) if start >= after else day_of(ms, self._zone)

    def windows(self, kind: Kind, piece: Span, spans: Spans) -> list[Span]:
        """The windows of a slice that are over, settled, not past retention, and touched by the spans."""
        expired = self._expired[kind.name]
        return [
            (start, end)
            for start, end in pairwise(kind.edges(*piece))
            if piece[0] <= start
            and end + kind.reach <= self.due_end
            and (expired is None or end >= expired)
            and spans.touch(start - kind.reach, end + kind.reach)
        ]

    def by_clock(self, windows: Mapping[KindName, Sequence[Span]]) -> dict[bool, list[Span]]:
        """Returns the windows of a slice by whether they go by the readings' own clocks."""
        found: dict[bool, list[Span]] = {}
        for kind in self.kinds:
            if windows[kind.name]:
                found.setdefault(kind.local, []).extend(windows[kind.name])
        return found
