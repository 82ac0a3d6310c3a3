"""Which summaries make up a range, held against every way there is, tried one by one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bucketwise.config.errors import UsageError
from bucketwise.config.policies import LEVEL_NAMES, LevelName
from bucketwise.rollups.calendar.levels import Level
from bucketwise.rollups.calendar.tiling import (
    NOT_ROLLED_UP,
    PAST_RETENTION,
    ExistingWindows,
    Tiling,
    existing_windows,
    instant,
    tile,
)

HOUR = 3_600_000
NEVER = 10**16
ZONES = [
    "UTC", "Europe/Berlin", "Asia/Kolkata", "Asia/Kathmandu", "Australia/Lord_Howe", "America/Santiago",
    "America/St_Johns", "Pacific/Apia", "Pacific/Chatham",
]  # fmt: skip
#: A week each: clocks change in Berlin, in Lord Howe and Chatham, in Santiago; a day that Apia left out.
STARTS = [datetime(*date, tzinfo=UTC) for date in ((2021, 3, 25), (2021, 4, 1), (2021, 9, 3), (2011, 12, 28))]


def ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def hourly(low: int = -NEVER, high: int = NEVER) -> ExistingWindows:
    return ExistingWindows(Level("hourly", "h", ZoneInfo("UTC"), None), low, high)


def daily(zone: str, low: int = -NEVER, high: int = NEVER) -> ExistingWindows:
    return ExistingWindows(Level("daily", "d", ZoneInfo(zone), None), low, high)


@cache
def day_starts(zone: str, start: datetime) -> list[int]:
    """Where the local date changes, looked at every quarter of an hour for a week."""
    quarters = [start + count * timedelta(minutes=15) for count in range(-200, 4 * 24 * 7 + 200)]
    dates = [at.astimezone(ZoneInfo(zone)).date() for at in quarters]
    return [
        ms(at) for before, date, at in zip(dates, dates[1:], quarters[1:], strict=False) if date != before
    ]


STEPS = {"5m": HOUR // 12, "15m": HOUR // 4, "hourly": HOUR}


def edges_of(stock: ExistingWindows, zone: str, first: datetime, start: int, end: int) -> list[int]:
    """Where windows of a level begin, by plain counting and the clock on the wall."""
    name = stock.level.name
    if name in STEPS:
        step = STEPS[name]
        return list(range(start // step * step, end + step, step))
    days = day_starts(zone, first)
    if name == "daily":
        return days
    dates = [
        datetime.fromtimestamp((at + HOUR * 2) / 1000, UTC).astimezone(ZoneInfo(zone)).date() for at in days
    ]
    of = [day.isocalendar()[:2] if name == "weekly" else (day.year, day.month) for day in dates]
    return [at for at, before, now in zip(days[1:], of, of[1:], strict=False) if before != now]


def cheapest(windows: list[tuple[int, int, ExistingWindows]], start: int, end: int) -> tuple[int, int] | None:
    """(milliseconds not covered, windows) of the best way from start to end, window by window."""
    best = {start: (0, 0)}
    for low, high, stock in sorted(windows, key=lambda it: it[0]):
        if low in best and high <= end:
            stands = stock.low <= high <= stock.high
            cost = best[low][0] + (0 if stands else high - low), best[low][1] + stands
            best[high] = min(best.get(high, cost), cost)
    return best.get(end)


def check_whole(tiling: Tiling, start: int, end: int) -> None:
    """Each instant once."""
    pieces = sorted([*tiling.pieces, *tiling.missing])
    assert [pieces[0].start, *(it.end for it in pieces)] == [*(it.start for it in pieces), end]
    assert pieces[0].start == start
    assert all(it.start < it.end for it in pieces)


@given(st.data())
def test_no_other_way_covers_more_or_takes_fewer_windows(data: st.DataObject) -> None:
    zone, first = data.draw(st.sampled_from(ZONES)), data.draw(st.sampled_from(STARTS))
    last = ms(first) + 7 * 24 * HOUR
    shortest = data.draw(st.sampled_from([HOUR, HOUR // 4, HOUR // 12]))
    inner = [at for at in day_starts(zone, first) if ms(first) <= at <= last]
    edges = st.one_of(
        st.sampled_from(inner),
        st.integers(0, (last - ms(first)) // shortest).map(lambda n: ms(first) + n * shortest),
    )
    start, end = sorted(data.draw(st.lists(edges, min_size=2, max_size=2, unique=True)))
    instants = st.one_of(st.integers(start - HOUR, end + HOUR), st.sampled_from([-NEVER, NEVER, start, end]))
    names = data.draw(st.sets(st.sampled_from(LEVEL_NAMES), min_size=1))
    stocks = [
        ExistingWindows(Level(name, "c", ZoneInfo(zone), None), data.draw(instants), data.draw(instants))
        for name in sorted(names, key=LEVEL_NAMES.index)
    ]
    by_level = {it.level.name: edges_of(it, zone, first, start, end) for it in stocks}
    windows = [(low, high, it) for it in stocks for low, high in pairwise(by_level[it.level.name])]
    wanted = cheapest(windows, start, end)
    if wanted is None:
        with pytest.raises(UsageError, match="no whole windows make up"):
            tile(stocks, start, end)
        return
    tiling = tile(stocks, start, end)
    check_whole(tiling, start, end)
    uncovered = sum(it.end - it.start for it in tiling.missing)
    assert (uncovered, sum(tiling.windows(it.level.name) for it in stocks)) == wanted
    for piece in tiling.pieces:
        (stock,) = [it for it in stocks if it.level.name == piece.level]
        inside = [at for at in by_level[piece.level] if piece.start <= at <= piece.end]
        assert (inside[0], inside[-1], len(inside) - 1) == (piece.start, piece.end, piece.windows)
        assert all(stock.low <= edge <= stock.high for edge in inside[1:])


def test_a_year_is_its_months_and_what_is_left_goes_down_the_levels() -> None:
    start, end = datetime(2020, 11, 29, 22, 50, tzinfo=UTC), datetime(2022, 1, 12, 1, 20, tzinfo=UTC)
    stocks = [ExistingWindows(Level(name, "c", ZoneInfo("UTC"), None), -NEVER, NEVER) for name in LEVEL_NAMES]
    tiling = tile(stocks, ms(start), ms(end))
    assert [(it.level, instant(it.start), it.windows) for it in tiling.pieces] == [
        ("5m", "2020-11-29T22:50:00Z", 2),
        ("hourly", "2020-11-29T23:00:00Z", 1),
        ("daily", "2020-11-30T00:00:00Z", 1),
        ("monthly", "2020-12-01T00:00:00Z", 13),
        ("daily", "2022-01-01T00:00:00Z", 2),
        ("weekly", "2022-01-03T00:00:00Z", 1),
        ("daily", "2022-01-10T00:00:00Z", 2),
        ("hourly", "2022-01-12T00:00:00Z", 1),
        ("15m", "2022-01-12T01:00:00Z", 1),
        ("5m", "2022-01-12T01:15:00Z", 1),
    ]


def test_a_month_is_its_days_and_what_is_left_its_hours() -> None:
    start, end = datetime(2021, 5, 31, 21, tzinfo=UTC), datetime(2021, 6, 30, 23, tzinfo=UTC)
    tiling = tile([hourly(), daily("Europe/Berlin")], ms(start), ms(end))
    assert [(it.level, instant(it.start), instant(it.end), it.windows) for it in tiling.pieces] == [
        ("hourly", "2021-05-31T21:00:00Z", "2021-05-31T22:00:00Z", 1),
        ("daily", "2021-05-31T22:00:00Z", "2021-06-30T22:00:00Z", 30),
        ("hourly", "2021-06-30T22:00:00Z", "2021-06-30T23:00:00Z", 1),
    ]
    assert not tiling.missing


def test_days_that_no_hours_meet_are_not_taken() -> None:
    """Days begin at 18:30 in Kolkata: hours can't reach them."""
    start, end = ms(datetime(2021, 6, 1, tzinfo=UTC)), ms(datetime(2021, 6, 5, tzinfo=UTC))
    tiling = tile([hourly(), daily("Asia/Kolkata")], start, end)
    assert (tiling.windows("hourly"), tiling.windows("daily")) == (96, 0)
    half = HOUR // 2
    tiling = tile([hourly(), daily("Asia/Kolkata")], start - 5 * HOUR - half, end - 5 * HOUR - half)
    assert (tiling.windows("hourly"), tiling.windows("daily")) == (0, 4)


