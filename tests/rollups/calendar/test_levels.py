"""Every level of summaries on a real MongoDB, in many zones, against plain Python."""

# mypy: disable-error-code="index, union-attr"

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from math import fsum
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pymongo import MongoClient

from bucketwise.config.errors import InterruptedRun
from bucketwise.config.models import make_policy
from bucketwise.config.policies import LEVEL_NAMES, Policy, Retain
from bucketwise.config.written import SUMMARY_SCHEMA
from bucketwise.rollups.answers import Question, summarize
from bucketwise.rollups.calendar.windows import to_ms
from bucketwise.rollups.progress import rolled_up_through
from bucketwise.rollups.rolling.expiry import expire_summaries
from bucketwise.rollups.rolling.plan import RollupReport
from tests.examples import examples
from tests.rollups.changes.test_stream import Commands
from tests.rollups.conftest import WHOLE_AND_IN_PORTIONS, Bench, stopped_at

Document = dict[str, Any]
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
STEPS = {"5m": 5 * MINUTE, "15m": 15 * MINUTE, "hourly": HOUR}
#: The first instant with readings of each story, and the zone: changes of clocks, ISO week 53, years' ends, a
#: leap day, half and quarter hours, a day that was skipped; each of them about day 8.
STORIES = {
    "UTC": datetime(2020, 12, 24, tzinfo=UTC),
    "Europe/Berlin": datetime(2021, 3, 20, tzinfo=UTC),
    "America/Santiago": datetime(2021, 8, 28, tzinfo=UTC),
    "Australia/Lord_Howe": datetime(2021, 3, 26, tzinfo=UTC),
    "Asia/Kolkata": datetime(2020, 2, 21, tzinfo=UTC),
    "Asia/Kathmandu": datetime(2015, 12, 24, tzinfo=UTC),
    "Pacific/Apia": datetime(2011, 12, 22, tzinfo=UTC),
    "Pacific/Chatham": datetime(2021, 9, 17, tzinfo=UTC),
}
#: Portions are of series, whatever the clocks: summer time of half an hour, quarter hours, a skipped day.
IN_PORTIONS = ("Australia/Lord_Howe", "Asia/Kathmandu", "Pacific/Apia")
#: What `make test` tries: an hour, half an hour, a skipped day. `make proof` tries all.
SHORT = [(0, "Europe/Berlin"), (4, "Australia/Lord_Howe"), (0, "Pacific/Apia")]
LENGTH = 45 * DAY
#: The days of a story that have readings: those around what happens in it, and some others.
DAYS = (0, 7, 8, 9, 27, 44)
ALL = tuple(LEVEL_NAMES)


def policy_of(zone: str = "UTC", levels: Sequence[str] = ALL, **more: Any) -> Policy:
    rollup: dict[str, Any] = {"timezone": zone, "percentiles": (50, 99), "recheck": 400 * DAY}
    rollup |= {name: name for name in levels if name in ("hourly", "daily")}
    rollup["levels"] = [
        {"name": name, "collection": name} for name in levels if name not in ("hourly", "daily")
    ]
    said: dict[str, Any] = {
        "name": "ticks",
        "collection": "ticks",
        "model": "reading",
        "time_field": "d",
        "series_fields": ("symbol",),
        "value_fields": ("p",),
        "rollup": rollup | more.pop("rollup", {}),
    }
    return make_policy(**(said | more))


def tick(number: int, at: datetime, symbol: str = "A") -> Document:
    return {"_id": number, "symbol": symbol, "d": at, "p": (number * 37 % 101) / 7}


def ticks(first: datetime, count: int, seed: int = 1) -> list[Document]:
    chance = Random(seed)
    minutes = [chance.choice(DAYS) * 1440 + chance.randrange(1440) for _ in range(count)]
    return [tick(number, first + it * MINUTE, f"S{number % 2}") for number, it in enumerate(minutes)]


def first_date(level: str, day: date) -> date:
    if level == "weekly":
        return date.fromisocalendar(*day.isocalendar()[:2], 1)
    return day.replace(day=1) if level == "monthly" else day


def wall_starts(zone: str, first: datetime) -> dict[str, list[datetime]]:
    """Where days, weeks and months begin, by the clock on the wall, quarter by quarter."""
    quarters = [first - 40 * DAY + n * 15 * MINUTE for n in range(130 * 96)]
    dates = [at.astimezone(ZoneInfo(zone)).date() for at in quarters]
    days = [
        (at, day) for at, before, day in zip(quarters[1:], dates, dates[1:], strict=False) if before < day
    ]
    starts: dict[str, list[datetime]] = {"daily": [at for at, _ in days]}
    for level in ("weekly", "monthly"):
        starts[level] = [
            at
            for (_, before), (at, day) in pairwise(days)
            if first_date(level, before) != first_date(level, day)
        ]
    return starts


