"""What must come out, computed from the invented readings alone: no code of the suite takes part."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from jobs.demo.invent import HOUR, SECOND, Floats, Integers, Invented


class Expected(NamedTuple):
    """One value field of one series in one window."""

    series: int
    start: int  # milliseconds
    field: str
    values: Floats  # by time


def hours(made: Invented) -> Integers:
    """The edges of all UTC hours that hold a reading, and of those between."""
    first, last = int(made.time.min()) // HOUR, int(made.time.max()) // HOUR
    return np.arange(first, last + 2, dtype=np.int64) * HOUR


def days(made: Invented, zone: str) -> Integers:
    """The same for calendar days."""
    tz = ZoneInfo(zone)
    first = datetime.fromtimestamp(int(made.time.min()) / SECOND, tz).date()
    last = datetime.fromtimestamp(int(made.time.max()) / SECOND, tz).date()
    midnights = [
        datetime.combine(first + timedelta(days=n), time(), tz) for n in range((last - first).days + 2)
    ]
    return np.array([int(midnight.timestamp()) * SECOND for midnight in midnights], dtype=np.int64)


def windows(made: Invented, edges: Integers, due: int) -> Iterator[Expected]:
    """What the summaries of all windows that end by `due` must stand for."""
    window = np.searchsorted(edges, made.time, side="right") - 1
    order = np.lexsort((made.time, window, made.of))
    order = order[edges[window[order] + 1] <= due]
    cells = made.of[order] * len(edges) + window[order]
    for part in np.split(order, np.flatnonzero(np.diff(cells)) + 1):
        for name, values in made.values.items():
            yield Expected(int(made.of[part[0]]), int(edges[window[part[0]]]), name, values[part])


def wrong(expected: Expected, summary: dict[str, Any]) -> str | None:
    """How a summary's sub-document differs from its readings; None where it doesn't."""
    values = expected.values
    exact = {
        "count": len(values),
        "min": values.min(),
        "max": values.max(),
        "first": values[0],
        "last": values[-1],
    }
    for key, wanted in exact.items():
        if summary[key] != wanted:
            return f"{key} is {summary[key]}, and the readings give {wanted}"
    total = math.fsum(values)
    if not math.isclose(summary["sum"], total, rel_tol=1e-12):
        return f"sum is {summary['sum']}, and the readings give {total}"
    if not math.isclose(summary["avg"], total / len(values), rel_tol=1e-12):
        return f"avg is {summary['avg']}, and the readings give {total / len(values)}"
    ranked = np.sort(values)
    for percent in (50, 95, 99):
        key, rank = f"p{percent}", (len(values) - 1) * percent / 100
        low, high = ranked[math.floor(rank)], ranked[math.ceil(rank)]
        if key in summary and not low * 0.99 <= summary[key] <= high * 1.01:
            return f"{key} is {summary[key]}, and the readings give {low} to {high}"
    return None


def expired(made: Invented, cutoff: datetime) -> NDArray[np.bool_]:
    """b: which buckets have their last reading before the cutoff."""
    return made.last < int(cutoff.astimezone(UTC).timestamp()) * SECOND
