"""Summaries of other statistics beside those that are made now."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from bucketwise.config.models import make_policy
from bucketwise.config.policies import Policy
from bucketwise.rollups.answers import Question, summarize
from bucketwise.rollups.rolling.plan import RollupReport
from tests.rollups.conftest import Bench

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
