"""Clocks of time zones: what they show at given instants, and the instants at which they show it; for arrays.

A clock time is counted like an instant: milliseconds from 1970 on, as if the clock were one of UTC.
"""

from __future__ import annotations

from collections.abc import Sequence
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
#: Of instants that span more years than these, only years in which some lie are looked at.
_FEW_YEARS = 50


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
        """Returns since when which offset from UTC holds in the years of the instants, and in each year
        before: a day that is skipped may end in the next one."""
        timed = instants[instants != NO_TIME] if instants.size else instants
        if not timed.size:
            return np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
        first, last = (int(it) for it in _years_of(np.array([timed.min(), timed.max()])))
        years = range(first, last + 1) if last - first < _FEW_YEARS else np.unique(_years_of(timed)).tolist()
        return _offsets_of(self._zone, tuple(years))


@lru_cache(64)
def clock_of(name: str) -> Clock:
    """Returns the clock of a time zone, by its IANA name."""
    return Clock(name)


def _where_timed(given: Times, found: Times) -> Times:
    return np.where(given == NO_TIME, NO_TIME, found)


def _years_of(instants: Times) -> Times:
    """Returns the years of UTC of instants; of one beyond the calendar its first or last year."""
    times = np.clip(instants, FIRST_MS, LAST_MS).astype("datetime64[ms]")
    return times.astype("datetime64[Y]").astype(np.int64) + 1970


@lru_cache(64)
def _offsets_of(zone: ZoneInfo, years: tuple[int, ...]) -> tuple[Times, Times]:
    """Returns since when which offset holds in these years, which ascend, and in each year before."""
    since: list[int] = []
    offsets: list[int] = []
    for year in sorted({max(it, _FIRST_YEAR) for last in years for it in (last - 1, last)}):
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
        at = datetime.fromtimestamp(second, zone)
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


#: The clock of UTC.
UTC_CLOCK = clock_of("UTC")


def all_shown(clock: Clock, first_ms: int, last_ms: int) -> tuple[int, int]:
    """Returns from what to what a clock shows from one instant to another. What it shows twice counts the
    first time; what it skips, when it does: so each lies in one of several ranges that follow each other. All
    that lies before or after the years that have names counts to the first and the last."""
    if clock.is_utc:
        return first_ms, last_ms
    first = FIRST_MS - DAY_MS if first_ms <= FIRST_MS else _first_shown(clock, first_ms)
    last = LAST_MS + DAY_MS if last_ms >= LAST_MS else _first_shown(clock, last_ms + 1) - 1
    return first, last


def placed(clock: Clock, shown: int) -> int:
    """Returns when a clock shows a time first, or skips it."""
    return int(clock.since(np.array([shown]))[0])


def days_placed(clock: Clock, midnights: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns when days of a clock begin, which are given by their midnights; NO_TIME for a day that it
    skips, and for NO_TIME."""
    if clock.is_utc:
        return midnights
    found = clock.since(midnights)
    return np.where(clock.since(midnights + DAY_MS) == found, NO_TIME, found)


def _first_shown(clock: Clock, instant: int) -> int:
    """Returns the first of all that a clock has neither shown nor skipped before the instant."""
    shown = int(clock.shown(np.array([instant]))[0])
    if placed(clock, shown - 1) < instant == placed(clock, shown):
        return shown
    low, high = shown - 2 * DAY_MS, shown + 2 * DAY_MS  # a clock is changed just before
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if placed(clock, middle) >= instant else (middle + 1, high)
    return low


#: One of each way that clocks go today: others show the same. Those that change their clocks come before
#: those that don't, and of each the more people first.
ZONES = (
    "UTC",
    *("Europe/London", "Europe/Berlin", "Europe/Athens", "Europe/Chisinau"),
    *("America/New_York", "America/Chicago", "America/Denver", "America/Los_Angeles", "America/Anchorage"),
    *("America/Adak", "America/Halifax", "America/St_Johns", "America/Santiago", "America/Asuncion"),
    *(
        "America/Havana",
        "America/Nuuk",
        "America/Miquelon",
        "Atlantic/Azores",
        "Asia/Jerusalem",
        "Asia/Beirut",
    ),
    *("Africa/Cairo", "Australia/Sydney", "Australia/Adelaide", "Australia/Lord_Howe", "Pacific/Auckland"),
    *("Pacific/Chatham", "Pacific/Norfolk", "Pacific/Easter"),
    *("Asia/Shanghai", "Asia/Kolkata", "Asia/Jakarta", "Asia/Karachi", "Asia/Dhaka", "Asia/Tokyo"),
    *("Africa/Lagos", "Africa/Johannesburg", "Europe/Istanbul", "America/Sao_Paulo", "America/Bogota"),
    *("America/Mexico_City", "America/Phoenix", "America/Caracas", "Asia/Dubai", "Asia/Tehran", "Asia/Kabul"),
    *("Asia/Kathmandu", "Asia/Yangon", "Australia/Brisbane", "Australia/Darwin", "Australia/Eucla"),
    *("Pacific/Honolulu", "Pacific/Noumea", "Pacific/Fiji", "Pacific/Tongatapu", "Pacific/Kiritimati"),
    *("Pacific/Marquesas", "Pacific/Gambier", "Pacific/Pago_Pago", "Atlantic/Cape_Verde"),
    "Atlantic/South_Georgia",
)
#: Share of the starts that have to be midnights: some buckets may be broken.
_NEARLY_ALL = 0.9


def with_midnights(instants: Sequence[int]) -> list[str]:
    """Returns the zones in which these instants, in milliseconds, are midnights: UTC alone where it is one
    of them."""
    starts = np.array(sorted(set(instants)), dtype=np.int64)
    found = [name for name in ZONES if _are_midnights(starts, name)]
    return ["UTC"] if "UTC" in found else found


def distinct(shown: Sequence[int]) -> dict[str, bool]:
    """Returns the zones whose clocks showed these times at different instants, each with whether it changed
    its clock on one of those days. Of zones that went alike it is the first."""
    if not shown:
        return {"UTC": False}
    days = np.unique(np.array(sorted(set(shown)), dtype=np.int64) // DAY_MS * DAY_MS)
    hours = (days[:, None] + np.arange(0, DAY_MS + 1, _STEP)).reshape(-1)
    found: dict[bytes, tuple[str, bool]] = {}
    for name in ZONES:
        instants = clock_of(name).instants(hours)
        changes = (np.diff(instants.reshape(len(days), -1), axis=1) != _STEP).any()
        found.setdefault(instants.tobytes(), (name, bool(changes)))
    return dict(found.values())


#: Clocks are changed at a multiple of this.
_STEP = DAY_MS // 48


def _are_midnights(starts: np.ndarray[tuple[int], np.dtype[np.int64]], zone: str) -> bool:
    shown = clock_of(zone).shown(starts)
    return bool(len(starts)) and float((shown % DAY_MS == 0).mean()) >= _NEARLY_ALL
