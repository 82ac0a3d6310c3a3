"""Windows tile time exactly, in every zone and over every change of the clocks."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bucketwise.config.policies import CALENDAR_LEVELS, LEVEL_NAMES, LevelName
from bucketwise.rollups.calendar.levels import Level, sources_of
from bucketwise.rollups.calendar.windows import HIGHEST, HOUR, LOWEST, day_edges, day_of, step_edges, to_ms

ZONES = [
    "UTC", "Europe/Berlin", "America/New_York", "America/Santiago", "America/Sao_Paulo", "America/St_Johns",
    "America/Havana", "Asia/Kolkata", "Asia/Kathmandu", "Asia/Beirut", "Asia/Amman", "Australia/Lord_Howe",
    "Pacific/Apia", "Pacific/Chatham", "Africa/Casablanca", "Atlantic/Azores", "America/Nuuk",
]  # fmt: skip
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
zones = st.sampled_from(ZONES).map(ZoneInfo)
instants = st.integers(to_ms(datetime(2000, 1, 1, tzinfo=UTC)), to_ms(datetime(2037, 12, 31, tzinfo=UTC)))


def at(ms: int, zone: ZoneInfo) -> datetime:
    return (EPOCH + timedelta(milliseconds=ms)).astimezone(zone)


def utc(*parts: int) -> int:
    return to_ms(datetime(*parts, tzinfo=UTC))  # type: ignore[misc,arg-type]


@given(instants, instants)
def test_hours_cover_the_range_with_whole_utc_hours(one: int, other: int) -> None:
    start, end = min(one, other), min(one, other) + abs(one - other) % (90 * 24 * HOUR) + 1
    edges = step_edges(start, end, HOUR)
    assert set(np.diff(edges).tolist()) == {HOUR} and edges[0] % HOUR == 0
    assert edges[0] <= start < edges[1] and edges[-2] < end <= edges[-1]


@given(instants, st.integers(1, 40 * 24 * HOUR), zones)
def test_days_cover_the_range_and_each_instant_is_in_the_day_of_its_date(
    start: int, length: int, zone: ZoneInfo
) -> None:
    edges = day_edges(start, start + length, zone).tolist()
    assert edges[0] <= start < edges[1] and edges[-2] < start + length <= edges[-1]
    for begin, end in pairwise(edges):
        assert begin < end
        first, last = at(begin, zone), at(end - 1, zone)
        assert first.date() == last.date()
        assert at(begin - 1, zone).date() < first.date()
        assert day_of(begin, zone) == day_of(end - 1, zone) == (begin, end)


@given(instants, zones)
def test_a_day_starts_at_its_first_midnight(ms: int, zone: ZoneInfo) -> None:
    begin, end = day_of(ms, zone)
    assert begin <= ms < end
    local = at(begin, zone)
    wall = datetime.combine(local.date(), datetime.min.time(), tzinfo=zone)
    exists = wall.astimezone(UTC).astimezone(zone).replace(tzinfo=None) == wall.replace(tzinfo=None)
    if exists:
        assert begin == to_ms(wall)
    else:
        assert at(begin - 1, zone).utcoffset() != local.utcoffset()


@given(instants, st.integers(1, 30 * 24 * HOUR), st.integers(1, 30 * 24 * HOUR), zones)
def test_neighbouring_ranges_share_their_edges(start: int, one: int, other: int, zone: ZoneInfo) -> None:
    left, right = day_edges(start, start + one, zone), day_edges(start + one, start + one + other, zone)
    both = np.union1d(left, right)
    assert both.tolist() == day_edges(start, start + one + other, zone).tolist()


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("Europe/Berlin", (2018, 3, 25), 23),
        ("Europe/Berlin", (2018, 10, 28), 25),
        ("Australia/Lord_Howe", (2018, 10, 7), 23.5),
        ("Australia/Lord_Howe", (2018, 4, 1), 24.5),
        ("America/Santiago", (2019, 9, 8), 23),
        ("America/Santiago", (2019, 4, 6), 25),
        ("America/Havana", (2018, 11, 4), 25),
        ("Pacific/Apia", (2011, 12, 29), 24),
        ("Pacific/Apia", (2011, 12, 31), 24),
    ],
)
def test_days_are_as_long_as_they_are(zone: str, day: tuple[int, int, int], hours: float) -> None:
    begin, end = day_of(to_ms(datetime(*day, 12, tzinfo=ZoneInfo(zone))), ZoneInfo(zone))
    assert (end - begin) / HOUR == hours
    assert at(begin, ZoneInfo(zone)).date() == date(*day)


def test_offsets_of_quarter_hours() -> None:
    assert day_of(utc(2020, 5, 5), ZoneInfo("Asia/Kathmandu")) == (
        utc(2020, 5, 4, 18, 15),
        utc(2020, 5, 5, 18, 15),
    )
    assert day_of(utc(2020, 5, 5), ZoneInfo("Asia/Kolkata")) == (
        utc(2020, 5, 4, 18, 30),
        utc(2020, 5, 5, 18, 30),
    )


def test_a_day_that_does_not_exist_is_no_window() -> None:
    zone = ZoneInfo("Pacific/Apia")
    edges = day_edges(utc(2011, 12, 28, 12), utc(2012, 1, 2), zone)
    assert [at(edge, zone).date().isoformat() for edge in edges.tolist()] == [
        "2011-12-28", "2011-12-29", "2011-12-31", "2012-01-01", "2012-01-02", "2012-01-03",
    ]  # fmt: skip


def test_a_midnight_that_does_not_exist_is_the_jump() -> None:
    zone = ZoneInfo("America/Santiago")
    begin, _ = day_of(utc(2019, 9, 8, 12), zone)
    assert begin == utc(2019, 9, 8, 4) and at(begin, zone).hour == 1


def test_a_jump_that_begins_before_midnight_starts_the_day_within_it() -> None:
    zone = ZoneInfo("America/Toronto")  # in 1919 the clocks there went from 23:30 to 00:30
    begin, end = day_of(to_ms(datetime(1919, 3, 31, 12, tzinfo=zone)), zone)
    assert at(begin, zone).replace(tzinfo=None) == datetime(1919, 3, 31, 0, 30)  # noqa: DTZ001
    assert at(begin - 1, zone).replace(tzinfo=None) == datetime(1919, 3, 30, 23, 29, 59, 999000)  # noqa: DTZ001
    assert (end - begin) / HOUR == 23.5


@example(LOWEST)
@example(HIGHEST - 1)
@given(st.integers(LOWEST, HIGHEST - 1))
def test_every_instant_of_the_calendar_has_a_day(ms: int) -> None:
    for zone in (ZoneInfo("Pacific/Apia"), ZoneInfo("UTC"), ZoneInfo("Asia/Kolkata")):
        begin, end = day_of(ms, zone)
        assert begin <= ms < end


@pytest.mark.parametrize("zone", ["UTC", "Europe/London", "Asia/Manila", "Pacific/Kiritimati"])
def test_the_first_day_and_the_last_one_are_asked_for_by_their_own_edges(zone: str) -> None:
    for ms in (LOWEST, HIGHEST - 1):
        day = day_of(ms, ZoneInfo(zone))
        assert day_edges(*day, ZoneInfo(zone)).tolist() == list(day)


def test_beyond_the_calendar_there_is_no_day() -> None:
    with pytest.raises(ValueError, match="outside the years"):
        day_of(HIGHEST + 24 * HOUR, ZoneInfo("UTC"))


def level_of(name: LevelName, zone: ZoneInfo) -> Level:
    return Level(name, "c", zone, None)


def period(name: LevelName, date_: date) -> tuple[int, ...]:
    """What all days of a window have in common."""
    return {
        "daily": (date_.toordinal(),),
        "weekly": date_.isocalendar()[:2],
        "monthly": (date_.year, date_.month),
    }[name]


@given(instants, st.integers(1, 400 * 24 * HOUR), zones, st.sampled_from(CALENDAR_LEVELS))
def test_windows_of_a_calendar_hold_all_days_of_their_period_and_no_others(
    start: int, length: int, zone: ZoneInfo, name: LevelName
) -> None:
    edges = level_of(name, zone).edges(start, start + length)
    assert edges[0] <= start < edges[1] and edges[-2] < start + length <= edges[-1]
    days = day_edges(edges[0], edges[-1], zone).tolist()
    assert set(edges) <= set(days), "days tile weeks and months"
    for begin, end in pairwise(edges):
        inside = {period(name, at(day, zone).date()) for day in days if begin <= day < end}
        assert len(inside) == 1
        assert period(name, at(begin - 1, zone).date()) not in inside
        assert period(name, at(end, zone).date()) not in inside


@given(
    instants,
    st.integers(1, 90 * 24 * HOUR),
    st.integers(1, 90 * 24 * HOUR),
    zones,
    st.sampled_from(LEVEL_NAMES),
)
def test_neighbouring_ranges_share_the_edges_of_every_level(
    start: int, one: int, other: int, zone: ZoneInfo, name: LevelName
) -> None:
    level, middle, end = level_of(name, zone), start + one, start + one + other
    assert sorted({*level.edges(start, middle), *level.edges(middle, end)}) == level.edges(start, end)
    for window in level.windows(start, start + min(one, 3 * 24 * HOUR)):
        assert level.windows(window[0], window[0] + 1) == level.windows(window[1] - 1, window[1]) == [window]
        assert level.tiles(window) and not level.tiles((window[0], window[1] - 1))


@example(LOWEST)
@example(HIGHEST - 1)
@given(st.integers(LOWEST, HIGHEST - 1))
def test_every_instant_of_the_calendar_has_a_window_of_every_level(ms: int) -> None:
    for zone in (ZoneInfo("Pacific/Apia"), ZoneInfo("UTC"), ZoneInfo("Pacific/Kiritimati")):
        for name in LEVEL_NAMES:
            ((begin, end),) = level_of(name, zone).windows(ms, ms + 1)
            assert begin <= ms < end


@pytest.mark.parametrize(
    ("name", "zone", "inside", "start", "days"),
    [
        ("weekly", "UTC", (2021, 1, 1), (2020, 12, 28), 7),  # ISO week 53 of 2020
        ("weekly", "UTC", (2015, 12, 31), (2015, 12, 28), 7),  # and of 2015
        ("weekly", "Europe/Berlin", (2021, 3, 28), (2021, 3, 22), 7 - 1 / 24),
        ("weekly", "Europe/Berlin", (2021, 10, 31), (2021, 10, 25), 7 + 1 / 24),
        ("weekly", "Pacific/Apia", (2011, 12, 29), (2011, 12, 26), 6),  # the 30th was left out
        ("monthly", "Pacific/Apia", (2011, 12, 31), (2011, 12, 1), 30),
        ("monthly", "UTC", (2020, 2, 29), (2020, 2, 1), 29),
        ("monthly", "UTC", (2021, 2, 3), (2021, 2, 1), 28),
        ("monthly", "UTC", (2021, 12, 31), (2021, 12, 1), 31),
        ("monthly", "Australia/Lord_Howe", (2021, 4, 9), (2021, 4, 1), 30 + 0.5 / 24),
    ],
)
def test_weeks_and_months_are_as_long_as_they_are(
    name: LevelName, zone: str, inside: tuple[int, int, int], start: tuple[int, int, int], days: float
) -> None:
    instant = to_ms(datetime(*inside, 12, tzinfo=ZoneInfo(zone)))
    ((begin, end),) = level_of(name, ZoneInfo(zone)).windows(instant, instant + 1)
    assert begin == to_ms(datetime(*start, tzinfo=ZoneInfo(zone)))
    assert (end - begin) / HOUR == pytest.approx(days * 24)


def test_finer_windows_make_up_coarser_ones_where_they_meet() -> None:
    levels = {name: level_of(name, ZoneInfo("Asia/Kathmandu")) for name in LEVEL_NAMES}
    assert [it.name for it in sources_of(levels["monthly"], levels.values())] == [
        "daily", "hourly", "15m", "5m",
    ]  # fmt: skip
    ((begin, end),) = levels["daily"].windows(utc(2020, 5, 5), utc(2020, 5, 5) + 1)
    assert not levels["hourly"].tiles((begin, end)) and levels["15m"].tiles((begin, end))
    assert not sources_of(levels["5m"], levels.values())
