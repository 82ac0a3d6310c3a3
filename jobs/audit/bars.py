"""Bytes of each month, as the paths of an SVG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

Body = dict[str, Any]

#: From the bottom upwards.
KINDS = ("live", "archived", "online", "summaries")


HEIGHT, _LEAST_MONTHS = 100, 12


class Bars(NamedTuple):
    """A bar a month, 8 wide, 10 apart. `few`: of a year at most. `most`: the bytes of the highest."""

    width: int
    few: bool
    lines: list[tuple[str, str]]
    most: int
    highest: str


def bars(months: Sequence[Body]) -> Bars | None:
    """Returns the bars of some months, and room for those between them; None where there are no bytes."""
    totals = {it["month"]: sum(it[kind]["bytes"] for kind in KINDS) for it in months}
    highest = max(totals, key=lambda it: totals[it], default="")
    if not highest or not totals[highest]:
        return None
    first = _number(months[0]["month"])
    lines = [(kind, path) for kind in KINDS if (path := _path(months, kind, totals[highest], first))]
    count = _number(months[-1]["month"]) - first + 1
    is_few = count <= _LEAST_MONTHS
    return Bars(max(_LEAST_MONTHS, count) * 10, is_few, lines, totals[highest], highest)


def _path(months: Sequence[Body], kind: str, most: int, first: int) -> str:
    path = ""
    for it in months:
        below = sum(it[other]["bytes"] for other in KINDS[: KINDS.index(kind)])
        start, end = (round(HEIGHT * part / most) for part in (below, below + it[kind]["bytes"]))
        if end > start:
            path += f"M{(_number(it['month']) - first) * 10 + 5} {HEIGHT - start}V{HEIGHT - end}"
    return path


def _number(month: str) -> int:
    year, _, of_year = month.partition("-")
    return int(year) * 12 + int(of_year)
