"""What summaries must say, in plain Python: from a ledger's readings, a zone and the present."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.acceptance.written import Document, Entry, instant
from tests.rollups.calendar_oracle import day_starts

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
SETTLE = timedelta(minutes=10)
PERCENTILES = {"p50": Fraction(50), "p99": Fraction(99), "p99_9": Fraction("99.9")}
Key = tuple[int, datetime]  # series, start of the window
Windows = dict[Key, tuple[datetime, list[Entry]]]  # its end, its readings


def windows(entries: Sequence[Entry], kind: str, zone: str, now: datetime) -> Windows:
    """Of every series, the windows with a reading that are over and settled."""
    if not entries:
        return {}
    first, last = instant(entries[0].at), instant(entries[-1].at)
    edges: list[datetime] = []
    if kind == "daily":
        edges = sorted(day_starts(ZoneInfo(zone), _hour(first) - 2 * DAY, _hour(last) + 3 * DAY).values())
    found: dict[Key, list[Entry]] = defaultdict(list)
    ends: dict[datetime, datetime] = {}
    for entry in entries:
        at = instant(entry.at)
        start = _hour(at)
        end = start + HOUR
        if kind == "daily":
            start = max(edge for edge in edges if edge <= at)
            end = min(edge for edge in edges if edge > at)
        ends[start] = end
        found[entry.series, start].append(entry)
    return {key: (ends[key[1]], some) for key, some in found.items() if ends[key[1]] + SETTLE <= now}


def _hour(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)


def assert_summary(
    summary: Document,
    key: Key,
    end: datetime,
    entries: Sequence[Entry],
    fields: Iterable[str],
    zone: str | None,
) -> None:
    """`zone`: of a day's summary; None for an hour's."""
    series, start = key
    head: Mapping[str, Any] = {
        "_id": {"series": {"dev": series}, "start": start},
        "dev": series,
        "start": start,
        "end": end,
        **({"timezone": zone, "hours": (end - start) / HOUR} if zone else {}),
        "count": len(entries),
    }
    assert {name: summary[name] for name in head} == head
    assert list(summary) == [*head, *fields]
    for place, name in enumerate(fields):
        assert_values(summary[name], [(entry.at, entry.values[place]) for entry in entries])


def assert_values(told: Mapping[str, Any], readings: Sequence[tuple[int, Any]]) -> None:
    """Of one value field; readings in the ledger's order, None for no value."""
    texts = [value for _, value in readings if isinstance(value, str)]
    numbers = [(at, value) for at, value in readings if isinstance(value, int | float)]
    finite = [(at, value) for at, value in numbers if math.isfinite(value)]
    values = [value for _, value in finite]
    assert told.get("nonnumeric", 0) == len(texts)
    assert told.get("nonfinite", 0) == len(numbers) - len(finite)
    assert told["count"] == len(values)
    assert told["sum"] == pytest.approx(math.fsum(values), rel=1e-12, abs=0)
    names = ("min", "max", "first", "first_at", "last", "last_at")
    if not values:
        assert {*names, "avg", "stddev", *PERCENTILES}.isdisjoint(told)
        return
    (first_at, first), (last_at, last) = finite[0], finite[-1]
    exact = (min(values), max(values), first, instant(first_at), last, instant(last_at))
    assert tuple(told[name] for name in names) == exact
    mean = float(sum(map(Fraction, values)) / len(values))
    assert told["avg"] == pytest.approx(mean, rel=1e-12, abs=0)
    assert told["stddev"] == pytest.approx(statistics.pstdev(values), rel=1e-9, abs=0)
    ordered = sorted(values)
    for name, percent in PERCENTILES.items():
        nearest = ordered[max(1, math.ceil(percent * len(ordered) / 100)) - 1]
        assert abs(told[name] - nearest) <= abs(nearest) / 100
