"""Points of time: milliseconds since the epoch inside, dates and epoch seconds in documents."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from buckets.bsontypes import DATE, DOUBLE, INT32, INT64
from buckets.layout import Cell, Element, Group, by_type

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: The years that people, Python and the archive's `dt=` can name: 1 to 9999.
FIRST_MS = -62_135_596_800_000
LAST_MS = 253_402_300_799_999
DAY_MS = 86_400_000

#: Stands for a time that is no time.
NO_TIME = -(2**63)

_DTYPES = {DATE: "<i8", DOUBLE: "<f8", INT32: "<i4", INT64: "<i8"}


def as_date(ms: int) -> datetime:
    """Clipped to the years 1 to 9999."""
    return _EPOCH + timedelta(milliseconds=min(max(ms, FIRST_MS), LAST_MS))


def as_text(date: datetime) -> str:
    """2018-06-30T00:00:00Z: for messages, which need no milliseconds."""
    return date.isoformat(timespec="seconds").replace("+00:00", "Z")


def as_ms(date: datetime) -> int:
    return (date - _EPOCH) // timedelta(milliseconds=1)


def read_times(group: Group, cells: Sequence[Cell]) -> NDArray[np.int64]:
    """Times as n × k milliseconds. A time outside the years 1 to 9999, or NaN, or none at all, is NO_TIME."""
    if alike := group.of_one_type(cells):
        times = _milliseconds(group, *alike)
    else:
        times = np.full((len(group.matrix), len(cells)), NO_TIME)
        for kind, at, elements in by_type(cells):
            group.put(times, at, _milliseconds(group, kind, elements), elements)
    if times.size and (times.min() < FIRST_MS or times.max() > LAST_MS):
        times[(times < FIRST_MS) | (times > LAST_MS)] = NO_TIME
    return times


def _milliseconds(group: Group, kind: int, elements: Sequence[Element]) -> NDArray[np.int64]:
    raw = group.read(elements, _DTYPES[kind])
    return np.asarray(raw, dtype=np.int64) if kind == DATE else from_seconds(raw)


def from_seconds(seconds: NDArray[np.generic]) -> NDArray[np.int64]:
    """To the nearest millisecond, halves upwards; NO_TIME for NaN and what is far outside."""
    low, high = FIRST_MS // 1000 - 1, LAST_MS // 1000 + 1
    if seconds.dtype.kind == "i" and seconds.size and low <= seconds.min() and seconds.max() <= high:
        return seconds.astype(np.int64) * 1000
    sane = (seconds >= low) & (seconds <= high)  # type: ignore[operator]
    held = np.where(sane, seconds, 0)
    if held.dtype.kind == "i":
        ms = held.astype(np.int64) * 1000
    else:
        ms = np.floor(held * 1000.0 + 0.5).astype(np.int64)
    return np.where(sane, ms, NO_TIME)


def as_seconds(ms: int) -> float:
    """The first number of seconds that `from_seconds` takes to this millisecond."""
    return (ms - 0.5) / 1000
