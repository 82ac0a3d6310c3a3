"""Windows: half-open spans [start, end) that tile time. Hours and their parts are those of UTC; days, ISO
weeks and calendar months are those of a time zone.

Instants are int64 milliseconds since the epoch, UTC. An array of n + 1 edges stands for n adjoining windows.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from bson.datetime_ms import DatetimeMS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

HOUR = 3_600_000
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  (naive arithmetic never overflows at the calendar's ends)
_MILLISECOND = timedelta(milliseconds=1)

#: Windows exist for LOWEST <= instant < HIGHEST: a little inside what datetime can hold in any zone.
LOWEST = (datetime(1, 1, 8) - _EPOCH) // _MILLISECOND  # noqa: DTZ001
HIGHEST = (datetime(9999, 12, 24) - _EPOCH) // _MILLISECOND  # noqa: DTZ001


def to_ms(instant: datetime | DatetimeMS) -> int:
    """Returns a date in milliseconds, rounded down, in whatever type pymongo gave it: a naive one is UTC."""
    if isinstance(instant, DatetimeMS):
        return int(instant)
    aware = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
    return (aware - datetime(1970, 1, 1, tzinfo=UTC)) // _MILLISECOND


def span_ms(length: timedelta) -> int:
    """Returns a length of time in milliseconds, rounded down."""
    return length // _MILLISECOND


def step_edges(start_ms: int, end_ms: int, step: int) -> list[int]:
    """Returns the edges of the whole windows of `step` milliseconds, counted from the epoch, that touch
    [start_ms, end_ms)."""
    first = start_ms // step
    last = max(first, -(-end_ms // step))
    return list(range(first * step, last * step + 1, step))


def day_edges(start_ms: int, end_ms: int, zone: ZoneInfo) -> NDArray[np.int64]:
    """Returns the edges of the whole calendar days in `zone` that touch [start_ms, end_ms).

    Raises ValueError a day or more outside LOWEST … HIGHEST."""
    first = _local_date(start_ms, zone).toordinal() - 2
    last = _local_date(max(start_ms, end_ms), zone).toordinal() + 3
    # A day that does not exist starts where the next one does: the set leaves no window for it. (`np.unique`
    # imports numpy's masked arrays, which takes as long as a run that finds nothing new.)
    return _around({day_start(date.fromordinal(day), zone) for day in range(first, last)}, start_ms, end_ms)


def week_edges(start_ms: int, end_ms: int, zone: ZoneInfo) -> NDArray[np.int64]:
    """Returns the edges of the whole ISO weeks in `zone`, from Monday on, that touch [start_ms, end_ms)."""
    return _period_edges(start_ms, end_ms, zone, _monday)


def month_edges(start_ms: int, end_ms: int, zone: ZoneInfo) -> NDArray[np.int64]:
    """Returns the edges of the whole calendar months in `zone` that touch [start_ms, end_ms)."""
    return _period_edges(start_ms, end_ms, zone, _first_of_month)


def _period_edges(
    start_ms: int, end_ms: int, zone: ZoneInfo, first_day: Callable[[date, int], date]
) -> NDArray[np.int64]:
    """Returns the edges of periods. `first_day(day, n)`: where the period that holds the day begins, or the
    n-th after it."""
    at = first_day(_local_date(start_ms, zone), -1)
    last = first_day(_local_date(max(start_ms, end_ms), zone), 2)
    days = [at]
    while at < last:
        at = first_day(at, 1)
        days.append(at)
    return _around({day_start(day, zone) for day in days}, start_ms, end_ms)


def _monday(day: date, later: int) -> date:
    return _clamped(day.toordinal() - day.weekday() + 7 * later)


def _first_of_month(day: date, later: int) -> date:
    years, month = divmod(12 * day.year + day.month - 1 + later, 12)
    if not date.min.year <= years <= date.max.year:
        return _clamped(0 if years < date.min.year else date.max.toordinal())
    return _clamped(date(years, month + 1, 1).toordinal())


def _clamped(ordinal: int) -> date:
    """Returns the date, moved to the first or last supported year if it is outside. Weeks and months
    are cut there, so that their start exists in every zone."""
    return date.fromordinal(min(max(ordinal, date.min.toordinal() + 2), date.max.toordinal() - 2))


def _around(starts_of: set[int], start_ms: int, end_ms: int) -> NDArray[np.int64]:
    """Returns those starts of windows that lie around what touches [start_ms, end_ms)."""
    import numpy as np  # here, since each command imports this module

    starts = np.array(sorted(starts_of), dtype=np.int64)
    begin = int(np.searchsorted(starts, start_ms, side="right")) - 1
    stop = max(begin, int(np.searchsorted(starts, end_ms, side="left")))
    return starts[begin : stop + 1]


def day_of(ms: int, zone: ZoneInfo) -> tuple[int, int]:
    """Returns the day window in `zone` that holds the instant."""
    start, end = day_edges(ms, ms + 1, zone).tolist()
    return start, end


@lru_cache(maxsize=65_536)
def day_start(day: date, zone: ZoneInfo) -> int:
    """Returns the first instant of a local date. If midnight is repeated, that is the first one; if it
    is skipped, the instant of the jump."""
    wall = datetime(day.year, day.month, day.day)  # noqa: DTZ001
    early, late = (_utc(wall, zone, fold) for fold in (0, 1))
    if early <= late:
        return early
    # The clock jumps over midnight. Find the jump between the two readings of that wall time, to the second.
    low, high = late // 1000, early // 1000
    while high - low > 1:
        middle = (low + high) // 2
        if _local_date(middle * 1000, zone) < day:
            low = middle
        else:
            high = middle
    return high * 1000


def _utc(wall: datetime, zone: ZoneInfo, fold: int) -> int:
    offset = wall.replace(tzinfo=zone, fold=fold).utcoffset() or timedelta(0)
    return (wall - offset - _EPOCH) // _MILLISECOND


def _local_date(ms: int, zone: ZoneInfo) -> date:
    if not LOWEST - 24 * HOUR < ms < HIGHEST + 24 * HOUR:  # days that hold these two reach over them
        raise ValueError(f"{ms} ms since the epoch lies outside the years 1 to 9999")
    return (_EPOCH + timedelta(milliseconds=ms)).replace(tzinfo=UTC).astimezone(zone).date()
