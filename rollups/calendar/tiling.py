"""Finds the windows that make up a range of time, the largest first, and the gaps that no summary
covers. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from bucketwise.buckets.fields.times import as_date
from bucketwise.config.errors import UsageError
from bucketwise.config.policies import LevelName
from bucketwise.rollups.calendar.levels import Level, Span

NOT_ROLLED_UP = "not rolled up yet"
PAST_RETENTION = "past its retention: the summaries are gone"
_NEVER = 2**62


class TilingPiece(NamedTuple):
    """Adjoining windows of one level; or, if it has a reason, a stretch without summaries."""

    start: int  # milliseconds
    end: int
    level: LevelName
    windows: int
    reason: str | None = None


@dataclass(frozen=True)
class Tiling:
    """Pieces and gaps that together make up a range. Each instant of the range is in exactly one of them."""

    pieces: Sequence[TilingPiece]  # the windows that have summaries
    missing: Sequence[TilingPiece]  # the gaps without summaries

    def windows(self, level: LevelName) -> int:
        """Returns how many windows of a level the pieces hold."""
        return sum(piece.windows for piece in self.pieces if piece.level == level)


@dataclass(frozen=True)
class ExistingWindows:
    """The windows of a level that have summaries: those that end in [low, high]."""

    level: Level
    low: int
    high: int


def existing_windows(
    level: Level, through: Mapping[LevelName, int], gone: Mapping[LevelName, int]
) -> ExistingWindows:
    """Returns the windows that have summaries. `through`: how far each level is rolled up. `gone`: the
    instants before which the summaries of each level have been deleted, or were never made."""
    return ExistingWindows(level, gone.get(level.name, -_NEVER), through.get(level.name, -_NEVER))


def tile(available: Sequence[ExistingWindows], start: int, end: int) -> Tiling:
    """Returns the fewest windows that make up [start, end) and leave the least of it uncovered.

    Days are used where they fit. If the offset of their zone is not a whole number of hours, hours do not
    adjoin days. Raises UsageError if no whole windows make up the range.
    """
    nodes = _nodes(available, start, end)
    best: list[_Path | None] = [_Path(0, 0, (), None)]
    steppers = [_LevelPaths(existing, nodes) for existing in available]
    for at in range(1, len(nodes)):
        ways = [way for stepper in steppers if (way := stepper.to(at, best))]
        best.append(min(ways, key=lambda way: (way.uncovered, way.windows), default=None))
    step = best[-1] if len(nodes) > 1 else None
    if step is None:
        raise UsageError(_no_tiling_error(available, start, end))
    pieces: list[TilingPiece] = []
    while step is not None:
        pieces += reversed(step.pieces)
        step = step.before
    joined = list(_joined(reversed(pieces)))
    return Tiling([it for it in joined if it.reason is None], [it for it in joined if it.reason is not None])


def _nodes(available: Sequence[ExistingWindows], start: int, end: int) -> list[int]:
    """Returns the instants at which the tiling may change from one level to another. Between two nodes,
    either all windows of a level have summaries or none has, so they are taken together."""
    turns = {start, end}
    for existing in available:
        if existing.level.step is None:
            turns.update(existing.level.edges(start, end))
        else:  # where those that stand begin and end
            turns.update(edge for edge in (existing.low - existing.level.step, existing.low, existing.high))
    lengths = {existing.level.step for existing in available if existing.level.step is not None}
    nodes = {turn // length * length + more for turn in turns for length in lengths for more in (0, length)}
    return sorted(node for node in nodes | turns if start <= node <= end)


class _Path(NamedTuple):
    """The best path to a node: it leaves the least time uncovered, then uses the fewest windows."""

    uncovered: int
    windows: int
    pieces: Sequence[TilingPiece]  # since the node before
    before: _Path | None

    def then(self, pieces: Sequence[TilingPiece]) -> _Path:
        uncovered = sum(it.end - it.start for it in pieces if it.reason is not None)
        return _Path(
            self.uncovered + uncovered, self.windows + sum(it.windows for it in pieces), pieces, self
        )


class _LevelPaths:
    """Extends paths from node to node by windows of one level."""

    def __init__(self, existing: ExistingWindows, nodes: Sequence[int]) -> None:
        self._existing = existing
        self._nodes = nodes
        step = existing.level.step
        edges = set(existing.level.edges(nodes[0], nodes[-1])) if step is None else ()
        self._meets = [node in edges if step is None else node % step == 0 for node in nodes]
        self._last: int | None = None  # the last node that the level meets, and some way leads to

    def to(self, at: int, best: Sequence[_Path | None]) -> _Path | None:
        """Returns the path to a node from the last node that is an edge of this level. Nodes must be
        given in order."""
        if self._meets[at - 1] and (best[at - 1] is not None or self._existing.level.step is None):
            self._last = at - 1
        if self._last is None or not self._meets[at]:
            return None
        origin, start, end = best[self._last], self._nodes[self._last], self._nodes[at]
        pieces = [self._window(start, end)] if self._existing.level.step is None else self._run(start, end)
        return origin.then(pieces) if origin is not None else None

    def _window(self, start: int, end: int) -> TilingPiece:
        name, reason = self._existing.level.name, None
        if end > self._existing.high:
            reason = NOT_ROLLED_UP
        elif end < self._existing.low:
            reason = PAST_RETENTION
        return TilingPiece(start, end, name, 0 if reason else 1, reason)

    def _run(self, start: int, end: int) -> list[TilingPiece]:
        """Returns windows of equal length: those whose summaries are gone, those that have them, and
        those not yet made."""
        name, step = self._existing.level.name, self._existing.level.step
        assert step is not None
        high = max(start, min(end, self._existing.high // step * step))
        low = min(high, max(start, -(-self._existing.low // step) * step - step))
        found = [
            TilingPiece(start, low, name, 0, PAST_RETENTION),
            TilingPiece(low, high, name, (high - low) // step),
            TilingPiece(high, end, name, 0, NOT_ROLLED_UP),
        ]
        return [piece for piece in found if piece.start < piece.end]


def _joined(pieces: Iterator[TilingPiece]) -> Iterator[TilingPiece]:
    """Yields the pieces, with adjoining ones of the same level and reason merged. Gaps are merged
    whatever their level."""
    for _, run in groupby(pieces, key=lambda it: it.reason or it.level):
        first, *rest = run
        last = rest[-1] if rest else first
        windows = first.windows + sum(it.windows for it in rest)
        yield TilingPiece(first.start, last.end, first.level, windows, first.reason)


def _no_tiling_error(available: Sequence[ExistingWindows], start: int, end: int) -> str:
    range_ = f"{instant(start)} to {instant(end)}"
    if not available:
        return "the policy makes no summaries: add a rollup to it"
    near = [
        f"{_name(existing.level)}: {_nearest_edges(existing.level, start, end)}" for existing in available
    ]
    return f"no whole windows make up {range_}. The nearest that do: {'; '.join(near)}"


def _name(level: Level) -> str:
    noun = level.row.noun
    if level.local:
        return "local dates" if level.name == "daily" else f"local {noun}"
    return noun if level.step is not None else f"{noun} in {level.zone.key}"


def _nearest_edges(level: Level, start: int, end: int) -> str:
    """Returns the boundaries around both ends as text: `since` must be one of the first, `until` one of
    the second."""
    since, until = (_around(level, ms) for ms in (start, end))
    return f"from {' or '.join(map(instant, since))} to {' or '.join(map(instant, until))}"


def _around(level: Level, ms: int) -> Span | tuple[int]:
    low, high = level.edges(ms, ms + 1)
    return (low,) if low == ms else (low, high)


def instant(ms: int) -> str:
    """Returns milliseconds as 2018-06-30T00:00:00Z, with a fraction where there is one."""
    precision = "milliseconds" if ms % 1000 else "seconds"
    return as_date(ms).isoformat(timespec=precision).replace("+00:00", "Z")
