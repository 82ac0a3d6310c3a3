"""`bucketwise summarize` as a process: answers, what they cover, and what is refused."""

from __future__ import annotations

import statistics
from datetime import timedelta

import pytest

from tests.jobs.command import CommandLine
from tests.jobs.place import POLICIES, START, Place

DAY = ("--since", "2018-06-30", "--until", "2018-07-01")
#: The prices of one minute of the place's ticks.
PRICES = [50 + second / 8 for second in range(60)]


def with_percentiles(place: Place) -> None:
    place.write_config(
        POLICIES.replace('daily = "ticks_daily"', 'daily = "ticks_daily"\npercentiles = [50]', 1)
    )


def test_it_answers_from_summaries_when_all_else_has_gone(place: Place) -> None:
    with_percentiles(place)
    assert place("run").code == 0
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


def test_people_see_a_table_and_what_it_rests_on(place: Place) -> None:
    with_percentiles(place)
    assert place("run").code == 0
    span = ("--since", "2018-06-29T23", "--until", "2018-07-01T01:00+00:00")
    ran = place("summarize", "-p", "ticks", *span, "--series", "symbol=MDB", "--percentiles", "75")
    assert ran.code == 0
    (row,) = [line.split() for line in ran.out.splitlines() if "symbol=MDB" in line]
    assert row[:6] == ["symbol=MDB", "p", "10,800", "50", "53.6875", "57.375"]
    assert "2018-06-29T23:00:00Z to 2018-07-01T01:00:00Z, from 1 days and 2 hours" in ran.out
    assert "incomplete" not in ran.out
    together = place("summarize", "-p", "ticks", *DAY, "--by", "none")
    assert [line.split()[:2] for line in together.out.splitlines() if "10,800" in line] == [["all", "p"]]


def test_an_incomplete_answer_says_so(place: Place) -> None:
    early = "2018-06-30T02:30:00Z"
    assert place("rollup", now=early).code == 0
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
    assert place("run", now=late).code == 0
    hour = ("--since", "2018-06-30T01:00Z", "--until", "2018-06-30T02:00Z")
    ran = place("summarize", "-p", "ticks", *hour, "--json", now=late)
    assert ran.code == 3
    assert "past its retention" in ran.policy("ticks")["missing"][0]["reason"]
    assert ran.policy("ticks")["series"] == []
    assert place("summarize", "-p", "ticks", *DAY, now=late).code == 0


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
    place: Place, bucketwise: CommandLine, arguments: list[str], fragments: list[str]
) -> None:
    ran = bucketwise("summarize", "-p", "ticks", *arguments, cwd=place.folder, MONGODB_URI=place.uri)
    assert (ran.code, ran.connected) == (2, [])
    for fragment in fragments:
        assert fragment in ran.err


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
    place: Place, arguments: list[str], fragments: list[str]
) -> None:
    ran = place("summarize", "-p", "ticks", *arguments)
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
