"""Days by the readings' own clocks, on a real MongoDB, against plain Python."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from random import Random
from typing import Any

import pytest

from bucketwise.config.errors import UsageError
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Policy, Rollup
from bucketwise.rollups.answers import Question, longest_holes, summarize
from bucketwise.rollups.calendar.due import Calendar
from bucketwise.rollups.calendar.levels import levels_of
from bucketwise.rollups.calendar.windows import to_ms
from bucketwise.rollups.progress import rolled_up_through
from bucketwise.rollups.rolling.plan import RollupReport
from tests.rollups.conftest import Bench

Document = dict[str, Any]
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
FIRST = datetime(2021, 3, 26, tzinfo=UTC)
NOW = datetime(2021, 4, 10, tzinfo=UTC)
#: New York, Kolkata, UTC, Lord Howe, Kiritimati, and as far as it goes.
OFFSETS = [240, 300, -330, 0, -630, -840, 1080, -1080, 1]


def policy_of(model: str = "reading", **more: Any) -> Policy:
    fields: dict[str, Any] = {
        "reading": {"time_field": "d"},
        "slots": {"time_field": "d", "slot": "minute"},
        "samples": {
            "samples_field": "samples",
            "sample_time_field": "at",
            "start_field": "first",
            "end_field": "last",
        },
    }[model]
    said: dict[str, Any] = {
        "name": "meters",
        "collection": "meters",
        "model": model,
        "series_fields": ("s",),
        "value_fields": ("v",),
        "local_offset_field": "meta.tz",
        "rollup": Rollup(hourly="hourly", daily="daily"),
    }
    return make_policy(**(said | fields | more))


def reading(number: int, at: datetime, offset: Any, series: int = 1) -> Document:
    return {"_id": number, "s": series, "d": at, "v": number / 8, "meta": {"tz": offset}}


def readings(count: int, seed: int = 1) -> list[Document]:
    """Of three series that travel: their offsets change between readings."""
    chance = Random(seed)
    return [
        reading(number, FIRST + chance.randrange(5 * 1440) * MINUTE, chance.choice(OFFSETS), number % 3)
        for number in range(count)
    ]


def local_date(one: Document) -> date:
    wall: datetime = one["d"] - one["meta"]["tz"] * MINUTE
    return wall.date()


def plain(found: Iterable[Document]) -> dict[tuple[int, datetime], tuple[Any, ...]]:
    days: dict[tuple[int, datetime], list[Document]] = defaultdict(list)
    for one in found:
        midnight = datetime.combine(local_date(one), datetime.min.time(), tzinfo=UTC)
        days[one["s"], midnight].append(one)
    result: dict[tuple[int, datetime], tuple[Any, ...]] = {}
    for key, group in days.items():
        group.sort(key=lambda one: (one["d"], one["_id"]))
        first, last = group[0], group[-1]
        result[key] = (
            len(group),
            sum(one["v"] for one in group),
            first["v"],
            first["d"],
            last["v"],
            last["d"],
        )
    return result


def existing(bench: Bench) -> dict[tuple[int, datetime], tuple[Any, ...]]:
    keys = ("count", "sum", "first", "first_at", "last", "last_at")
    return {
        (one["s"], one["start"]): tuple(one["v"][key] for key in keys)
        for one in bench.database["daily"].find()
    }


def wrote(report: RollupReport) -> tuple[int, int]:
    return report.hourly.written, report.daily.written


def test_each_reading_is_in_the_day_of_its_own_clock(bench: Bench) -> None:
    found = readings(400)
    bench.database["meters"].insert_many(found[::2])
    bench.database["archive"].insert_many(found[1::2])
    report = bench.roll_up(policy_of(), NOW)
    assert existing(bench) == plain(found)
    assert report.readings == len(found)
    for one in bench.database["daily"].find():
        assert (one["timezone"], one["hours"], one["end"] - one["start"]) == ("local", 24, DAY)
    hours = {(one["s"], one["start"]): one["count"] for one in bench.database["hourly"].find()}
    plain_hours: dict[tuple[int, datetime], int] = defaultdict(int)
    for one in found:
        plain_hours[one["s"], one["d"].replace(minute=0)] += 1
    assert hours == plain_hours, "hours stay UTC hours"
    before = bench.raw("hourly") | bench.raw("daily")
    again = bench.roll_up(policy_of(), NOW, since=FIRST - 2 * DAY)
    assert wrote(again) == (0, 0) and again.readings == len(found)
    assert bench.raw("hourly") | bench.raw("daily") == before


@pytest.mark.parametrize("targets", [{"hourly": None}, {}], ids=["days", "both"])
def test_late_changed_and_deleted_readings_mend_their_local_days(
    bench: Bench, targets: dict[str, Any]
) -> None:
    policy = policy_of(
        rollup=Rollup(**{"hourly": "hourly", "daily": "daily", "recheck": 30 * DAY, **targets})
    )
    found = readings(120)
    bench.database["meters"].insert_many(found)
    bench.roll_up(policy, NOW)
    far = [reading(1000 + at, FIRST + 2 * DAY + HOUR, offset, 1) for at, offset in enumerate(OFFSETS)]
    bench.database["meters"].insert_many(far)
    bench.database["meters"].delete_one({"_id": 7})
    bench.database["meters"].update_one({"_id": 9}, {"$set": {"meta.tz": 1080}})
    bench.roll_up(policy, NOW)
    now_there = list(bench.database["meters"].find())
    assert len(now_there) == 120 + len(OFFSETS) - 1
    assert existing(bench) == plain(now_there)


def test_one_reading_given_as_a_range_mends_every_day_it_may_be_in(bench: Bench) -> None:
    policy = policy_of(rollup=Rollup(daily="daily", recheck=MINUTE))
    bench.database["meters"].insert_many([reading(1, FIRST + 2 * DAY, 0), reading(2, FIRST + 5 * DAY, 0)])
    bench.roll_up(policy, NOW)
    at = FIRST + 2 * DAY + 10 * HOUR
    for number, offset in enumerate((1080, -1080, 0), start=3):
        bench.database["meters"].insert_one(reading(number, at, offset))
        bench.roll_up(policy, NOW, since=at, until=at + MINUTE)
        assert existing(bench) == plain(bench.database["meters"].find())


def test_a_local_day_is_due_once_it_is_over_everywhere(bench: Bench) -> None:
    policy = policy_of(rollup=Rollup(hourly="hourly", daily="daily", settle=10 * MINUTE))
    found = [reading(number, FIRST + number * HOUR, offset) for number in range(96) for offset in [-330]]
    bench.database["meters"].insert_many(found)
    over = FIRST + 2 * DAY + 18 * HOUR + 10 * MINUTE  # of the second date, where it is over last
    for now, last in ((over - MINUTE, FIRST), (over, FIRST + DAY)):
        bench.roll_up(policy, now)
        assert bench.starts("daily")[-1] == last
        gate = rolled_up_through(bench.database, policy)
        assert gate == to_ms(last + DAY - 18 * HOUR)
        assert policy.rollup is not None
        calendar = Calendar(policy, policy.rollup, now)
        assert min(level.through(calendar.due_end) - level.reach for level in levels_of(policy)) == gate
        # Whatever clock a reading before the gate has, its day stands.
        rolled = {start.date() for start in bench.starts("daily")}
        for one in found:
            if to_ms(one["d"]) < gate:
                assert local_date(one) in rolled
    bench.roll_up(policy, NOW)
    assert existing(bench) == plain(found)


@pytest.mark.proof
def test_a_backfill_in_steps_leaves_nothing_out(bench: Bench) -> None:
    found = readings(200, seed=5)
    bench.database["meters"].insert_many(found)
    policy = policy_of(rollup=Rollup(daily="daily", recheck=MINUTE))
    for hours in range(0, 15 * 24, 17):
        bench.roll_up(policy, FIRST + hours * HOUR)
    assert existing(bench) == plain(found)


def test_slots_go_by_their_buckets_offset(bench: Bench) -> None:
    found = []
    for number, (hour, offset) in enumerate([(0, 300), (5, 300), (18, -330), (23, -330), (30, 0)]):
        start = FIRST + hour * HOUR
        values = {str(minute): number + minute / 64 for minute in (0, 29, 30, 59)}
        bench.database["meters"].insert_one(
            {"_id": number, "s": 1, "d": start, "v": values, "meta": {"tz": offset}}
        )
        found += [
            {"_id": number, "s": 1, "d": start + int(minute) * MINUTE, "v": value, "meta": {"tz": offset}}
            for minute, value in values.items()
        ]
    bench.roll_up(policy_of("slots"), NOW)
    assert existing(bench) == plain(found)


@pytest.mark.parametrize("inside", [False, True], ids=["bucket", "sample"])
def test_samples_go_by_their_buckets_offset_or_by_their_own(bench: Bench, inside: bool) -> None:
    chance, found = Random(3), []
    for number in range(40):
        start = FIRST + number * 3 * HOUR
        offsets = [chance.choice(OFFSETS) for _ in range(4)] if inside else [chance.choice(OFFSETS)] * 4
        at = [start + step * HOUR / 2 for step in range(4)]
        samples = [
            {"at": one, "v": step + number / 4, **({"meta": {"tz": offset}} if inside else {})}
            for step, (one, offset) in enumerate(zip(at, offsets, strict=True))
        ]
        bucket = {"_id": number, "s": 1, "first": at[0], "last": at[-1], "samples": samples}
        bench.database["meters"].insert_one(bucket if inside else bucket | {"meta": {"tz": offsets[0]}})
        found += [
            {"_id": number, "s": 1, "d": one["at"], "v": one["v"], "meta": {"tz": offset}}
            for one, offset in zip(samples, offsets, strict=True)
        ]
    bench.roll_up(policy_of("samples"), NOW)
    assert existing(bench) == plain(found)


@pytest.mark.parametrize("targets", [{"hourly": "hourly"}, {}], ids=["both", "days"])
def test_a_range_is_answered_by_one_clock(bench: Bench, targets: dict[str, Any]) -> None:
    """By instants where there are hours, else by local dates."""
    found = readings(300)
    bench.database["meters"].insert_many(found)
    policy = policy_of(rollup=Rollup(daily="daily", **targets))
    bench.roll_up(policy, NOW)
    since, until = FIRST + DAY, FIRST + 3 * DAY
    answer = summarize(bench.database, policy, Question(since=since, until=until))
    told = {series: state.count for (series,), state in answer.states}
    if targets:
        expected = Counter(one["s"] for one in found if since <= one["d"] < until)
    else:
        expected = Counter(one["s"] for one in found if since.date() <= local_date(one) < until.date())
    assert told == expected and answer.is_complete
    if not targets:
        with pytest.raises(UsageError, match=r"local dates: from 2021-03-27T00:00:00Z or 2021-03-28"):
            summarize(bench.database, policy, Question(since=since + HOUR, until=until))


def test_a_day_tells_what_is_missing_by_its_own_clock(bench: Bench) -> None:
    """A series travels west at noon: its day has 27 hours, and each hour of its clock was heard."""
    times = [(FIRST + hour * HOUR, 0 if hour < 12 else 180) for hour in range(27)]
    bench.database["meters"].insert_many(
        [reading(number, at, offset) for number, (at, offset) in enumerate(times)]
    )
    policy = policy_of(expected_interval=HOUR, max_hole=2 * HOUR)
    bench.roll_up(policy, NOW)
    (day,) = bench.database["daily"].find()
    assert (day["count"], day["expected"], day["missing"], day["longest_hole"]) == (27, 24, 0, 0)
    assert longest_holes(bench.database, policy, 9) == ([], 0)
    bench.database["meters"].delete_many({"_id": {"$in": [5, 6, 7]}})
    only_days = policy.model_copy(update={"rollup": Rollup(daily="daily", recheck=30 * DAY)})
    bench.roll_up(only_days, NOW)
    (day,) = bench.database["daily"].find()
    assert (day["missing"], day["longest_hole"], day["longest_hole_at"]) == (3, 3 * 3600, FIRST + 5 * HOUR)
    (hole,), _ = longest_holes(bench.database, only_days, 9)
    assert "from 2021-03-26T05:00:00 local time to 2021-03-26T08:00:00 local time" in hole.message(only_days)


OFFSETS_THAT_ARE_NONE: list[tuple[Any, str]] = [
    (None, "no offset from UTC: the field is missing or null"),
    ("-330", "no offset from UTC: a string stands where minutes are needed"),
    (1081, "1081 is no whole number of minutes from -1080 to 1080"),
    (-19800, "-19800 is no whole number of minutes"),
    (0.5, "0.5 is no whole number of minutes"),
    (float("nan"), "nan is no whole number of minutes"),
    (True, "stands where minutes are needed"),
]


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(
    ("model", "told"),
    [
        pytest.param(model, told, marks=[pytest.mark.proof] * ((at + turn) % 4 > 0))
        for turn, model in enumerate(["reading", "slots", "samples", "overflow"])
        for at, told in enumerate(OFFSETS_THAT_ARE_NONE)
    ],
)
def test_a_bucket_without_a_sound_offset_is_quarantined(
    bench: Bench, model: str, told: tuple[Any, str]
) -> None:
    offset, reason = told
    sound = reading(1, FIRST, -330.0)
    wrong = reading(2, FIRST, offset)
    policy = policy_of(model if model != "overflow" else "samples")
    field = "meta.tz"
    if model == "slots":
        sound, wrong = (one | {"v": {"0": 1.5}} for one in (sound, wrong))
    elif model == "samples":
        sound, wrong = (_in_sample(one) for one in (sound, wrong))
        field = "samples.0.meta.tz"
    elif model == "overflow":
        overflow = {
            "flag_field": "more",
            "collection": "extra",
            "ref_field": "of",
            "samples_field": "samples",
        }
        policy = policy_of("samples", overflow=overflow)
        bench.database["extra"].insert_many(
            [{"of": one["_id"], "samples": _in_sample(one)["samples"]} for one in (sound, wrong)]
        )
        field = "extra: samples.0.meta.tz"
        sound, wrong = (_in_sample(reading(n, FIRST, 60)) | {"more": True} for n in (1, 2))
    bench.database["meters"].insert_many([sound, wrong])
    report = bench.roll_up(policy, NOW)
    (found,) = report.quarantined
    assert (found.id, found.field) == (2, field)
    assert reason in found.reason
    assert [one["count"] for one in bench.database["daily"].find()] == [1] * (1 + (model == "overflow"))


def _in_sample(one: Document) -> Document:
    sample = {"at": one["d"], "v": 1.5, "meta": one["meta"]}
    return {"_id": one["_id"], "s": 1, "first": one["d"], "last": one["d"], "samples": [sample]}
