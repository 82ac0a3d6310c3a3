"""The expected results, computed from the invented readings alone: no code of the suite takes part."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime, time, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

from jobs.demo.invent import HOUR, SECOND, Floats, Integers, Invented


class Expected(NamedTuple):
    """One value field of one series in one window."""

    series: int
    start: int  # milliseconds
    field: str
    values: Floats  # by time


def hours(made: Invented) -> Integers:
    """Returns the edges of all UTC hours that hold a reading, and of those between."""
    return np.arange(made.time.min() // HOUR, made.time.max() // HOUR + 2, dtype=np.int64) * HOUR


def days(made: Invented, zone: str) -> Integers:
    """Returns the edges of all calendar days in a zone that hold a reading, and of those between."""
    tz = ZoneInfo(zone)
    first, last = (
        datetime.fromtimestamp(at / SECOND, tz).date() for at in (made.time.min(), made.time.max())
    )
    dates = (first + timedelta(days=n) for n in range((last - first).days + 2))
    return np.array([int(datetime.combine(it, time(), tz).timestamp()) * SECOND for it in dates])


def windows(made: Invented, edges: Integers, due: int) -> Iterator[Expected]:
    """Yields what the summaries of all windows that end by `due` must stand for."""
    window = np.searchsorted(edges, made.time, side="right") - 1
    order = np.lexsort((made.time, window, made.of))
    order = order[edges[window[order] + 1] <= due]
    cells = made.of[order] * len(edges) + window[order]
    for part in np.split(order, np.flatnonzero(np.diff(cells)) + 1):
        for name, values in made.values.items():
            yield Expected(int(made.of[part[0]]), int(edges[window[part[0]]]), name, values[part])


def wrong(expected: Expected, summary: dict[str, Any]) -> str | None:
    """Returns how a summary's sub-document differs from its readings; None where it doesn't."""
    values, ranked, count = expected.values, np.sort(expected.values), len(expected.values)
    exact = {"count": count, "min": ranked[0], "max": ranked[-1], "first": values[0], "last": values[-1]}
    within = {key: (wanted, wanted) for key, wanted in exact.items()}
    total = math.fsum(values)
    for key, wanted in (("sum", total), ("avg", total / count)):
        within[key] = (wanted - abs(wanted) * 1e-12, wanted + abs(wanted) * 1e-12)
    for percent in (50, 95, 99):
        rank = (count - 1) * percent / 100
        if f"p{percent}" in summary:
            within[f"p{percent}"] = (ranked[math.floor(rank)] * 0.99, ranked[math.ceil(rank)] * 1.01)
    for key, (low, high) in within.items():
        if not low <= summary[key] <= high:
            return f"{key} is {summary[key]}, and the readings give {low} to {high}"
    return None