def expected(
    found: Iterable[Document], level: str, starts: dict[str, list[datetime]], until: datetime
) -> dict[tuple[str, datetime], tuple[Any, ...]]:
    groups: dict[tuple[str, datetime], list[Document]] = defaultdict(list)
    for one in found:
        if level in STEPS:
            start = one["d"] - (one["d"] - datetime(1970, 1, 1, tzinfo=UTC)) % STEPS[level]
            end = start + STEPS[level]
        else:
            start, end = next((low, high) for low, high in pairwise(starts[level]) if low <= one["d"] < high)
        if end <= until:
            groups[one["symbol"], start].append(one)
    told = {}
    for key, group in groups.items():
        group.sort(key=lambda one: (one["d"], one["_id"]))
        values = [one["p"] for one in group]
        told[key] = (len(group), fsum(values), min(values), max(values), values[0], values[-1])
    return told


def existing(bench: Bench, level: str) -> dict[tuple[str, datetime], tuple[Any, ...]]:
    return {
        (one["symbol"], one["start"]): (
            one["count"],
            *(one["p"][it] for it in ("sum", "min", "max", "first", "last")),
        )
        for one in bench.database[level].find()
    }


def percentiles_hold(bench: Bench, level: str, found: Sequence[Document]) -> bool:
    by_series: dict[str, list[Document]] = defaultdict(list)
    for it in sorted(found, key=lambda it: it["d"]):
        by_series[it["symbol"]].append(it)
    for one in bench.database[level].find():
        held = by_series[one["symbol"]]
        first, end = (bisect_left(held, one[bound], key=lambda it: it["d"]) for bound in ("start", "end"))
        inside = sorted(it["p"] for it in held[first:end])
        for percent, key in ((50, "p50"), (99, "p99")):
            rank = (len(inside) - 1) * percent / 100
            low, high = inside[int(rank)], inside[min(int(rank) + 1, len(inside) - 1)]
            if not low - abs(low) / 100 <= one["p"][key] <= high + abs(high) / 100:
                return False
    return True


def wrote(report: RollupReport) -> dict[str, int]:
    return {level: counts.written for level, counts in report.counts.items()}


def check(bench: Bench, policy: Policy, zone: str, now: datetime, found: Sequence[Document]) -> None:
    starts = wall_starts(zone, STORIES[zone])
    for level in policy.rollup.targets:
        assert existing(bench, level) == expected(found, level, starts, now - 10 * MINUTE), level
    assert not any(wrote(bench.roll_up(policy, now, whole=True, dry_run=True)).values()), (
        "an audit is content"
    )


@pytest.mark.proof
@pytest.mark.parametrize(
    ("bench", "zone"),
    [
        pytest.param(
            memory,
            zone,
            id=f"{zone}-{'in portions' if memory else 'whole'}",
            marks=[pytest.mark.proof] * ((memory, zone) not in SHORT),
        )
        for memory, zone in [*((0, zone) for zone in STORIES), *((4, zone) for zone in IN_PORTIONS)]
    ],
    indirect=["bench"],
)
def test_every_level_equals_plain_python_and_late_readings_mend_it(bench: Bench, zone: str) -> None:
    first = STORIES[zone]
    found, policy, now = ticks(first, 120), policy_of(zone), first + LENGTH + 20 * DAY
    bench.database["ticks"].insert_many(found[::2])
    bench.database["archive"].insert_many(found[1::2])
    report = bench.roll_up(policy, now)
    assert report.readings == len(found)
    check(bench, policy, zone, now, found)
    assert all(percentiles_hold(bench, level, found) for level in policy.rollup.targets)
    assert not any(wrote(bench.roll_up(policy, now)).values())
    late = [tick(9000 + n, first + n * 9 * DAY + n * 7 * MINUTE, "S1") for n in range(5)]
    bench.database["ticks"].insert_many(late)
    bench.database["ticks"].delete_one({"_id": found[10]["_id"]})
    now_there = [one for one in found if one is not found[10]] + late
    assert all(wrote(bench.roll_up(policy, now)).values())
    check(bench, policy, zone, now, now_there)