def test_what_is_missing_has_its_reason() -> None:
    start, now = datetime(2021, 6, 1, tzinfo=UTC), datetime(2021, 6, 10, tzinfo=UTC)
    levels = [
        Level("hourly", "h", ZoneInfo("UTC"), None),
        Level("daily", "d", ZoneInfo("UTC"), None),
    ]
    through = ms(datetime(2021, 6, 9, 20, tzinfo=UTC))
    gone: dict[LevelName, int] = {"hourly": ms(now - timedelta(days=5))}
    stocks = [
        existing_windows(level, {"hourly": through, "daily": through - 20 * HOUR}, gone) for level in levels
    ]
    tiling = tile(stocks, ms(start) + 6 * HOUR, ms(now) + 24 * HOUR)
    check_whole(tiling, ms(start) + 6 * HOUR, ms(now) + 24 * HOUR)
    assert [(instant(it.start), instant(it.end), it.reason) for it in tiling.missing] == [
        ("2021-06-01T06:00:00Z", "2021-06-02T00:00:00Z", PAST_RETENTION),
        ("2021-06-09T20:00:00Z", "2021-06-11T00:00:00Z", NOT_ROLLED_UP),
    ]
    assert (tiling.windows("daily"), tiling.windows("hourly")) == (7, 20)


