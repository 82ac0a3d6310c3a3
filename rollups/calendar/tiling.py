"""Which summaries make up a range of time: the largest windows first, and what no summary covers. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import NamedTuple

from buckets.fields.times import as_date
from config.errors import UsageError
from config.policies import LevelName
from rollups.calendar.levels import Level, Span

NOT_ROLLED_UP = "not rolled up yet"
PAST_RETENTION = "past its retention: the summaries are gone"
_NEVER = 2**62


class Piece(NamedTuple):
    """Adjoining windows of one level; or, with a reason, a stretch without summaries."""

    start: int  # milliseconds
    end: int
    level: LevelName
    windows: int
    reason: str | None = None


@dataclass(frozen=True)
class Tiling:
    """Pieces and gaps that together make up a range, each instant of it once."""

    pieces: Sequence[Piece]  # the windows that have summaries
    missing: Sequence[Piece]  # the gaps without summaries

    def windows(self, level: LevelName) -> int:
        """Returns how many windows of a level the pieces hold."""
        return sum(piece.windows for piece in self.pieces if piece.level == level)


@dataclass(frozen=True)
class StandingWindows:
    """The windows of a level whose summaries stand: those that end in [low, high]."""

    level: Level
    low: int
    high: int


def standing_windows(
    level: Level, through: Mapping[LevelName, int], gone: Mapping[LevelName, int], now: datetime
) -> StandingWindows:
    """Returns the windows whose summaries stand. `through`: how far each level is rolled up; `gone`: what
    ended before has gone."""
    expired = level.expired_before(now)
    low = max(gone.get(level.name, -_NEVER), -_NEVER if expired is None else expired)
    return StandingWindows(level, low, through.get(level.name, -_NEVER))


def tile(available: Sequence[StandingWindows], start: int, end: int) -> Tiling:
    """Returns the fewest windows that make up [start, end) and leave the least of it uncovered.

    A day is taken where it fits: where its zone's offset is no whole hour, the hours around it do not meet
    it. Raises UsageError where no whole windows make up the range."""
    nodes = _nodes(available, start, end)
    best: list[_Step | None] = [_Step(0, 0, (), None)]
    steppers = [_Stepper(standing, nodes) for standing in available]
    for at in range(1, len(nodes)):
        ways = [way for stepper in steppers if (way := stepper.to(at, best))]
        best.append(min(ways, key=lambda way: (way.uncovered, way.windows), default=None))
    step = best[-1] if len(nodes) > 1 else None
    if step is None:
        raise UsageError(_refusal(available, start, end))
    pieces: list[Piece] = []
    while step is not None:
        pieces += reversed(step.pieces)
        step = step.before
    joined = list(_joined(reversed(pieces)))
    return Tiling([it for it in joined if it.reason is None], [it for it in joined if it.reason is not None])


def _nodes(available: Sequence[StandingWindows], start: int, end: int) -> list[int]:
    """Returns where windows of one level may end and those of another begin. Between two nodes all windows of
    a level of one length stand, or none: so they are taken together."""
    turns = {start, end}
    for standing in available:
        if standing.level.step is None:
            turns.update(standing.level.edges(start, end))
        else:  # where those that stand begin and end
            turns.update(edge for edge in (standing.low - standing.level.step, standing.low, standing.high))
    lengths = {standing.level.step for standing in available if standing.level.step is not None}
    nodes = {turn // length * length + more for turn in turns for length in lengths for more in (0, length)}
    return sorted(node for node in nodes | turns if start <= node <= end)


class _Step(NamedTuple):
    """The best way to a node: what it leaves uncovered, then how many windows it takes."""

    uncovered: int
    windows: int
    pieces: Sequence[Piece]  # since the node before
    before: _Step | None

    def then(self, pieces: Sequence[Piece]) -> _Step:
        uncovered = sum(it.end - it.start for it in pieces if it.reason is not None)
        return _Step(
            self.uncovered + uncovered, self.windows + sum(it.windows for it in pieces), pieces, self
        )


class _Stepper:
    """Goes from node to node by windows of one level."""

    def __init__(self, standing: StandingWindows, nodes: Sequence[int]) -> None:
        self._standing = standing
        self._nodes = nodes
        step = standing.level.step
        edges = set(standing.level.edges(nodes[0], nodes[-1])) if step is None else ()
        self._meets = [node in edges if step is None else node % step == 0 for node in nodes]
        self._last: int | None = None  # the last node that the level meets, and some way leads to

    def to(self, at: int, best: Sequence[_Step | None]) -> _Step | None:
        """Returns the way to a node over the last one that the level meets. Nodes come in order."""
        if self._meets[at - 1] and (best[at - 1] is not None or self._standing.level.step is None):
            self._last = at - 1
        if self._last is None or not self._meets[at]:
            return None
        origin, start, end = best[self._last], self._nodes[self._last], self._nodes[at]
        pieces = [self._window(start, end)] if self._standing.level.step is None else self._run(start, end)
        return origin.then(pieces) if origin is not None else None

    def _window(self, start: int, end: int) -> Piece:
        name, reason = self._standing.level.name, None
        if end > self._standing.high:
            reason = NOT_ROLLED_UP
        elif end < self._standing.low:
            reason = PAST_RETENTION
        return Piece(start, end, name, 0 if reason else 1, reason)

    def _run(self, start: int, end: int) -> list[Piece]:
        """Returns windows of one length: those that are gone, those that stand, and those that are still to
        be made."""
        name, step = self._standing.level.name, self._standing.level.step
        assert step is not None
        high = max(start, min(end, self._standing.high // step * step))
        low = min(high, max(start, -(-self._standing.low // step) * step - step))
        found = [
            Piece(start, low, name, 0, PAST_RETENTION),
            Piece(low, high, name, (high - low) // step),
            Piece(high, end, name, 0, NOT_ROLLED_UP),
        ]
        return [piece for piece in found if piece.start < piece.end]


def _joined(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Yields pieces, adjoining ones of one level and reason as one; those with a reason are joined whatever
    their level."""
    for _, run in groupby(pieces, key=lambda it: it.reason or it.level):
        first, *rest = run
        last = rest[-1] if rest else first
        windows = first.windows + sum(it.windows for it in rest)
        yield Piece(first.start, last.end, first.level, windows, first.reason)


def _refusal(available: Sequence[StandingWindows], start: int, end: int) -> str:
    range_ = f"{instant(start)} to {instant(end)}"
    if not available:
        return "the policy makes no summaries: add a rollup to it"
    near = [f"{_name(standing.level)}: {_near(standing.level, start, end)}" for standing in available]
    return f"no whole windows make up {range_}. The nearest that do: {'; '.join(near)}"


def _name(level: Level) -> str:
    noun = level.row.noun
    if level.local:
        return "local dates" if level.name == "daily" else f"local {noun}"
    return noun if level.step is not None else f"{noun} in {level.zone.key}"


def _near(level: Level, start: int, end: int) -> str:
    """Boundaries around both ends: `since` is one of the first, `until` one of the second."""
    since, until = (_around(level, ms) for ms in (start, end))
    return f"from {' or '.join(map(instant, since))} to {' or '.join(map(instant, until))}"


def _around(level: Level, ms: int) -> Span | tuple[int]:
    low, high = level.edges(ms, ms + 1)
    return (low,) if low == ms else (low, high)


def instant(ms: int) -> str:
    """Returns milliseconds as 2018-06-30T00:00:00Z, with a fraction where there is one."""
    precision = "milliseconds" if ms % 1000 else "seconds"
    return as_date(ms).isoformat(timespec=precision).replace("+00:00", "Z")