SETS = [
    ("weekly",), ("monthly",), ("weekly", "monthly"), ("5m", "monthly"), ("hourly", "weekly"),
    ("15m", "daily"), ("daily", "monthly"), ("5m", "15m", "hourly", "weekly"), ("5m",),
    ("15m", "hourly", "daily", "weekly"),
]  # fmt: skip
#: A week, a month, a month of five minutes, a day of quarters.
FEW_SETS = [(0, 0), (1, 1), (3, 0), (5, 1)]


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(
    ("levels", "zone"),
    [
        pytest.param(
            levels,
            zone,
            id=f"{zone}-{'+'.join(levels)}",
            marks=[pytest.mark.proof] * ((at, more) not in FEW_SETS),
        )
        for at, levels in enumerate(SETS)
        for more, zone in enumerate(["Europe/Berlin", "Asia/Kathmandu"])
    ],
)
def test_any_levels_go_together(bench: Bench, levels: tuple[str, ...], zone: str) -> None:
    """Also a week or a month without anything finer: it is made of readings, slice by slice."""
    first = STORIES[zone]
    found, policy, now = ticks(first, 100), policy_of(zone, levels), first + LENGTH + 20 * DAY
    bench.database["ticks"].insert_many(found)
    bench.roll_up(policy, first + 30 * DAY)
    bench.roll_up(policy, now)
    check(bench, policy, zone, now, found)
    bench.database["ticks"].insert_one(late := tick(9000, first + 5 * DAY, "S0"))
    bench.roll_up(policy, now)
    check(bench, policy, zone, now, [*found, late])


def test_a_late_reading_is_all_that_is_read_for_the_levels_above(bench: Bench) -> None:
    """A day is merged from its hours, a month from its days, as they stand."""
    first = datetime(2021, 5, 1, tzinfo=UTC)
    policy, now = policy_of(levels=("hourly", "daily", "monthly")), datetime(2021, 6, 10, tzinfo=UTC)
    found = [tick(n, first + n * 10 * MINUTE) for n in range(6 * 24 * 8, 6 * 24 * 13)]
    bench.database["ticks"].insert_many(found)
    assert bench.roll_up(policy, now).readings == len(found)
    bench.database["ticks"].insert_one(tick(99_999, first + 10 * DAY + 90 * MINUTE))
    report = bench.roll_up(policy, now)
    assert (report.readings, wrote(report)) == (7, {"hourly": 1, "daily": 1, "monthly": 1})
    assert bench.database["monthly"].find_one()["count"] == len(found) + 1
    given = bench.roll_up(policy, now, since=first + 10 * DAY, until=first + 10 * DAY + HOUR)
    assert (given.readings, given.written) == (6 * 24 + 1, 0), (
        "a day that the range touches, but not its month"
    )
    assert given.counts["monthly"].unchanged == 1


@pytest.mark.in_turn(2)
@WHOLE_AND_IN_PORTIONS
@pytest.mark.parametrize("late_data", ["stream", "scan"])
def test_a_range_or_a_scan_trusts_no_hours_of_a_day_that_it_touches(bench: Bench, late_data: str) -> None:
    """Another hour of the day has changed as well: the day is right all the same."""
    first, now = datetime(2021, 5, 1, tzinfo=UTC), datetime(2021, 5, 10, 12, 30, tzinfo=UTC)
    policy = policy_of(
        levels=("hourly", "daily"), rollup={"late_data": late_data, "recheck": timedelta(days=2)}
    )
    bench.database["ticks"].insert_many([tick(n, first + n * HOUR) for n in range(24 * 9)])
    bench.roll_up(policy, now)
    morning = datetime(2021, 5, 8, 5, 1, tzinfo=UTC)  # a scan looks from noon on
    bench.database["ticks"].insert_one(tick(9998, morning))
    noon = morning + 9 * HOUR
    range_: dict[str, Any] = {} if late_data == "scan" else {"since": noon, "until": noon + HOUR}
    bench.roll_up(policy, now, **range_)
    hour = bench.database["hourly"].find_one({"start": morning - MINUTE})
    day = bench.database["daily"].find_one({"start": morning.replace(hour=0, minute=0)})
    assert (hour["count"], day["count"]) == (1, 25)


