"""Holes and completeness on a real MongoDB: live or archived, late or gone, joined over windows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from bucketwise.config.models import make_policy
from bucketwise.config.policies import Policy, Rollup
from bucketwise.rollups.answers import longest_holes
from tests.rollups.conftest import Bench

Document = dict[str, Any]
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
FIRST = datetime(2021, 3, 27, 20, tzinfo=UTC)  # the night in which clocks change in Berlin
NOW = FIRST + 20 * DAY


def policy_of(zone: str = "UTC", *, hole: timedelta | None = None, **rollup: Any) -> Policy:
    return make_policy(
        name="iot",
        collection="iot",
        model="reading",
        time_field="d",
        series_fields=("meta.sensor",),
        value_fields=("v",),
        expected_interval=MINUTE,
        max_hole=hole,
        rollup=Rollup(**{"hourly": "hourly", "daily": "daily", "timezone": zone, **rollup}),
    )


def put(bench: Bench, sensor: Any, *times: datetime, collection: str = "iot") -> None:
    bench.database[collection].insert_many({"d": at, "meta": {"sensor": sensor}, "v": 1} for at in times)


def every_minute(start: datetime, end: datetime) -> list[datetime]:
    return [start + count * MINUTE for count in range((end - start) // MINUTE)]


def completeness(bench: Bench, collection: str) -> dict[tuple[Any, datetime], tuple[Any, ...]]:
    keys = ("expected", "missing", "longest_hole", "longest_hole_at")
    return {
        (one["meta"]["sensor"], one["start"]): tuple(one[key] for key in keys)
        for one in bench.database[collection].find()
    }


def plain(times: list[datetime], start: datetime, end: datetime) -> tuple[Any, ...]:
    heard = {(at - start) // MINUTE for at in times if start <= at < end}
    count = (end - start) // MINUTE
    holes = [
        (right - left - 1, -left - 1) for left, right in pairwise([-1, *sorted(heard), count])
    ]  # as long as possible, and of those the first
    length, at = max(holes)
    return count, count - len(heard), length * 60, start - at * MINUTE if length else None


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Asia/Kathmandu"])
def test_live_and_archived_readings_interleave(bench: Bench, zone: str) -> None:
    chance, whole = Random(zone), every_minute(FIRST, FIRST + 3 * DAY)
    times = [at + timedelta(seconds=chance.randrange(60)) for at in whole if chance.random() < 0.9]
    times = [at for at in times if not FIRST + 8 * HOUR <= at < FIRST + 9 * HOUR + 7 * MINUTE]
    chance.shuffle(times)
    put(bench, "a", *times[::2])
    put(bench, "a", *times[1::2], collection="archive")
    bench.roll_up(policy_of(zone), NOW)
    hours = completeness(bench, "hourly")
    assert len(hours) == 71, "an hour without a reading has no summary"
    for (_, start), told in hours.items():
        assert told == plain(times, start, start + HOUR)
    days = completeness(bench, "daily")
    for (_, start), told in days.items():
        local = start.astimezone(ZoneInfo(zone))
        end = (local + DAY).replace(fold=0).astimezone(UTC)  # wall-clock arithmetic: the next midnight
        assert told == plain(times, start, end)
    if zone == "Europe/Berlin":
        assert {told[0] for told in days.values()} == {1380, 1440}
    before = bench.raw("hourly") | bench.raw("daily")
    again = bench.roll_up(policy_of(zone), NOW, since=FIRST - DAY)
    assert (again.hourly.written, again.daily.written) == (0, 0)
    assert bench.raw("hourly") | bench.raw("daily") == before


def test_a_late_reading_fills_its_hole_and_another_interval_recomputes(bench: Bench) -> None:
    start = FIRST.replace(hour=0)
    put(bench, 7, start, start + 50 * MINUTE)
    policy = policy_of()
    bench.roll_up(policy, start + DAY + HOUR)
    assert completeness(bench, "hourly") == {(7, start): (60, 58, 49 * 60, start + MINUTE)}
    put(bench, 7, start + 10 * MINUTE)
    bench.roll_up(policy, start + DAY + HOUR)
    assert completeness(bench, "hourly") == {(7, start): (60, 57, 39 * 60, start + 11 * MINUTE)}
    wider = policy.model_copy(update={"expected_interval": 30 * MINUTE})
    bench.roll_up(wider, start + 40 * DAY)
    assert completeness(bench, "hourly") == {(7, start): (2, 0, 0, None)}
    assert completeness(bench, "daily") == {(7, start): (48, 46, 23 * 3600, start + HOUR)}


def found(bench: Bench, policy: Policy, at_most: int = 100) -> tuple[set[tuple[Any, Any, Any]], int]:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    holes, more = longest_holes(bench.database, policy, at_most)
    assert [hole.start for hole in holes] == sorted(hole.start for hole in holes)
    return {
        (
            hole.series["meta"]["sensor"],
            epoch + timedelta(milliseconds=hole.start),
            epoch + timedelta(milliseconds=hole.end),
        )
        for hole in holes
    }, more


@pytest.mark.proof
@pytest.mark.in_turn(2)
@pytest.mark.parametrize("targets", [{}, {"daily": None}, {"hourly": None}], ids=["both", "hours", "days"])
@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
def test_holes_are_joined_over_windows_with_and_without_a_summary(
    bench: Bench, zone: str, targets: dict[str, Any]
) -> None:
    birth, death = FIRST + 17 * MINUTE, FIRST + 5 * DAY + 17 * MINUTE
    silent = FIRST + 3 * HOUR + 50 * MINUTE, FIRST + 2 * DAY + 3 * HOUR + 10 * MINUTE
    a = [at for at in every_minute(birth, death) if not silent[0] <= at < silent[1]]
    gap = FIRST + DAY + 55 * MINUTE
    b = [at for at in every_minute(FIRST, death) if not gap <= at < gap + 10 * MINUTE]
    put(bench, "a", *a)
    put(bench, "b", *b)
    bench.roll_up(policy_of(zone, **targets), NOW)
    hour_end = death.replace(minute=0) + HOUR
    day_end = datetime(2021, 4, 2, tzinfo=UTC) if zone == "UTC" else datetime(2021, 4, 2, 18, 30, tzinfo=UTC)
    end = hour_end if targets == {"daily": None} else day_end
    expected = {("a", *silent), ("b", gap, gap + 10 * MINUTE), ("a", death, end), ("b", death, end)}
    assert found(bench, policy_of(zone, hole=9 * MINUTE, **targets)) == (expected, 0)
    longer = {hole for hole in expected if hole[2] - hole[1] > 10 * MINUTE}
    assert found(bench, policy_of(zone, hole=10 * MINUTE, **targets)) == (longer, 0)
    only, more = found(bench, policy_of(zone, hole=9 * MINUTE, **targets), at_most=1)
    assert (only, more) == ({("a", *silent)}, len(expected) - 1)


def test_hours_after_the_last_day_are_looked_at(bench: Bench) -> None:
    night = datetime(2021, 3, 28, 18, 30, tzinfo=UTC)  # midnight in Kolkata
    times = every_minute(FIRST, night + 5 * MINUTE) + every_minute(night + 2 * HOUR, night + 3 * HOUR)
    put(bench, "a", *times)
    policy = policy_of("Asia/Kolkata", hole=10 * MINUTE)
    bench.roll_up(policy, night + 5 * HOUR)
    assert bench.starts("daily")[-1] == night - DAY
    assert found(bench, policy) == (
        {
            ("a", night + 5 * MINUTE, night + 2 * HOUR),
            ("a", night + 3 * HOUR, night + 3 * HOUR + 30 * MINUTE),
        },
        0,
    )


def test_summaries_made_without_an_interval_are_no_holes(bench: Bench) -> None:
    put(bench, "a", FIRST, FIRST + 3 * HOUR)
    policy = policy_of(hole=MINUTE)
    bench.roll_up(policy.model_copy(update={"expected_interval": None}), NOW)
    # Both days are known in full for all that can be said.
    assert found(bench, policy) == (set(), 0)
    bench.roll_up(policy, NOW)
    assert len(found(bench, policy)[0]) == 2


def test_a_hole_says_what_and_where(bench: Bench) -> None:
    put(bench, "a", FIRST, FIRST + 3 * HOUR)
    policy = policy_of(hole=2 * HOUR, daily=None)
    bench.roll_up(policy, NOW)
    (hole,), _ = longest_holes(bench.database, policy, 10)
    assert hole.collection == "hourly"
    assert hole.message(policy) == (
        'no reading of meta.sensor="a" from 2021-03-27T20:01:00Z to 2021-03-27T23:00:00Z, 10740 s; '
        "one is expected every 1m"
    )
