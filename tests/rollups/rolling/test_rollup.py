"""Roll-ups on a real MongoDB: every summary equals plain Python's, and nothing is written twice."""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from functools import partial, reduce
from math import fsum
from typing import Any
from zoneinfo import ZoneInfo

import bson
import pytest

from bucketwise.config.errors import BucketwiseError, InterruptedRun
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Policy, Retain, Rollup
from bucketwise.rollups.calendar.windows import to_ms
from bucketwise.rollups.progress import (
    NO_GATE,
    HeldWindow,
    HeldWindows,
    load,
    note_left,
    rolled_up_through,
    store_held,
)
from bucketwise.rollups.rolling.plan import RollupReport
from bucketwise.rollups.statistics import statistics_of
from bucketwise.rollups.summaries import documents
from bucketwise.rollups.summaries.summary import merge
from tests.rollups.conftest import Bench, stopped_at
from tests.rollups.samples import day_summary

Document = dict[str, Any]
FIRST = datetime(2021, 3, 26, 10, 0, tzinfo=UTC)  # two days before clocks change in Berlin
NOW = datetime(2021, 4, 2, 6, 5, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def policy_of(zone: str = "UTC", **more: Any) -> Policy:
    said: dict[str, Any] = {
        "name": "ticks",
        "collection": "ticks",
        "model": "reading",
        "time_field": "d",
        "series_fields": ("symbol",),
        "value_fields": ("p", "book.depth"),
        "rollup": {"hourly": "hourly", "daily": "daily", "timezone": zone, "percentiles": (50, 99.9)},
    }
    return make_policy(**(said | more))


def iot(**more: Any) -> Policy:
    return policy_of(
        **{
            "model": "samples",
            "time_field": None,
            "value_fields": ("val",),
            "samples_field": "samples",
            "sample_time_field": "time",
            "start_field": "first",
            "end_field": "last",
            **more,
        }
    )


def tick(number: int, symbol: str, at: datetime, price: Any = None) -> Document:
    depth = number % 7 if number % 3 else "none"
    return {
        "_id": number,
        "symbol": symbol,
        "d": at,
        "p": number / 7 if price is None else price,
        "book": {"depth": depth},
    }


def ticks(count: int, days: float = 5) -> list[Document]:
    source = random.Random(count)
    times = [FIRST + timedelta(minutes=source.randrange(int(days * 1440))) for _ in range(count)]
    return [tick(number, f"S{number % 3}", at) for number, at in enumerate(times)]


def expected(
    found: list[Document], zone: str, kind: str, until: datetime
) -> dict[tuple[str, datetime], Document]:
    """count, sum, first and last of `p`, and how many `book.depth` are numbers, in plain Python."""
    groups: dict[tuple[str, datetime], list[Document]] = defaultdict(list)
    for one in found:
        local = one["d"].astimezone(UTC if kind == "hourly" else ZoneInfo(zone))
        start = local.replace(minute=0) if kind == "hourly" else local.replace(hour=0, minute=0)
        end = (start + HOUR) if kind == "hourly" else start.replace(day=1) + (start.day * DAY)
        if end.astimezone(UTC) <= until:
            groups[one["symbol"], start.astimezone(UTC)].append(one)
    result = {}
    for key, group in groups.items():
        group.sort(key=lambda one: (one["d"], one["_id"]))
        prices = [one["p"] for one in group]
        numbers = sum(isinstance(one["book"]["depth"], int) for one in group)
        result[key] = {
            "count": len(group), "sum": fsum(prices), "first": prices[0], "last": prices[-1],
            "numbers": numbers, "nonnumeric": len(group) - numbers,
        }  # fmt: skip
    return result


def existing(bench: Bench, collection: str) -> dict[tuple[str, datetime], Document]:
    return {
        (one["symbol"], one["start"]): {
            "count": one["count"],
            **{key: one["p"][key] for key in ("sum", "first", "last")},
            "numbers": one["book"]["depth"]["count"],
            "nonnumeric": one["book"]["depth"].get("nonnumeric", 0),
        }
        for one in bench.database[collection].find()
    }


def wrote(report: RollupReport) -> tuple[int, int]:
    return report.hourly.written, report.daily.written


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Asia/Kolkata", "America/St_Johns"])
def test_summaries_equal_plain_python_and_a_second_run_writes_nothing(bench: Bench, zone: str) -> None:
    found = [*ticks(600), tick(9001, "S1", NOW - timedelta(minutes=10))]  # the last one's hour is not settled
    bench.database["ticks"].insert_many(found)
    policy, settled = policy_of(zone), NOW - timedelta(minutes=10)
    report = bench.roll_up(policy, NOW)
    for kind, counts in (("hourly", report.hourly), ("daily", report.daily)):
        plain = expected(found, zone, kind, settled)
        assert existing(bench, kind) == plain
        assert (counts.written, counts.unchanged, counts.deleted) == (len(plain), 0, 0)
    assert report.readings == 600
    assert bench.database["daily"].find_one({}, sort=[("start", 1)])["timezone"] == zone  # type: ignore[index]
    before = bench.raw("hourly") | bench.raw("daily")
    again = bench.roll_up(policy, NOW, since=FIRST - DAY, until=NOW)
    assert wrote(again) == (0, 0)
    assert (again.hourly.unchanged, again.daily.unchanged) == wrote(report)
    assert again.readings == 600
    assert bench.raw("hourly") | bench.raw("daily") == before


def test_a_days_summary_is_the_merge_of_its_hours(bench: Bench) -> None:
    bench.database["ticks"].insert_many(ticks(400, days=2))
    policy = policy_of()
    bench.roll_up(policy, NOW)
    hours = defaultdict(list)
    for one in bench.database["hourly"].find():
        hours[one["symbol"], one["start"].date()].append(documents.state_of(one, policy))
    days = bench.raw("daily")
    assert len(days) == len(hours)
    for raw in days.values():
        day = bson.decode(raw, documents.OPTIONS)
        merged = reduce(partial(merge, statistics_of(policy)), hours[day["symbol"], day["start"].date()])
        start, end = to_ms(day["start"]), to_ms(day["end"])
        assert day_summary(policy, (day["symbol"],), start, end, "UTC", merged) == raw


@pytest.mark.proof
def test_the_source_may_be_split_between_live_and_archived(bench: Bench) -> None:
    found = ticks(300)
    bench.database["ticks"].insert_many(found)
    bench.roll_up(policy_of("Asia/Kolkata"), NOW)
    before = bench.raw("hourly"), bench.raw("daily")
    bench.database["ticks"].delete_many({"_id": {"$mod": [2, 0]}})
    bench.database["archive"].insert_many([one for one in found if one["_id"] % 2 == 0])
    again = bench.roll_up(policy_of("Asia/Kolkata"), NOW, since=FIRST - DAY)
    assert wrote(again) == (0, 0)
    bench.database["hourly"].drop()
    bench.database["daily"].drop()
    bench.database["bucketwise_progress"].drop()
    bench.roll_up(policy_of("Asia/Kolkata"), NOW)
    assert (bench.raw("hourly"), bench.raw("daily")) == before


@pytest.mark.proof
def test_a_scan_sees_late_readings_within_recheck_and_in_a_given_range(bench: Bench) -> None:
    bench.database["ticks"].insert_many(ticks(200))
    policy = policy_of()
    assert policy.rollup is not None
    policy = policy_of(rollup={**policy.rollup.model_dump(), "late_data": "scan"})
    bench.roll_up(policy, NOW)
    young, old = NOW - timedelta(hours=30), NOW - timedelta(days=5)
    bench.database["ticks"].insert_many(
        [tick(1001, "S0", young), tick(1002, "S0", old), tick(1003, "S0", old - DAY)]
    )
    assert wrote(bench.roll_up(policy, NOW)) == (1, 1)
    assert wrote(bench.roll_up(policy, NOW)) == (0, 0)
    for late in (old, old - DAY):
        given = bench.roll_up(policy, NOW, since=late, until=late + timedelta(seconds=1))
        assert (given.hourly.due, given.daily.due) == (1, 1)
        assert wrote(given) == (1, 1)
    assert wrote(bench.roll_up(policy, NOW, since=FIRST - DAY)) == (0, 0)


def test_a_scan_finds_what_came_late_while_no_run_was_made(bench: Bench) -> None:
    bench.database["ticks"].insert_many([tick(1, "A", NOW - 3 * HOUR)])
    policy = policy_of()
    assert policy.rollup is not None
    policy = policy_of(rollup={**policy.rollup.model_dump(), "late_data": "scan"})
    bench.roll_up(policy, NOW)
    bench.database["ticks"].insert_many([tick(2, "A", NOW - 3 * HOUR), tick(3, "A", NOW - 40 * HOUR)])
    assert wrote(bench.roll_up(policy, NOW + 5 * DAY)) == (2, 2)
    late = bench.database["hourly"].find_one({"start": (NOW - 3 * HOUR).replace(minute=0)})
    assert late is not None
    assert late["count"] == 2


def test_a_given_range_takes_whole_windows_and_no_others(bench: Bench) -> None:
    bench.database["ticks"].insert_many([tick(at, "A", FIRST + at * HOUR / 4) for at in range(300)])
    since = datetime(2021, 3, 27, 18, 40, tzinfo=UTC)
    bench.roll_up(policy_of("Asia/Kolkata"), NOW, since=since, until=since + HOUR)
    assert bench.starts("hourly") == [since.replace(minute=0), since.replace(minute=0) + HOUR]
    assert bench.starts("daily") == [since.replace(minute=30)]
    assert bench.database["daily"].find_one()["count"] == 96  # type: ignore[index]
    assert rolled_up_through(bench.database, policy_of("Asia/Kolkata")) is None


@pytest.mark.proof
def test_old_summaries_stay_where_their_raw_data_is_gone(bench: Bench) -> None:
    bench.database["ticks"].insert_many(ticks(300))
    policy = policy_of()
    bench.roll_up(policy, NOW)
    before = {kind: existing(bench, kind) for kind in ("hourly", "daily")}
    of_series = {kind: bench.database[kind].count_documents({"symbol": "S2"}) for kind in before}
    bench.database["ticks"].delete_many({"symbol": "S2"})
    # Other series have readings in those windows: nothing says that those of S2 were wrong.
    cut = bench.roll_up(policy, NOW + 2 * DAY, since=FIRST - DAY)
    assert wrote(cut) == (0, 0)
    assert (cut.hourly.kept, cut.daily.kept) == (of_series["hourly"], of_series["daily"])
    bench.database["ticks"].delete_many({})
    bench.roll_up(policy, NOW + 2 * DAY, since=FIRST - DAY)
    assert {kind: existing(bench, kind) for kind in before} == before


@pytest.mark.proof
def test_a_young_window_that_lost_all_readings_loses_its_summaries(bench: Bench) -> None:
    bench.database["ticks"].insert_many(
        [tick(1, "A", NOW - timedelta(hours=30)), tick(2, "A", NOW - 5 * DAY)]
    )
    bench.roll_up(policy_of(), NOW)
    bench.database["ticks"].delete_many({})
    report = bench.roll_up(policy_of(), NOW)
    assert (report.hourly.deleted, report.daily.deleted) == (1, 1)
    assert bench.starts("daily") == [(NOW - 5 * DAY).replace(hour=0, minute=0)]


@pytest.mark.proof
def test_buckets_that_span_days_and_years_without_readings(bench: Bench) -> None:
    times = [FIRST, FIRST + 3 * DAY, FIRST + 3 * DAY + HOUR]
    years_ago = FIRST - 3650 * DAY
    for number, span in enumerate((times, [years_ago], [FIRST + HOUR, FIRST + DAY])):
        samples = [{"time": at, "val": 1.5} for at in span]
        bounds = {"first": span[0], "last": span[-1]}
        bench.database["ticks"].insert_one({"_id": number, "symbol": "A", **bounds, "samples": samples})
    report = bench.roll_up(iot(), NOW)
    midnight = FIRST.replace(hour=0)
    assert bench.starts("daily") == [years_ago.replace(hour=0), midnight, midnight + DAY, midnight + 3 * DAY]
    assert (report.readings, report.hourly.written) == (6, 6)
    assert len(bench.slices) == 5, "the ten years between are skipped"


def test_a_backfill_that_is_stopped_goes_on_from_its_watermark(bench: Bench) -> None:
    found = ticks(300)
    bench.database["ticks"].insert_many(found)
    policy = policy_of()
    with pytest.raises(InterruptedRun):
        bench.roll_up(policy, NOW, check=stopped_at(5))  # twice a slice: before it is read, and after
    reached = FIRST.replace(hour=0) + 2 * DAY
    assert rolled_up_through(bench.database, policy) == to_ms(reached)
    assert existing(bench, "daily") == expected(found, "UTC", "daily", reached)
    hours = len(existing(bench, "hourly"))
    # Far in the future `recheck` reaches nothing: what the rest of the run looks at is told by the watermark.
    rest = bench.roll_up(policy, NOW + 300 * DAY)
    assert rest.readings == sum(one["d"] >= reached for one in found)
    assert rest.hourly.unchanged == 0
    assert existing(bench, "hourly") == expected(found, "UTC", "hourly", NOW)
    assert rest.hourly.written == len(existing(bench, "hourly")) - hours


def test_the_watermark_is_the_end_of_the_last_due_window(bench: Bench) -> None:
    policy = policy_of("Asia/Kolkata")
    bench.database["ticks"].insert_many(ticks(5))
    bench.roll_up(policy, NOW)
    document = bench.database["bucketwise_progress"].find_one({"_id": "ticks"})
    assert document is not None
    assert document["hourly_through"] == NOW.replace(hour=5, minute=0)
    assert document["daily_through"] == datetime(2021, 4, 1, 18, 30, tzinfo=UTC)
    assert rolled_up_through(bench.database, policy) == to_ms(document["daily_through"])
    # A `--now` in the far future says more than is true at the next run, which takes it back.
    bench.roll_up(policy, NOW + 365 * DAY)
    bench.roll_up(policy, NOW)
    again = bench.database["bucketwise_progress"].find_one({"_id": "ticks"})
    assert again is not None
    assert {**again, "stream": None} == {**document, "stream": None}


def test_an_empty_source_has_no_watermark_and_is_backfilled_later(bench: Bench) -> None:
    policy = policy_of()
    assert wrote(bench.roll_up(policy, NOW)) == (0, 0)
    assert rolled_up_through(bench.database, policy) is None
    bench.database["ticks"].insert_many(ticks(50))
    assert bench.roll_up(policy, NOW + 100 * DAY).readings == 50


@pytest.mark.proof
def test_other_settings_recompute_everything_archived_or_not(bench: Bench) -> None:
    found = ticks(200)
    bench.database["archive"].insert_many(found[:150])
    bench.database["ticks"].insert_many(found[150:])
    first = bench.roll_up(policy_of(), NOW)
    other = policy_of("Europe/Berlin")
    assert rolled_up_through(bench.database, other) is None
    second = bench.roll_up(other, NOW + 100 * DAY)
    assert second.hourly.unchanged == first.hourly.written, "hours don't know of zones"
    assert second.daily.deleted > 0, "days of the zone before are wrong now"
    assert existing(bench, "daily") == expected(found, "Europe/Berlin", "daily", NOW)
    assert rolled_up_through(bench.database, other) is not None


def test_a_policy_without_rollup_gates_nothing(bench: Bench) -> None:
    policy = policy_of(rollup=None)
    assert rolled_up_through(bench.database, policy) == NO_GATE
    assert bench.roll_up(policy, NOW) == RollupReport()


def test_a_dry_run_tells_the_same_and_writes_nothing(bench: Bench) -> None:
    bench.database["ticks"].insert_many([*ticks(100), {"_id": "bad", "symbol": "A", "d": "no time"}])
    dry_run_guard = bench.roll_up(policy_of(), NOW, dry_run=True)
    assert bench.database.list_collection_names() == ["ticks"]
    assert dry_run_guard == bench.roll_up(policy_of(), NOW)
    assert dry_run_guard.quarantined_total == 1 and dry_run_guard.hourly.written > 0


def test_windows_past_retention_are_left_to_expiry(bench: Bench) -> None:
    found = ticks(100)
    bench.database["ticks"].insert_many(found)
    policy = policy_of(retain=Retain(hourly=timedelta(days=5), daily=None))
    bench.roll_up(policy, NOW)
    assert bench.starts("hourly")[0] >= NOW - 5 * DAY - HOUR
    assert existing(bench, "daily") == expected(found, "UTC", "daily", NOW)
    assert wrote(bench.roll_up(policy, NOW, since=FIRST)) == (0, 0)


def test_hourly_alone_and_daily_alone(bench: Bench) -> None:
    found = ticks(100)
    bench.database["ticks"].insert_many(found)
    bench.roll_up(policy_of(name="h", rollup=Rollup(hourly="hourly")), NOW)
    bench.roll_up(policy_of(name="d", rollup=Rollup(daily="daily", timezone="Asia/Kathmandu")), NOW)
    assert existing(bench, "hourly") == expected(found, "UTC", "hourly", NOW)
    assert existing(bench, "daily") == expected(found, "Asia/Kathmandu", "daily", NOW)
    assert "p50" not in bench.database["hourly"].find_one()["p"]  # type: ignore[index]


def test_series_of_every_type_stay_apart(bench: Bench) -> None:
    kinds: list[Any] = [1, True, "1", 1.5, {"a": 1}, bson.ObjectId(), FIRST, 2**40]
    bench.database["ticks"].insert_many(
        [{**tick(n, "", FIRST), "symbol": kind} for n, kind in enumerate(kinds)]
    )
    bench.database["ticks"].insert_one({**tick(99, "", FIRST), "symbol": 1.0})
    policy = policy_of()
    assert wrote(bench.roll_up(policy, NOW)) == (len(kinds), len(kinds))
    assert {one["symbol"] for one in bench.database["daily"].find({"count": 2})} == {1}
    assert wrote(bench.roll_up(policy, NOW, since=FIRST)) == (0, 0)


def test_indexes_are_made_and_follow_the_series_fields(bench: Bench) -> None:
    bench.database["ticks"].insert_many([{**one, "venue": one["_id"] % 2} for one in ticks(100)])
    bench.roll_up(policy_of(), NOW)
    indexes = bench.database["hourly"].index_information()
    assert indexes["bucketwise_series"]["key"] == [("symbol", 1), ("start", 1)]
    assert indexes["bucketwise_series"]["unique"] is True
    assert indexes["bucketwise_start"]["key"] == [("start", 1)]
    before = bench.database["hourly"].count_documents({})
    report = bench.roll_up(policy_of(series_fields=("symbol", "venue")), NOW)
    assert report.hourly.deleted == before, "summaries of the series before are wrong now"
    indexes = bench.database["hourly"].index_information()
    assert indexes["bucketwise_series"]["key"] == [("symbol", 1), ("venue", 1), ("start", 1)]
    assert bench.database["hourly"].count_documents({"venue": {"$exists": False}}) == 0


def test_documents_that_are_no_summaries_stay(bench: Bench) -> None:
    bench.database["ticks"].insert_many(ticks(20))
    mine = {"_id": "mine", "start": FIRST, "end": FIRST}
    bench.database["hourly"].insert_one(mine)
    bench.roll_up(policy_of(), NOW)
    bench.roll_up(policy_of(), NOW, since=FIRST)
    assert bench.database["hourly"].find_one({"_id": "mine"}) == mine


def test_a_document_in_the_way_is_told(bench: Bench) -> None:
    bench.database["ticks"].insert_many([tick(1, "A", FIRST)])
    in_the_way = {"symbol": "A", "start": FIRST.replace(minute=0)}
    bench.database["hourly"].insert_one({"_id": 1, **in_the_way})
    with pytest.raises(BucketwiseError, match=r"policy ticks: can't write summaries to hourly: .*E11000"):
        bench.roll_up(policy_of(), NOW)
    bench.database["hourly"].drop()
    bench.database["hourly"].insert_many([{"_id": 1, **in_the_way}, {"_id": 2, **in_the_way}])
    with pytest.raises(
        BucketwiseError, match=r"can't make the indexes of hourly on \(symbol, start\).*Remove it"
    ):
        bench.roll_up(policy_of(), NOW)


def test_a_series_field_that_is_left_out_wants_new_collections(bench: Bench) -> None:
    """Two series of a window become one: their summaries would have one key."""
    bench.database["ticks"].insert_many([{**tick(i, "A", FIRST), "venue": i} for i in (1, 2)])
    bench.roll_up(policy_of(series_fields=("symbol", "venue")), NOW)
    with pytest.raises(BucketwiseError, match="Did the policy have further series fields"):
        bench.roll_up(policy_of(), NOW)
    bench.roll_up(policy_of(rollup={"hourly": "anew", "daily": "anew_daily"}), NOW)
    assert [it["count"] for it in bench.database["anew"].find()] == [2]


def test_spans_that_are_left_are_kept_as_days_however_often_they_are_noted(bench: Bench) -> None:
    """As by an adoption of many commits that is cut off, and begun again."""
    day, policy = timedelta(days=1), policy_of()
    begin = to_ms(FIRST.replace(hour=0, minute=0, second=0, microsecond=0))
    spans = [(begin + to_day + 1, begin + to_day + 2) for to_day in range(0, 86_400_000 * 400, 86_400_000)]
    note_left(bench.database, policy, spans)
    assert bench.database["bucketwise_progress"].find_one({"_id": "ticks"}) is None  # all is to come
    bench.database["ticks"].insert_many(ticks(20))
    bench.roll_up(policy, NOW)
    for some in (spans[:200], spans[:300], spans, [], spans[3:4]):
        note_left(bench.database, policy, some)
    assert load(bench.database, policy).left == [(begin, begin + 400 * day // timedelta(milliseconds=1))]
    bench.roll_up(policy, NOW)
    assert load(bench.database, policy).left == []


def test_what_holds_keep_is_noted_by_window_and_series(bench: Bench) -> None:
    windows = {HeldWindow(at, at + 3_600_000, b"a") for at in range(0, 5000 * 3_600_000, 7_200_000)}
    for held in (HeldWindows(windows, ["1"]), HeldWindows(frozenset(), ["2"])):
        store_held(bench.database, policy_of(), held)
        assert load(bench.database, policy_of()).held == held