@pytest.mark.proof
@pytest.mark.parametrize(
    ("bench", "zone"),
    [
        pytest.param(
            memory,
            zone,
            id=f"{zone}-{'in portions' if memory else 'whole'}",
            marks=[pytest.mark.proof] * ((memory, zone) not in SHORT[:2]),
        )
        for memory in (0, 4)
        for zone in ("Europe/Berlin", "Australia/Lord_Howe", "Asia/Kathmandu", "Pacific/Apia")
    ],
    indirect=["bench"],
)
def test_made_of_readings_or_of_finer_summaries_it_is_the_same_to_the_byte(bench: Bench, zone: str) -> None:
    """Also what is no number, what is missing, and series of every type."""
    first = STORIES[zone]
    odd: list[Any] = [float("nan"), "text", None, -0.0, 1e300, 2**40, 5]
    names: list[Any] = ["A", 1, 1.5, True, {"a": 1}, first, None]
    found = [
        {**one, "p": odd[n % 7] if n % 3 == 0 else one["p"], "symbol": names[n % 5 if n % 2 else n % 7]}
        for n, one in enumerate(ticks(first, 70))
    ]
    bench.database["ticks"].insert_many(found)

    def made(levels: tuple[str, ...]) -> dict[str, dict[bytes, bytes]]:
        more: dict[str, Any] = {"expected_interval": 15 * MINUTE, "name": "+".join(levels)}
        for day in (20, 65):  # so that later ones are made of what stands
            bench.roll_up(policy_of(zone, levels, **more), first + day * DAY)
        found = {level: bench.raw(level) for level in levels}
        for level in levels:
            bench.database.drop_collection(level)
        return found

    together = made(ALL)
    for level in ("hourly", "daily", "weekly", "monthly"):
        assert made((level,))[level] == together[level]


@pytest.mark.proof
def test_a_month_asks_little_for_one_late_reading(bench: Bench, mongodb_uri: str) -> None:
    first, now = datetime(2021, 5, 1, tzinfo=UTC), datetime(2021, 6, 10, tzinfo=UTC)
    policy = policy_of(levels=("hourly", "daily", "monthly"))
    bench.database["ticks"].insert_many([tick(n, first + n * HOUR) for n in range(24 * 31)])
    bench.roll_up(policy, now)
    bench.database["ticks"].insert_one(tick(9999, first + 10 * DAY + MINUTE))
    seen = Commands()
    with MongoClient[Document](mongodb_uri, tz_aware=True, event_listeners=[seen]) as client:
        report = Bench(client[bench.database.name]).roll_up(policy, now)
    assert report.written == 3
    # Three slices: the days before, the day itself, and those after.
    assert seen.names["find"] <= 70
    assert seen.names["commitTransaction"] == 3


@pytest.mark.proof
def test_a_level_that_is_new_is_made_of_what_stands(bench: Bench) -> None:
    first = datetime(2021, 5, 1, tzinfo=UTC)
    found, now = ticks(first, 300), first + LENGTH + 20 * DAY
    bench.database["ticks"].insert_many(found)
    bench.roll_up(policy_of(levels=("hourly", "daily"), rollup={"recheck": DAY}), now)
    bench.database["ticks"].delete_many({})  # cleared away by a script
    bench.database["ticks"].insert_one(tick(9999, now - HOUR))
    policy = policy_of(levels=("hourly", "daily", "weekly", "monthly"), rollup={"recheck": DAY})
    bench.roll_up(policy, now)
    assert sum(one["count"] for one in bench.database["monthly"].find()) == len(found)
    elsewhere = policy.model_copy(update={"rollup": policy.rollup.model_copy(update={"levels": tuple(
        it.model_copy(update={"collection": f"{it.name}_2"}) for it in policy.rollup.levels
    )})})  # fmt: skip
    bench.roll_up(elsewhere, now)
    assert existing(bench, "monthly_2") == existing(bench, "monthly")
    assert existing(bench, "weekly_2") == existing(bench, "weekly")