def test_an_hour_that_ends_where_retention_begins_stands() -> None:
    start = ms(datetime(2021, 6, 1, tzinfo=UTC))
    assert not tile([hourly(low=start + HOUR)], start, start + 2 * HOUR).missing
    assert tile([hourly(low=start + HOUR + 1)], start, start + 2 * HOUR).missing[0].end == start + HOUR


@pytest.mark.parametrize(
    ("stocks", "said"),
    [
        ([hourly()], ["hours: from 2021-06-01T00:00:00Z or 2021-06-01T01:00:00Z to 2021-06-02T00:00:00Z"]),
        ([daily("Asia/Kolkata")], ["days in Asia/Kolkata: from 2021-05-31T18:30:00Z or 2021-06-01T18:30"]),
        ([hourly(), daily("UTC")], ["hours: from", "days in UTC: from 2021-06-01T00:00:00Z or 2021-06-02T"]),
        ([], ["makes no summaries"]),
    ],
)  # fmt: skip
def test_a_range_of_no_whole_windows_names_the_nearest(
    stocks: list[ExistingWindows], said: list[str]
) -> None:
    start = ms(datetime(2021, 6, 1, 0, 20, tzinfo=UTC))
    with pytest.raises(UsageError) as refused:
        tile(stocks, start, ms(datetime(2021, 6, 2, tzinfo=UTC)))
    for fragment in said:
        assert fragment in str(refused.value)
    assert "2021-06-02T01" not in str(refused.value)  # what is an edge is the nearest one itself


@given(st.sampled_from(ZONES), st.integers(1, 6), st.integers(0, 23))
def test_more_hours_never_make_an_answer_worse(zone: str, days: int, hours: int) -> None:
    start = ms(STARTS[0])
    end = start + (24 * days + hours) * HOUR
    assume(start < end)
    tiling = tile([hourly(), daily(zone)], start, end)
    assert not tiling.missing
    check_whole(tiling, start, end)
