"""`bucketwise summarize` as a process: answers, what they cover, and what is refused."""

from __future__ import annotations

import math
import shutil
import statistics
from datetime import UTC, datetime, timedelta

import pytest

from tests.jobs.command import CommandLine
from tests.jobs.place import POLICIES, START, Place
from tests.jobs.states import after

DAY = ("--since", "2018-06-30", "--until", "2018-07-01")
#: The prices of one minute of the place's ticks.
PRICES = [50 + second / 8 for second in range(60)]
DAY_LONG = timedelta(days=1)
MONTHLY = """
[policies.iot]
collection = "iot"
model = "reading"
time_field = "at"
series_fields = ["sensor"]
value_fields = ["t"]
[policies.iot.rollup]
hourly = "iot_hourly"
daily = "iot_daily"
timezone = "Europe/Berlin"
percentiles = [50]
[policies.iot.archive]
after = "30d"
to = "offline"
"""


def with_percentiles(place: Place) -> None:
    place.write_config(
        POLICIES.replace('daily = "ticks_daily"', 'daily = "ticks_daily"\npercentiles = [50]', 1)
    )


@pytest.mark.proof
@after(with_percentiles, "run -p ticks")
def test_it_answers_from_summaries_when_all_else_has_gone(place: Place) -> None:
    place.database.drop_collection("ticks")
    ran = place("summarize", "-p", "ticks", *DAY, "--percentiles", "0,50,99.9", "--json")
    assert ran.code == 0
    body = ran.policy("ticks")
    assert (body["since"], body["until"]) == ("2018-06-30T00:00:00Z", "2018-07-01T00:00:00Z")
    assert body["windows"] == {"daily": 1, "hourly": 0}
    assert (body["complete"], body["missing"], body["summaries"]) == (True, [], 1)
    (one,) = body["series"]
    assert (one["series"], one["count"]) == ({"symbol": "MDB"}, 180 * 60)
    price = one["values"]["p"]
    assert (price["min"], price["max"]) == (min(PRICES), max(PRICES))
    assert price["avg"] == pytest.approx(statistics.fmean(PRICES), rel=1e-15)
    assert price["stddev"] == pytest.approx(statistics.pstdev(PRICES), rel=1e-12)
    assert (price["first"], price["first_at"]) == (50.0, "2018-06-30T00:00:00Z")
    assert (price["last"], price["last_at"]) == (50 + 59 / 8, "2018-06-30T02:59:59Z")
    assert price["p0"] == 50.0
    assert price["p50"] == pytest.approx(sorted(PRICES)[29], rel=0.01)
    assert price["p99_9"] == pytest.approx(50 + 59 / 8, rel=0.01)


@pytest.mark.proof
def test_a_month_is_answered_from_days_and_hours_alone(place: Place) -> None:
    """A month of a zone whose clocks change in it, and some hours: nothing but the summaries is left."""
    place.write_config(MONTHLY)
    since, until = datetime(2021, 2, 28, 20, tzinfo=UTC), datetime(2021, 4, 1, 1, tzinfo=UTC)
    times = [since - DAY_LONG + count * timedelta(minutes=20) for count in range(34 * 72)]
    temperatures = {at: 20 + (count * 37 % 101) / 8 for count, at in enumerate(times)}
    place.database.iot.drop()
    place.database.iot.insert_many({"sensor": 7, "at": at, "t": it} for at, it in temperatures.items())
    assert place("run", "-p", "iot", now="2021-06-01").code == 0
    assert place.database.iot.count_documents({}) == 0
    for name in set(place.database.list_collection_names()) - {
        "iot_hourly",
        "iot_daily",
        "bucketwise_progress",
    }:
        place.database.drop_collection(name)
    shutil.rmtree(place.folder / "store")
    span = ("--since", since.isoformat(), "--until", until.isoformat(), "--percentiles", "50")
    ran = place("summarize", "-p", "iot", *span, "--json", now="2021-06-01")
    assert ran.code == 0
    body = ran.policy("iot")
    # In Berlin March begins at 23:00 UTC of the day before, and ends at 22:00.
    assert (body["windows"], body["complete"]) == ({"daily": 31, "hourly": 3 + 3}, True)
    values = [it for at, it in temperatures.items() if since <= at < until]
    (one,) = body["series"]
    told = one["values"]["t"]
    assert (one["count"], told["min"], told["max"]) == (len(values), min(values), max(values))
    assert told["sum"] == pytest.approx(math.fsum(values), rel=1e-12)
    assert told["stddev"] == pytest.approx(statistics.pstdev(values), rel=1e-12)
    assert (told["first"], told["last"]) == (values[0], values[-1])
    assert told["p50"] == pytest.approx(sorted(values)[math.ceil(len(values) / 2) - 1], rel=0.01)


@after(with_percentiles, "run -p ticks")
def test_people_see_a_table_and_what_it_rests_on(place: Place) -> None:
    span = ("--since", "2018-06-29T23", "--until", "2018-07-01T01:00+00:00")
    ran = place("summarize", "-p", "ticks", *span, "--series", "symbol=MDB", "--percentiles", "75")
    assert ran.code == 0
    (row,) = [line.split() for line in ran.out.splitlines() if "symbol=MDB" in line]
    assert row[:6] == ["symbol=MDB", "p", "10,800", "50", "53.6875", "57.375"]
    assert "2018-06-29T23:00:00Z to 2018-07-01T01:00:00Z, from 1 day and 2 hours" in ran.out
    assert "incomplete" not in ran.out
    together = place("summarize", "-p", "ticks", *DAY, "--by", "none")
    assert [line.split()[:2] for line in together.out.splitlines() if "10,800" in line] == [["all", "p"]]