@pytest.mark.proof
def test_days_hold_back_their_expiry_until_the_month_is_made(bench: Bench) -> None:
    """Also where raw data is gone by then: the days are the last that is left of it."""
    first = datetime(2021, 5, 1, tzinfo=UTC)
    kept = Retain(hourly=3 * DAY, daily=7 * DAY, grace=timedelta(0))
    policy = policy_of(levels=("hourly", "daily", "monthly"), retain=kept, rollup={"recheck": DAY})
    found = [tick(n, first + n * HOUR) for n in range(24 * 40)]
    for day in (5, 12, 20, 28, 34, 40):
        now = first + day * DAY + HOUR
        bench.database["ticks"].delete_many({})  # by a script, that leaves nine days
        bench.database["ticks"].insert_many([one for one in found if now - 9 * DAY <= one["d"] < now])
        bench.roll_up(policy, now)
        expire_summaries(bench.context(policy, now))
        assert len(bench.starts("daily")) == {34: 7, 40: 9}.get(day, day)
    assert bench.database["monthly"].find_one()["count"] == 24 * 31
    late = tick(99_999, datetime(2021, 5, 31, 12, 30, tzinfo=UTC))
    bench.database["ticks"].insert_one(late)
    bench.roll_up(policy, now)
    assert bench.database["monthly"].find_one()["count"] == 24 * 31, "what only it holds is not given up"


