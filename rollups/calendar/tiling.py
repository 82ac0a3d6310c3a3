"""Which summaries make up a range of time: the largest windows first, and what no summary covers. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import NamedTuple

from buckets.fields.times import as_date
from config.errors import UsageError
from rollups.calendar.due import Kind, KindName, Span
from rollups.calendar.windows import HOUR

NOT_ROLLED_UP = "not rolled up yet"
PAST_RETENTION = "past its retention: the summaries are gone"
_NEVER = 2**62


class Piece(NamedTuple):
    """Adjoining windows of one kind; or, with a reason, a stretch without summaries."""

    start: int  # milliseconds
    end: int
    kind: KindName
    windows: int
    reason: str | None = None


@dataclass(frozen=True)
class Tiling:
    """Together they are the range, each instant of it once."""

    pieces: Sequence[Piece]  # what there are summaries of
    missing: Sequence[Piece]  # what there are none of

    def windows(self, kind: KindName) -> int:
        return sum(piece.windows for piece in self.pieces if piece.kind == kind)


@dataclass(frozen=True)
class Standing:
    """The windows of a kind whose summaries stand: those that end in [low, high]."""

    kind: Kind
    low: int
    high: int


def standing(
    kind: Kind, through: Mapping[KindName, int], gone: Mapping[KindName, int], now: datetime
) -> Standing:
    """`through`: how far each kind is rolled up; `gone`: what ended before it has gone."""
    expired = kind.expired_before(now)
    low = max(gone.get(kind.name, -_NEVER), -_NEVER if expired is None else expired)
    return Standing(kind, low, through.get(kind.name, -_NEVER))


def tile(stocks: Sequence[Standing], start: int, end: int) -> Tiling:
    """The fewest windows that make up [start, end) and leave the least of it uncovered.

    A day is taken where it fits: where its zone's offset is no whole hour, the hours around it do not meet
    it. Raises UsageError where no whole windows make up the range.
    """
    by_name = {stock.kind.name: stock for stock in stocks}
    nodes, days = _nodes(by_name.get("daily"), start, end)
    best: list[tuple[tuple[int, int], list[Piece], int] | None] = [((0, 0), [], -1)]
    aligned = 0 if start % HOUR == 0 else None
    for at in range(1, len(nodes)):
        ways = []
        if "daily" in by_name and nodes[at - 1] in days and nodes[at] in days:
            ways.append((at - 1, [_day(by_name["daily"], nodes[at - 1], nodes[at])]))
        if "hourly" in by_name and aligned is not None and nodes[at] % HOUR == 0:
            ways.append((aligned, list(_hours(by_name["hourly"], nodes[aligned], nodes[at]))))
        best.append(_cheapest(best, ways))
        if nodes[at] % HOUR == 0 and best[at] is not None:
            aligned = at
    if len(nodes) < 2 or best[-1] is None:
        raise UsageError(_refusal(stocks, start, end))
    pieces: list[Piece] = []
    at = len(nodes) - 1
    while (step := best[at]) is not None and step[2] >= 0:
        pieces += reversed(step[1])
        at = step[2]
    joined = list(_joined(reversed(pieces)))
    return Tiling([it for it in joined if it.reason is None], [it for it in joined if it.reason is not None])


def _nodes(daily: Standing | None, start: int, end: int) -> tuple[list[int], set[int]]:
    """Where one window may end and another begin, apart from the hours in between; and which are days'."""
    days = set() if daily is None else {edge for edge in daily.kind.edges(start, end) if start <= edge <= end}
    return sorted(days | {start, end}), days


def _cheapest(
    best: list[tuple[tuple[int, int], list[Piece], int] | None], ways: list[tuple[int, list[Piece]]]
) -> tuple[tuple[int, int], list[Piece], int] | None:
    """Of the ways to come here, the one that leaves the least uncovered, then takes the fewest windows."""
    found = []
    for origin, pieces in ways:
        before = best[origin]
        if before is not None:
            uncovered = sum(it.end - it.start for it in pieces if it.reason is not None)
            cost = before[0][0] + uncovered, before[0][1] + sum(it.windows for it in pieces)
            found.append((cost, pieces, origin))
    return min(found, key=lambda way: way[0], default=None)


def _day(stock: Standing, start: int, end: int) -> Piece:
    if end > stock.high:
        return Piece(start, end, "daily", 0, NOT_ROLLED_UP)
    if end < stock.low:
        return Piece(start, end, "daily", 0, PAST_RETENTION)
    return Piece(start, end, "daily", 1)


def _hours(stock: Standing, start: int, end: int) -> Iterator[Piece]:
    high = max(start, min(end, stock.high // HOUR * HOUR))
    low = min(high, max(start, -(-stock.low // HOUR) * HOUR - HOUR))
    if start < low:
        yield Piece(start, low, "hourly", 0, PAST_RETENTION)
    if low < high:
        yield Piece(low, high, "hourly", (high - low) // HOUR)
    if high < end:
        yield Piece(high, end, "hourly", 0, NOT_ROLLED_UP)


def _joined(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Those that adjoin, of one kind and reason, as one; a reason joins whatever kind."""
    for _, run in groupby(pieces, key=lambda it: it.reason or it.kind):
        first, *rest = run
        last = rest[-1] if rest else first
        windows = first.windows + sum(it.windows for it in rest)
        yield Piece(first.start, last.end, first.kind, windows, first.reason)


def _refusal(stocks: Sequence[Standing], start: int, end: int) -> str:
    range_ = f"{instant(start)} to {instant(end)}"
    if not stocks:
        return "the policy makes no summaries: add a rollup to it"
    near = [f"{_name(stock.kind)}: {_near(stock.kind, start, end)}" for stock in stocks]
    return f"no whole windows make up {range_}. The nearest that do: {'; '.join(near)}"


def _name(kind: Kind) -> str:
    return "hours" if kind.name == "hourly" else "local dates" if kind.local else f"days in {kind.zone.key}"


def _near(kind: Kind, start: int, end: int) -> str:
    """Boundaries around both ends: `since` is one of the first, `until` one of the second."""
    since, until = (_around(kind, ms) for ms in (start, end))
    return f"from {' or '.join(map(instant, since))} to {' or '.join(map(instant, until))}"


def _around(kind: Kind, ms: int) -> Span | tuple[int]:
    low, high = kind.edges(ms, ms + 1)
    return (low,) if low == ms else (low, high)


def instant(ms: int) -> str:
    """2018-06-30T00:00:00Z; with milliseconds where there are some."""
    precision = "milliseconds" if ms % 1000 else "seconds"
    return as_date(ms).isoformat(timespec=precision).replace("+00:00", "Z")