def test_an_incomplete_answer_says_so(place: Place) -> None:
    early = "2018-06-30T02:30:00Z"
    assert place("rollup", "-p", "ticks", now=early).code == 0
    ran = place("summarize", "-p", "ticks", *DAY, "--json", now=early)
    assert ran.code == 3
    body = ran.policy("ticks")
    assert body["complete"] is False
    assert body["missing"] == [
        {"since": "2018-06-30T02:00:00Z", "until": "2018-07-01T00:00:00Z", "reason": "not rolled up yet"}
    ]
    assert body["rolled_up_through"] == "2018-06-30T00:00:00Z"  # the day's; the hours have come further
    assert [one["count"] for one in body["series"]] == [2 * 3600]
    ran = place("summarize", "-p", "ticks", *DAY, now=early)
    assert ran.code == 3
    assert "incomplete: 2018-06-30T02:00:00Z to 2018-07-01T00:00:00Z: not rolled up yet" in ran.out


def test_what_is_past_retention_is_told(place: Place) -> None:
    late = (START + timedelta(days=400)).isoformat()
    assert place("run", "-p", "ticks", now=late).code == 0
    hour = ("--since", "2018-06-30T01:00Z", "--until", "2018-06-30T02:00Z")
    ran = place("summarize", "-p", "ticks", *hour, "--json", now=late)
    assert ran.code == 3
    assert "past its retention" in ran.policy("ticks")["missing"][0]["reason"]
    assert ran.policy("ticks")["series"] == []
    assert place("summarize", "-p", "ticks", *DAY, now=late).code == 0


@pytest.mark.in_turn(3)
@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (["--until", "2018-07-01"], ["--since"]),
        (["--since", "2018-06-30"], ["--until"]),
        ([*DAY[:2], "--until", "2018-06-30"], ["not before"]),
        ([*DAY, "--percentiles", "50;99"], ["--percentiles 50;99", "50,99.9"]),
        ([*DAY, "--by", "hour"], ["--by", "series", "none"]),
        ([*DAY, "--series", "MDB"], ["--series MDB", "FIELD=VALUE"]),
    ],
    ids=" ".join,
)
def test_a_bad_question_is_refused_before_anything(
    untouched: Place, bucketwise: CommandLine, arguments: list[str], fragments: list[str]
) -> None:
    uri = untouched.uri
    ran = bucketwise("summarize", "-p", "ticks", *arguments, cwd=untouched.folder, MONGODB_URI=uri)
    assert (ran.code, ran.connected) == (2, [])
    for fragment in fragments:
        assert fragment in ran.err


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (
            [*DAY[:3], "2018-06-30T12:20"],
            ["no whole windows", "hours: from", "2018-06-30T13:00:00Z", "days in UTC"],
        ),
        ([*DAY, "--percentiles", "50"], ["keeps no percentiles", "percentiles = [50]"]),
        ([*DAY, "--series", "symbl=MDB"], ["symbl", "it has symbol"]),
    ],
    ids=" ".join,
)
def test_a_question_that_has_no_answer_is_refused(
    untouched: Place, arguments: list[str], fragments: list[str]
) -> None:
    ran = untouched("summarize", "-p", "ticks", *arguments)
    assert ran.code == 2
    for fragment in fragments:
        assert fragment in ran.err
    assert "Traceback" not in ran.err


def test_it_wants_one_policy_and_no_lease(place: Place) -> None:
    ran = place("summarize", *DAY)
    assert ran.code == 2
    assert "summarize works on one policy" in ran.err
    before = place.everything()
    assert place("summarize", "-p", "iot", *DAY).code == 3
    assert place.everything() == before


@after("run -p ticks")
def test_an_even_grid(place: Place) -> None:
    ran = place("summarize", "-p", "ticks", *DAY, "--every", "2h", "--json")
    assert ran.code == 0
    (one,) = ran.policy("ticks")["series"]
    assert [(it["start"], it["count"], it["filled"]) for it in one["points"]] == [
        ("2018-06-30T00:00:00Z", 7200, False),
        ("2018-06-30T02:00:00Z", 3600, False),
    ]
    shown = place("summarize", "-p", "ticks", *DAY, "--every", "12h", "--fill", "previous")
    filled = [line for line in shown.out.splitlines() if "yes" in line]
    assert (shown.code, len(filled)) == (0, 1)
    assert "2018-06-30" in filled[0] and "57.375" in filled[0]
    refused = {
        ("--every", "15m"): "hourly",
        ("--fill", "null"): "--every",
        ("--every", "soon"): "not a duration",
        ("--every", "0m"): "write a length",
        ("--every", "forever"): "write a length",
        ("--every", "1h", "--fill", "spline"): "--fill",
        ("--every", "1h", "--fill", "linear", "--by", "none"): "leave out --by none",
        ("--every", "9h"): "--until",
    }
    for options, fragment in refused.items():
        ran = place("summarize", "-p", "ticks", *DAY, *options)
        assert (ran.code, fragment in ran.err) == (2, True), ran
