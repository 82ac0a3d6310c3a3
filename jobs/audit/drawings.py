"""Drawings of an audit, as paths of an SVG: a calendar of where each day is, and the bytes of each month."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, timedelta
from itertools import groupby
from typing import Any, NamedTuple

from bucketwise.jobs.output.text import size

Body = dict[str, Any]

ROW_HEIGHT = 8
#: State -> the middle of its bar; the style has its thickness. Bars stand on the bottom of the row.
_MIDDLE = {"summarised": "6", "expired": "7.5"}
_WHOLE = "4"
#: With more months than these a row is a year.
_MOST_MONTHS = 12
_ONE_DAY = timedelta(days=1)
_YEAR = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
_NAMES = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


class Mark(NamedTuple):
    """The text shown under the pointer, and the path of its days."""

    title: str
    path: str


class Row(NamedTuple):
    """A row of the calendar. `lines`: each a state, and the path of its days."""

    label: str
    title: str
    lines: list[tuple[str, str]]
    marks: list[Mark]


class Tick(NamedTuple):
    """A label above the rows, and how many days it spans."""

    label: str
    days: int


class Strip(NamedTuple):
    """The calendar. `columns`: days in a row. In a year, ticks mark the beginnings of months; in a month,
    days."""

    columns: int
    ticks: list[Tick]
    rows: list[Row]


class _Piece(NamedTuple):
    """Days of one state in one month."""

    run: Body
    first: date
    days: int


def strip(runs: Sequence[Body], *, is_brief: bool) -> Strip:
    """Returns the calendar of the runs of a coverage. `is_brief`: details come by month, not for each run."""
    pieces = [piece for run in runs for piece in _by_month(run)]
    by_year = len({(it.first.year, it.first.month) for it in pieces}) > _MOST_MONTHS
    rows = []
    for label, some in groupby(pieces, lambda it: it.first.isoformat()[: 4 if by_year else 7]):
        those = list(some)
        marks = _months(those, by_year) if is_brief else _runs(those, by_year)
        rows.append(Row(label, f"{label}: {_counted(those)}", list(_lines(those, by_year)), list(marks)))
    if by_year:
        return Strip(sum(_YEAR), [Tick(*it) for it in zip(_NAMES, _YEAR, strict=True)], rows)
    ticks = [Tick(str(day), 5 if day < 30 else 2) for day in range(5, 31, 5)]
    return Strip(31, [Tick("1", 4), *ticks], rows)


def _by_month(run: Body) -> Iterator[_Piece]:
    at, last = date.fromisoformat(run["first"]), date.fromisoformat(run["last"])
    while True:
        end = min(last, _last_of_month(at))
        yield _Piece(run, at, (end - at).days + 1)
        if end == last:
            return
        at = end + _ONE_DAY


def _last_of_month(day: date) -> date:
    if day.month == 12:
        return day.replace(day=31)
    return day.replace(month=day.month + 1, day=1) - _ONE_DAY


def _runs(pieces: Iterable[_Piece], by_year: bool) -> Iterator[Mark]:
    """Yields a mark for each run, as far as it is in the row."""
    for _, same in groupby(pieces, lambda it: it.run["first"]):
        those = list(same)
        yield Mark(_of_run(those[0].run), _path(those, by_year))


def _months(pieces: Iterable[_Piece], by_year: bool) -> Iterator[Mark]:
    """Yields a mark for each month; for adjoining months that are in one state, one."""
    months = [list(some) for _, some in groupby(pieces, lambda it: it.first.month)]
    for _, same in groupby(enumerate(months), lambda it: _sole_state(it[1]) or it[0]):
        those = [piece for _, month in same for piece in month]
        first, last = (it.first.isoformat()[:7] for it in (those[0], those[-1]))
        span = first if first == last else f"{first} to {last}"
        yield Mark(f"{span}: {_counted(those)}", _path(those, by_year))


def _sole_state(pieces: Sequence[_Piece]) -> str | None:
    states = {it.run["state"] for it in pieces}
    return states.pop() if len(states) == 1 else None


def _lines(pieces: Iterable[_Piece], by_year: bool) -> Iterator[tuple[str, str]]:
    """Yields a line for each state that is shown."""
    by_state: dict[str, list[_Piece]] = {}
    for it in pieces:
        by_state.setdefault(it.run["state"], []).append(it)
    for state, some in by_state.items():
        if state != "gap":
            yield state, _path(some, by_year, _MIDDLE.get(state, _WHOLE))


def _path(pieces: Iterable[_Piece], by_year: bool, middle: str = _WHOLE) -> str:
    path, end = "", 0
    for start, stop in _joined(_columns(it, by_year) for it in pieces):
        path += f"m{start - end} 0h{stop - start}" if path else f"M{start} {middle}h{stop - start}"
        end = stop
    return path


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, stop in spans:
        if found and found[-1][1] == start:
            found[-1] = found[-1][0], stop
        else:
            found.append((start, stop))
    return found


def _columns(piece: _Piece, by_year: bool) -> tuple[int, int]:
    """Returns the columns of a piece. Each year has room for 29 February, so that months stand below each
    other."""
    if not by_year:
        return piece.first.day - 1, piece.first.day - 1 + piece.days
    month, last = piece.first.month, piece.first + (piece.days - 1) * _ONE_DAY
    start = sum(_YEAR[: month - 1])
    is_whole = last == _last_of_month(last)
    return start + piece.first.day - 1, sum(_YEAR[:month]) if is_whole else start + last.day


def _counted(pieces: Iterable[_Piece]) -> str:
    counts: Counter[str] = Counter()
    for it in pieces:
        counts[it.run["state"]] += it.days
    shown = ", ".join(f"{state} {count}" for state, count in counts.most_common())
    return shown + (" day" if counts.total() == 1 else " days")


def _of_run(run: Body) -> str:
    span = run["first"] if run["days"] == 1 else f"{run['first']} to {run['last']}, {_days(run['days'])}"
    readings = "" if not run["readings"] else f", {run['readings']:,} readings"
    return f"{span}: {run['state']}{readings}"


def _days(count: int) -> str:
    return f"{count:,} day{'' if count == 1 else 's'}"


#: From the bottom upwards.
KINDS = ("live", "archived", "online", "summaries")
BAR_HEIGHT, _LEAST_MONTHS = 100, 12


class Bars(NamedTuple):
    """A bar a month, 8 wide, 10 apart. `few`: of a year at most. `most`: the bytes of the highest. `labels`:
    of the axis, at equal distances. `sums`: how much of each kind there is, in words."""

    width: int
    few: bool
    lines: list[tuple[str, str]]
    most: int
    highest: str
    first: str
    last: str
    labels: list[str]
    sums: str


def bars(months: Sequence[Body]) -> Bars | None:
    """Returns the bars of some months, and room for those between them; None where there are no bytes."""
    totals = {it["month"]: sum(it[kind]["bytes"] for kind in KINDS) for it in months}
    highest = max(totals, key=lambda it: totals[it], default="")
    if not highest or not totals[highest]:
        return None
    first = _number(months[0]["month"])
    lines = [(kind, path) for kind in KINDS if (path := _stack(months, kind, totals[highest], first))]
    count = _number(months[-1]["month"]) - first + 1
    is_few, width = count <= _LEAST_MONTHS, max(_LEAST_MONTHS, count)
    sums = {kind: sum(it[kind]["bytes"] for it in months) for kind in KINDS}
    told = "; ".join(f"{kind} {size(count)} in all" for kind, count in sums.items() if count)
    first_name, last_name, labels = months[0]["month"], months[-1]["month"], _labels(first, width)
    return Bars(width * 10, is_few, lines, totals[highest], highest, first_name, last_name, labels, told)


def _labels(first: int, width: int) -> list[str]:
    """Returns the months at the beginning of each third."""
    return [_name(first + width * third // 3) for third in range(3)]


def _name(number: int) -> str:
    return f"{(number - 1) // 12}-{(number - 1) % 12 + 1:02}"


def _stack(months: Sequence[Body], kind: str, most: int, first: int) -> str:
    path = ""
    for it in months:
        below = sum(it[other]["bytes"] for other in KINDS[: KINDS.index(kind)])
        start, end = (round(BAR_HEIGHT * part / most) for part in (below, below + it[kind]["bytes"]))
        if end > start:
            path += f"M{(_number(it['month']) - first) * 10 + 5} {BAR_HEIGHT - start}V{BAR_HEIGHT - end}"
    return path


def _number(month: str) -> int:
    year, _, of_year = month.partition("-")
    return int(year) * 12 + int(of_year)
