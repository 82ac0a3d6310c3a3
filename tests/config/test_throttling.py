"""Rates, and windows of time of day. The oracle of a window lays out its stretches on local days."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bucketwise.config.cron import Rate, Window, parse_rate, parse_window
from bucketwise.config.problems import InvalidValueError

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
#: With gaps by day and by night, of half an hour, at midnight, and a day that was left out (2011-12-30).
ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Santiago",
    "Pacific/Apia",
]
instants = st.integers(315_532_800, 1_893_456_000).map(lambda it: datetime.fromtimestamp(it, UTC))
minutes_of_day = st.integers(0, 1439)


@st.composite
def windows(draw: st.DrawFn) -> Window:
    start, end = draw(st.lists(minutes_of_day, min_size=2, max_size=2, unique=True))
    return Window(start, end, draw(st.sampled_from(ZONES)))


def is_open(window: Window, at: datetime) -> bool:
    offset = at.astimezone(ZoneInfo(window.zone)).utcoffset()
    assert offset is not None
    wall = at.replace(tzinfo=None) + offset
    length = (window.end - window.start) % 1440 * MINUTE
    midnight = datetime.combine(wall.date(), time())
    starts = [day + window.start * MINUTE for day in (midnight - DAY, midnight)]
    return any(start <= wall < start + length for start in starts)


@given(windows(), instants)
def test_it_is_open_where_clocks_show_a_time_in_it(window: Window, at: datetime) -> None:
    assert window.is_open(at) == is_open(window, at)


@given(windows(), instants, st.floats(0, 1))
@example(Window(130, 170, "Europe/Berlin"), datetime(2026, 3, 29, 0, 30, tzinfo=UTC), 0.5)
@example(Window(600, 660, "Pacific/Apia"), datetime(2011, 12, 29, 21, 30, tzinfo=UTC), 0.9)
def test_it_opens_next_at_the_first_instant_that_is_in_it(window: Window, at: datetime, share: float) -> None:
    opens = window.next_open(at)
    assert opens >= at
    assert is_open(window, opens)
    if opens > at:
        assert (opens.second, opens.microsecond) == (0, 0)
        assert not is_open(window, opens - timedelta(microseconds=1))
        assert not is_open(window, at + (opens - at) * share * 0.999)
    else:
        assert is_open(window, at)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


@pytest.mark.parametrize(
    ("window", "asked", "opens"),
    [
        ("01:00-05:00", "2026-01-10T00:59:59Z", "2026-01-10T01:00:00Z"),
        ("01:00-05:00", "2026-01-10T04:59:59Z", "2026-01-10T04:59:59Z"),
        ("01:00-05:00", "2026-01-10T05:00:00Z", "2026-01-11T01:00:00Z"),
        ("22:00-02:00 Europe/Berlin", "2026-01-10T01:00:00Z", "2026-01-10T21:00:00Z"),
        ("22:00-02:00 Europe/Berlin", "2026-01-10T00:59:00Z", "2026-01-10T00:59:00Z"),
        ("22:00-24:00", "2026-01-10T00:00:00Z", "2026-01-10T22:00:00Z"),
        # 02:00 to 03:00 is left out on 29 March, and comes twice on 25 October.
        ("02:30-05:00 Europe/Berlin", "2026-03-29T00:00:00Z", "2026-03-29T01:00:00Z"),
        ("02:10-02:50 Europe/Berlin", "2026-03-29T00:00:00Z", "2026-03-30T00:10:00Z"),
        ("02:10-02:50 Europe/Berlin", "2026-10-25T00:50:00Z", "2026-10-25T01:10:00Z"),
    ],
)
def test_windows_open(window: str, asked: str, opens: str) -> None:
    found = parse_window(window)
    assert found is not None
    assert found.next_open(at(asked)) == at(opens)


@pytest.mark.parametrize("text", ["00:00-24:00", "00:00-24:00 Asia/Tokyo"])
def test_a_whole_day_is_always_open(text: str) -> None:
    window = parse_window(text)
    assert window is not None
    assert all(window.is_open(at("2026-01-10T00:00:00Z") + hour * 60 * MINUTE) for hour in range(24))


def test_there_need_be_no_window_and_no_rate() -> None:
    assert parse_window("always") is None
    assert parse_rate("unlimited") is None


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("5000 buckets/s", Rate(5000, False)), ("5000buckets/s", Rate(5000, False)),
        ("20MB/s", Rate(20_000_000, True)), ("100 KB/s", Rate(100_000, True)), ("1GB/s", Rate(10**9, True)),
    ],
)  # fmt: skip
def test_rates(text: str, rate: Rate) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    "text", ["", "5000", "20MB", "0 buckets/s", "99 buckets/s", "99KB/s", "-1MB/s", "1.5MB/s"]
)
def test_what_is_no_rate(text: str) -> None:
    with pytest.raises(InvalidValueError):
        parse_rate(text)


@pytest.mark.parametrize(
    "text",
    ["", "25:00-05:00", "01:00", "1:00-5:00", "01:00-05:60", "01:00-01:00", "00:00-24:01", "24:00-01:00",
     "01:00-05:00 Mars/Olympus", "01:00-05:00  UTC", "01:00 - 05:00", "٠1:00-05:00"],
)  # fmt: skip
def test_what_is_no_window(text: str) -> None:
    with pytest.raises(InvalidValueError):
        parse_window(text)
