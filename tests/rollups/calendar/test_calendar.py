"""Calendar days in 28 zones, 2000 to 2037, against a clock on the wall; also in real summaries."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketwise.config.models import make_policy
from bucketwise.config.policies import Rollup
from bucketwise.rollups.calendar.windows import day_edges, day_of, to_ms
from tests.rollups.calendar_oracle import DAY, HOUR, MINUTE, ZONES, changes, day_starts
from tests.rollups.conftest import Bench
from tests.tiers import tier

#: Zones that don't change their clocks.
STEADY = {"UTC", "Asia/Kathmandu", "Asia/Kolkata", "Pacific/Kiritimati"}
FIRST, LAST = datetime(2000, 1, 1, tzinfo=UTC), datetime(2037, 12, 28, tzinfo=UTC)
instants = st.integers(0, (LAST - FIRST) // MINUTE).map(lambda count: FIRST + count * MINUTE)


@pytest.mark.parametrize("name", ZONES)
def test_days_around_every_change_of_the_clocks(name: str) -> None:
    zone = ZoneInfo(name)
    for change in changes(name):
        starts = [to_ms(at) for at in day_starts(zone, change - 2 * DAY, change + 3 * DAY).values()]
        assert len(starts) >= 4
        assert day_edges(starts[0], starts[-1], zone).tolist() == starts, change
        for start, end in pairwise(starts):
            for ms in (start, (start + end) // 2, end - 1):
                assert day_of(ms, zone) == (start, end)


def test_the_zones_change_their_clocks_often_and_oddly() -> None:
    assert sum(len(changes(name)) for name in ZONES) > 1000
    assert {name for name in ZONES if not changes(name)} == STEADY


@given(instants, st.sampled_from(ZONES), st.integers(1, 5))
def test_any_range_is_tiled_by_the_days_that_the_wall_shows(instant: datetime, name: str, days: int) -> None:
    zone = ZoneInfo(name)
    first = instant.replace(minute=0)
    starts = [to_ms(at) for at in day_starts(zone, first - 3 * DAY, first + (days + 3) * DAY).values()]
    low, high = to_ms(instant), to_ms(instant + days * DAY)
    begin, end = bisect_right(starts, low) - 1, bisect_right(starts, high - 1)
    assert day_edges(low, high, zone).tolist() == starts[begin : end + 1]


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc,arg-type]


@pytest.mark.parametrize(
    ("zone", "day", "start", "hours"),
    [
        # At 00:01 the clock went back to 23:01: the day starts when midnight first comes, and is one span.
        ("America/St_Johns", date(2010, 11, 7), utc(2010, 11, 7, 2, 30), 25),
        ("America/St_Johns", date(2010, 11, 6), utc(2010, 11, 6, 2, 30), 24),
        ("America/St_Johns", date(2011, 3, 13), utc(2011, 3, 13, 3, 30), 23),  # 00:01 → 01:01
        ("America/Havana", date(2018, 11, 4), utc(2018, 11, 4, 4), 25),  # 01:00 → 00:00
        ("America/Havana", date(2018, 3, 11), utc(2018, 3, 11, 5), 23),  # there was no midnight
        ("America/Santiago", date(2022, 9, 11), utc(2022, 9, 11, 4), 23),
        ("Asia/Gaza", date(2016, 3, 26), utc(2016, 3, 25, 22), 23),  # 01:00 → 02:00
        ("Africa/Cairo", date(2014, 5, 16), utc(2014, 5, 15, 22), 23),  # 00:00 → 01:00
        ("Africa/Cairo", date(2014, 9, 25), utc(2014, 9, 24, 21), 25),  # 24:00 → 23:00
        ("Pacific/Apia", date(2011, 12, 29), utc(2011, 12, 29, 10), 24),
        ("Pacific/Apia", date(2011, 12, 31), utc(2011, 12, 30, 10), 24),  # the day after the 29th
        ("Antarctica/Troll", date(2018, 3, 25), utc(2018, 3, 25), 22),
        ("Australia/Lord_Howe", date(2018, 10, 7), utc(2018, 10, 6, 13, 30), 23.5),
        ("Asia/Pyongyang", date(2018, 5, 4), utc(2018, 5, 3, 15, 30), 23.5),
    ],
)
def test_odd_days(zone: str, day: date, start: datetime, hours: float) -> None:
    noon = datetime(day.year, day.month, day.day, 12, tzinfo=ZoneInfo(zone))
    assert day_of(to_ms(noon), ZoneInfo(zone)) == (to_ms(start), to_ms(start + hours * HOUR))


#: Zones whose summaries `make test` makes: an hour, two and half an hour, a minute after midnight and at it,
#: a skipped day.
FEW = (
    "Europe/Berlin",
    "Antarctica/Troll",
    "Australia/Lord_Howe",
    "America/St_Johns",
    "America/Havana",
    "Pacific/Apia",
)


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=tier(is_first=name in FEW, is_proof=True))
        for name in ZONES
        if name not in STEADY
    ],
)
def test_summaries_of_days_around_changes(bench: Bench, name: str) -> None:
    chance, zone = Random(name), ZoneInfo(name)
    expected: dict[datetime, tuple[datetime, float, int]] = {}
    times: list[datetime] = []
    for change in chance.sample(changes(name), min(3, len(changes(name)))):
        starts = list(day_starts(zone, change - 2 * DAY, change + 3 * DAY).values())
        near = [at + offset for at in starts for offset in (-timedelta(milliseconds=1), 0 * HOUR, HOUR / 2)]
        here = [at for at in near if starts[0] <= at < starts[-1]]
        counted = Counter(bisect_right(starts, at) - 1 for at in here)
        times += here
        for place, count in counted.items():
            start, end = starts[place : place + 2]
            expected[start] = (end, (end - start) / HOUR, count)
    bench.database["ticks"].insert_many({"s": 1, "d": at, "v": 1.5} for at in times)
    policy = make_policy(
        name="ticks",
        collection="ticks",
        model="reading",
        time_field="d",
        series_fields=("s",),
        value_fields=("v",),
        rollup=Rollup(hourly="hourly", daily="daily", timezone=name),
    )
    bench.roll_up(policy, datetime(2038, 6, 1, tzinfo=UTC))
    days: list[dict[str, Any]] = list(bench.database["daily"].find())
    assert {one["start"]: (one["end"], one["hours"], one["count"]) for one in days} == expected
    assert {one["timezone"] for one in days} == {name}
    assert sum(one["count"] for one in bench.database["hourly"].find()) == len(times)
