"""What clocks of a time zone show, for arrays of times.

A clock time is counted like an instant: milliseconds from 1970 on, as if the clock were one of UTC.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.fields.times import DAY_MS, FIRST_MS, LAST_MS, NO_TIME

Times = NDArray[np.int64]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: No zone has changed its clock before this year. Rules of a zone may be listed year by year up to the other;
#: from then on they repeat, as the calendar does, every 400 years.
_FIRST_YEAR, _LISTED_TO, _PERIOD = 1800, 2100, 400
_PERIOD_DAYS = 146_097


class Clock:
    """The clock of a time zone."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._zone = ZoneInfo(name)

    @property
    def is_utc(self) -> bool:
        """Returns whether the zone is UTC, by that name."""
        return self.name == "UTC"

    def shown(self, instants: Times) -> Times:
        """Returns what the clock shows at instants; NO_TIME for NO_TIME."""
        return _where_timed(instants, instants + self._offsets(instants))

    def instants(self, shown: Times) -> Times:
        """Returns when the clock shows these times: the first time, where it shows one twice. NO_TIME for one
        that it skips, and for NO_TIME."""
        before, after = self._offsets(shown - DAY_MS), self._offsets(shown + DAY_MS)
        found = shown - before
        changes = before != after
        if changes.any():
            found[changes] = self._near_a_change(shown[changes], before[changes], after[changes])
        return _where_timed(shown, found)

    def since(self, shown: Times) -> Times:
        """Returns when the clock first shows these times or, where it skips one, a later one; NO_TIME for
        NO_TIME."""
        found = self.instants(shown)
        is_skipped = (found == NO_TIME) & (shown != NO_TIME)
        if is_skipped.any():
            late = shown[is_skipped] - self._offsets(shown[is_skipped] - DAY_MS)
            since, _ = self._table(late)
            found[is_skipped] = since[np.searchsorted(since, late, side="right") - 1]
        return found

    def _near_a_change(self, shown: Times, before: Times, after: Times) -> Times:
        early, late = shown - before, shown - after
        found = np.where(self._offsets(late) == after, late, NO_TIME)
        return np.where(self._offsets(early) == before, early, found)

    def _offsets(self, instants: Times) -> Times:
        since, offsets = self._table(instants)
        if len(since) == 1:
            return np.full(instants.shape, offsets[0])
        return offsets[np.maximum(np.searchsorted(since, instants, side="right") - 1, 0)]

    def _table(self, instants: Times) -> tuple[Times, Times]:
        """Returns since when which offset from UTC holds, for as long as the instants span."""
        timed = instants[instants != NO_TIME] if instants.size else instants
        if not timed.size:
            return np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
        first, last = (min(max(int(it), FIRST_MS), LAST_MS) for it in (timed.min(), timed.max()))
        return _offsets_of(self._zone, _year_of(first), _year_of(last))


@lru_cache(64)
def clock_of(name: str) -> Clock:
    """Returns the clock of a time zone, by its IANA name."""
    return Clock(name)


def _where_timed(given: Times, found: Times) -> Times:
    return np.where(given == NO_TIME, NO_TIME, found)


def _year_of(ms: int) -> int:
    return int(np.datetime64(ms, "ms").astype("datetime64[Y]").astype(int)) + 1970


@lru_cache(64)
def _offsets_of(zone: ZoneInfo, first_year: int, last_year: int) -> tuple[Times, Times]:
    """Returns since when which offset holds in these years."""
    since: list[int] = []
    offsets: list[int] = []
    first = max(first_year, _FIRST_YEAR)
    for year in range(first, max(last_year, first) + 1):
        periods = max(0, (year - _LISTED_TO) // _PERIOD)
        for at, offset in _changes(zone, year - periods * _PERIOD):
            if not offsets or offsets[-1] != offset:
                since.append(at + periods * _PERIOD_DAYS * DAY_MS)
                offsets.append(offset)
    return np.array(since, dtype=np.int64), np.array(offsets, dtype=np.int64)


@lru_cache(4096)
def _changes(zone: ZoneInfo, year: int) -> list[tuple[int, int]]:
    """Returns since when which offset holds in a year of UTC: from its start, and from each change on."""

    def offset(second: int) -> int:
        at = (_EPOCH + timedelta(seconds=second)).astimezone(zone)
        return (at.utcoffset() or timedelta(0)) // timedelta(milliseconds=1)

    day = DAY_MS // 1000
    start = (datetime(year, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(seconds=1)
    found = [(start * 1000, offset(start))]
    for low in range(start, start + 366 * day, day):
        early, late, known = low, low + day, found[-1][1]
        if offset(late) == known:
            continue
        while late - early > 1:  # the change lies after the one and not after the other
            middle = (early + late) // 2
            early, late = (middle, late) if offset(middle) == known else (early, middle)
        found.append((late * 1000, offset(late)))
    return found
