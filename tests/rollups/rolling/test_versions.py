"""Summaries of the form before the slim one, and of other statistics, beside those that are made now."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import bson

from bucketwise.config.models import make_policy
from bucketwise.config.policies import Policy
from bucketwise.rollups.answers import Question, longest_holes, summarize
from bucketwise.rollups.rolling.plan import RollupReport
from tests.rollups.conftest import Bench
from tests.rollups.version_one import age

Document = dict[str, Any]
FIRST = datetime(2021, 3, 26, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
NOW = FIRST + 3 * DAY
COLLECTIONS = ("hourly", "daily")


def policy_of(*names: str, **field: Any) -> Policy:
    return make_policy(
        name="ticks",
        collection="ticks",
        model="reading",
        time_field="d",
        series_fields=("symbol",),
        value_fields=("p", "q"),
        values={"q": field} if field else {},
        expected_interval="10m",
        rollup={"hourly": "hourly", "daily": "daily", "percentiles": (50, 99.9), "statistics": names},
    )


def ticks() -> list[Document]:
    return [
        {
            "_id": at,
            "symbol": f"S{at % 2}",
            "d": FIRST + at * timedelta(minutes=7),
            "p": at % 11 / 8 - 0.5,
            "q": float(at),
        }
        for at in range(300)
        if not 100 < at < 130
    ]


def late(minutes: int) -> Document:
    return {
        "_id": f"late {minutes}",
        "symbol": "S0",
        "d": FIRST + timedelta(minutes=minutes),
        "p": 7.25,
        "q": 1.0,
    }


def written(report: RollupReport) -> tuple[int, int]:
    return report.hourly.written, report.daily.written


def versions(bench: Bench, collection: str) -> dict[datetime, set[int]]:
    found: dict[datetime, set[int]] = {}
    for summary in bench.database[collection].find():
        found.setdefault(summary["start"], set()).add(summary["p"]["state"][0])
    return found


def counters(bench: Bench) -> Policy:
    """A policy with steps, rolled up, whose summaries are as an earlier release wrote them."""
    policy = policy_of(kind="counter", max_gap="1h")
    bench.database["ticks"].insert_many(ticks())
    bench.roll_up(policy, NOW)
    age(bench.database, policy, COLLECTIONS)
    return policy


def test_older_summaries_stay_as_they_are_until_their_readings_change(bench: Bench) -> None:
    policy = counters(bench)
    before = bench.raw("hourly") | bench.raw("daily")
    again = bench.roll_up(policy, NOW, since=FIRST, until=NOW)
    assert (written(again), again.outdated) == ((0, 0), 0)
    assert again.hourly.unchanged == len(bench.raw("hourly"))
    assert bench.raw("hourly") | bench.raw("daily") == before
    bench.database["ticks"].insert_one(late(5))
    report = bench.roll_up(policy, NOW)
    assert written(report) == (1, 1)
    assert versions(bench, "hourly")[FIRST] == {1, 2}, "that of the other series stays"
    assert versions(bench, "hourly")[FIRST + HOUR] == {1}


def test_a_day_of_older_hours_is_that_of_its_readings(bench: Bench) -> None:
    policy = counters(bench)
    bench.database["ticks"].insert_many([late(5), late(1500)])
    bench.roll_up(policy, NOW)
    mixed = summarize(bench.database, policy, Question(FIRST, NOW))
    days = {key: it for key, it in bench.raw("daily").items() if bson.decode(it)["p"]["state"][0] == 2}
    assert len(days) == 2, "those with late readings"
    for name in COLLECTIONS:
        bench.database[name].drop()
    bench.roll_up(policy, NOW, since=FIRST, until=NOW)
    assert summarize(bench.database, policy, Question(FIRST, NOW)).states == mixed.states
    anew = bench.raw("daily")
    assert {key: anew[key] for key in days} == days
    hours = Question(FIRST, FIRST + 20 * HOUR, percentiles=[12.5])
    assert summarize(bench.database, policy, hours).states
    assert longest_holes(bench.database, policy, 9)[0]


def test_older_summaries_stay_where_their_readings_are_gone(bench: Bench) -> None:
    policy = counters(bench)
    before = bench.raw("hourly")
    bench.database["ticks"].delete_many({"d": {"$lt": FIRST + DAY}})
    report = bench.roll_up(policy, NOW + 30 * DAY)
    assert (report.outdated, report.hourly.kept) == (0, 42)
    assert {key: it for key, it in bench.raw("hourly").items() if key in before} == before


def test_statistics_are_left_out_and_come_back_where_windows_change(bench: Bench) -> None:
    few, whole = policy_of("count", "avg"), policy_of()
    bench.database["ticks"].insert_many(ticks())
    bench.roll_up(whole, NOW)
    before = bench.raw("hourly") | bench.raw("daily")
    assert written(bench.roll_up(few, NOW, since=FIRST, until=NOW)) == (0, 0)
    assert bench.raw("hourly") | bench.raw("daily") == before, "what is there stays"
    bench.database["ticks"].insert_one(late(5))
    assert written(bench.roll_up(few, NOW)) == (1, 1)
    hour = bench.database["hourly"].find_one({"start": FIRST, "symbol": "S0"})
    assert hour is not None
    assert list(hour["p"]) == ["count", "avg", "state"]
    day = Question(FIRST, FIRST + DAY)
    told = summarize(bench.database, few, day)
    values = told.statistics(told.states[0][1])["values"]["p"]
    assert values["avg"] is not None
    assert {key for key, it in values.items() if it is None} == set(values) - {"count", "avg"}
    # What was left out of one hour is unknown of any range that it is in, until it is made again.
    told = summarize(bench.database, whole, day)
    values = told.statistics(told.states[0][1])["values"]["p"]
    assert values["sum"] is not None
    assert (values["p50"], values["stddev"], values["min"]) == (None, None, None)
    assert written(bench.roll_up(whole, NOW, since=FIRST, until=NOW)) == (1, 1)
    made_again = bench.raw("hourly") | bench.raw("daily")
    for name in COLLECTIONS:
        bench.database[name].drop()
    bench.roll_up(whole, NOW, since=FIRST, until=NOW)
    assert bench.raw("hourly") | bench.raw("daily") == made_again


def test_summaries_whose_readings_are_gone_lack_what_is_added(bench: Bench) -> None:
    """They stay, and the report counts them."""
    few, whole = policy_of("avg"), policy_of()
    bench.database["ticks"].insert_many(ticks())
    bench.roll_up(few, NOW)
    before = bench.raw("hourly")
    bench.database["ticks"].delete_many({"d": {"$lt": FIRST + DAY}})
    late = NOW + 30 * DAY
    assert bench.roll_up(few, late).outdated == 0
    report = bench.roll_up(whole, late, since=FIRST, until=FIRST + DAY)
    assert (report.outdated, report.hourly.kept, report.hourly.written) == (42, 42, 0)
    assert {key: it for key, it in bench.raw("hourly").items() if key in before} == before