@pytest.mark.proof
def test_the_schema_of_summaries_makes_them_anew(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A release that changes a statistic: the next run mends what stands, and an audit is content."""
    first = datetime(2021, 5, 1, tzinfo=UTC)
    policy, now = policy_of(), first + LENGTH + 20 * DAY
    bench.database["ticks"].insert_many(ticks(first, 100))
    bench.roll_up(policy, now)
    before = {level: bench.raw(level) for level in ALL}
    for level in ALL:  # as the release before would have left them
        bench.database[level].update_many({}, {"$set": {"p.avg": -1.0}})
    assert not bench.roll_up(policy, now).written, "nothing tells of it"
    monkeypatch.setattr("bucketwise.config.written.SUMMARY_SCHEMA", SUMMARY_SCHEMA + 1)
    report = bench.roll_up(policy, now)
    assert wrote(report) == {level: len(before[level]) for level in ALL}
    assert {level: bench.raw(level) for level in ALL} == before
    assert not bench.roll_up(policy, now, whole=True, dry_run=True).written


def test_an_archive_need_not_wait_for_the_month(bench: Bench) -> None:
    """Its days are made; without them the month itself is what has to be."""
    first, now = datetime(2021, 5, 1, tzinfo=UTC), datetime(2021, 5, 20, tzinfo=UTC)
    bench.database["ticks"].insert_many([tick(n, first + n * HOUR) for n in range(400)])
    for levels, gate in ((("daily", "monthly"), datetime(2021, 5, 19, tzinfo=UTC)), (("monthly",), first)):
        policy = policy_of(levels=levels)
        bench.roll_up(policy, now)
        assert rolled_up_through(bench.database, policy) == to_ms(gate)


@pytest.mark.proof
def test_a_month_is_answered_by_its_month(bench: Bench) -> None:
    first, now = datetime(2021, 5, 1, tzinfo=UTC), datetime(2021, 7, 20, tzinfo=UTC)
    found, policy = ticks(first, 300), policy_of()
    bench.database["ticks"].insert_many(found)
    bench.roll_up(policy, now)
    since, until = datetime(2021, 4, 30, 23, 55, tzinfo=UTC), datetime(2021, 6, 8, 1, 20, tzinfo=UTC)
    answer = summarize(bench.database, policy, Question(since=since, until=until))
    windows = {level: answer.tiling.windows(level) for level in ALL}
    assert windows == {"5m": 2, "15m": 1, "hourly": 1, "daily": 7, "weekly": 0, "monthly": 1}
    told = {series: state.count for (series,), state in answer.states}
    assert sum(told.values()) == sum(since <= one["d"] < until for one in found)


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize("levels", [ALL, ("weekly", "monthly")], ids="+".join)
def test_weeks_and_months_by_the_readings_own_clocks(bench: Bench, levels: tuple[str, ...]) -> None:
    first, now = STORIES["UTC"], datetime(2021, 3, 3, tzinfo=UTC)
    policy = policy_of(levels=levels).model_copy(update={"local_offset_field": "tz"})
    offsets = [300, -330, 0, -840, 1080]
    found = [{**one, "tz": offsets[n % 5]} for n, one in enumerate(ticks(first, 300))]
    bench.database["ticks"].insert_many(found)
    bench.roll_up(policy, now)
    late = {**tick(9000, datetime(2020, 12, 31, 23, 50, tzinfo=UTC), "S0"), "tz": -330}
    bench.database["ticks"].insert_one(late)
    bench.roll_up(policy, now)
    for level in ("weekly", "monthly"):
        counts: dict[tuple[str, datetime], int] = defaultdict(int)
        for one in [*found, late]:
            day = first_date(level, (one["d"] - one["tz"] * MINUTE).date())
            counts[one["symbol"], datetime(day.year, day.month, day.day, tzinfo=UTC)] += 1
        assert {key: told[0] for key, told in existing(bench, level).items()} == counts
        assert {one["timezone"] for one in bench.database[level].find()} == {"local"}
    assert not bench.roll_up(policy, now, whole=True, dry_run=True).written


@pytest.mark.proof
def test_a_run_that_is_stopped_in_a_month_is_taken_up_again(bench: Bench) -> None:
    """Days that stand by then are not read again for the month."""
    first = datetime(2021, 5, 22, tzinfo=UTC)
    policy = policy_of(levels=("hourly", "daily", "weekly", "monthly"))
    now = datetime(2021, 6, 10, 1, tzinfo=UTC)
    found = [tick(n, first + n * HOUR) for n in range(24 * 15)]
    bench.database["ticks"].insert_many(found)

    with pytest.raises(InterruptedRun):
        bench.roll_up(policy, now, check=stopped_at(13))  # twice a slice
    assert not bench.starts("monthly") and bench.starts("daily")[-1] == first + 5 * DAY
    assert bench.roll_up(policy, now).readings == 24 * (15 - 6)
    assert [one["count"] for one in bench.database["monthly"].find()] == [24 * 10]
    weeks = bench.database["weekly"].find().sort("start", 1)
    assert [one["count"] for one in weeks] == [24 * 2, 24 * 7, 24 * 6]
    assert not bench.roll_up(policy, now, whole=True, dry_run=True).written


@pytest.mark.proof
@pytest.mark.in_turn(1)
@WHOLE_AND_IN_PORTIONS
def test_what_outlived_its_readings_counts_further_up(bench: Bench) -> None:
    """A late reading on a day whose first hours were cleared away: nothing of the day is given up, nor is it
    left out."""
    first = datetime(2021, 5, 1, tzinfo=UTC)
    policy = policy_of(levels=("hourly", "daily", "monthly"), rollup={"recheck": DAY})
    now = datetime(2021, 6, 10, tzinfo=UTC)
    bench.database["ticks"].insert_many([tick(n, first + n * HOUR) for n in range(24 * 8, 24 * 13)])
    bench.roll_up(policy, now)
    bench.database["ticks"].delete_many({"d": {"$lt": first + 10 * DAY + 12 * HOUR}})
    bench.roll_up(policy, now)
    bench.database["ticks"].insert_one(tick(9999, first + 10 * DAY + 15 * HOUR + MINUTE))
    report = bench.roll_up(policy, now)
    assert wrote(report) == {"hourly": 1, "daily": 1, "monthly": 1}
    day = bench.database["daily"].find_one({"start": first + 10 * DAY})
    assert (day["count"], bench.database["monthly"].find_one()["count"]) == (25, 24 * 5 + 1)
    assert day["p"]["first_at"] == first + 10 * DAY
    audit = bench.roll_up(policy, now, whole=True, dry_run=True)
    assert (audit.written, audit.counts["monthly"].kept, audit.counts["daily"].kept) == (0, 1, 3)


@settings(max_examples=examples(5))
@given(data=st.data())
def test_runs_in_any_steps_come_to_the_same(database_of_bench: Bench, data: st.DataObject) -> None:
    """Roll-ups at any times, late readings and deletes between them."""
    bench = database_of_bench
    bench.memory = data.draw(st.sampled_from([0, 4]))
    bench.database.client.drop_database(bench.database.name)
    zone = data.draw(st.sampled_from(sorted(STORIES)))
    levels = data.draw(
        st.sets(st.sampled_from(ALL), min_size=1).map(lambda it: tuple(sorted(it, key=ALL.index)))
    )
    first, policy = STORIES[zone], policy_of(zone, levels)
    waiting, there, now = ticks(first, 60, data.draw(st.integers(0, 99))), [], first
    for _ in range(data.draw(st.integers(1, 4))):
        some = (
            data.draw(st.lists(st.sampled_from(waiting), unique_by=lambda it: it["_id"], max_size=30))
            if waiting
            else []
        )
        waiting = [one for one in waiting if one not in some]
        if some:
            bench.database["ticks"].insert_many(some)
        there += some
        now += data.draw(st.integers(1, 40)) * DAY
        bench.roll_up(policy, now)
    now = first + LENGTH + 40 * DAY
    bench.roll_up(policy, now)
    check(bench, policy, zone, now, there)


@pytest.fixture
def database_of_bench(bench: Bench) -> Bench:
    return bench
