"""Summaries that a mistake in `retain` takes, or that somebody removes: noticed, and put right."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from bucketwise.jobs.core.clock import iso
from tests.jobs.place import NOW, POLICIES, START, Place
from tests.jobs.states import after

Document = dict[str, Any]
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
LATER = START + 400 * DAY
SHORT, LONG = (POLICIES.replace('"365d"', it) for it in ('"31d"', '"31y"'))
RANGE = ("--since", "2018-06-30", "--until", "2018-06-30T03:00")


def step(place: Place, name: str, now: str, verb: str = "run", code: int = 0) -> Document:
    ran = place(verb, "-p", "ticks", "--json", now=now)
    assert ran.code == code, ran
    return dict(ran.policy("ticks")[name])


def summarized(place: Place, now: str = NOW) -> tuple[bool, list[str], int]:
    """Whether three hours are answered whole, what is missing, and how many readings were counted."""
    body = place("summarize", "-p", "ticks", "--json", *RANGE, now=now).policy("ticks")
    readings = sum(it["count"] for it in body["series"])
    return body["complete"], [it["reason"] for it in body["missing"]], readings


def findings(place: Place, now: str = NOW) -> list[tuple[str, str]]:
    found = place("audit", "-p", "ticks", "--json", now=now).policy("ticks")["findings"]
    return [(it["code"], it["severity"]) for it in found]


@pytest.mark.proof
@after("run")
def test_a_retention_that_is_a_typo_takes_nothing_before_its_grace(place: Place) -> None:
    hours = list(place.database.ticks_hourly.find())
    place.write_config(SHORT)
    for verb in ("plan", "run"):
        body = step(place, "expiry", NOW, verb)
        assert (body["hourly"], body["waiting"]) == (0, {"hourly": 3, "daily": 0})
    assert "3 hourly summaries are past their retain" in place("run", "-p", "ticks").out
    assert summarized(place) == (True, [], 10_800)
    assert findings(place) == []
    place.write_config(LONG)
    assert step(place, "expiry", iso(LATER))["waiting"]["hourly"] == 0
    assert (list(place.database.ticks_hourly.find()), summarized(place)) == (hours, (True, [], 10_800))


@pytest.mark.proof
@after("run")
def test_max_delete_stops_a_run_before_it_removes_a_summary(place: Place) -> None:
    place.write_config(SHORT.replace('to = "offline"', 'to = "offline"\nmax_delete = "50%"'))
    step(place, "expiry", NOW)
    due = "2018-09-08T00:00:00Z"
    body = step(place, "expiry", due, "plan", code=5)
    assert [(it["due"], it["of"], it["most"]) for it in body["limits"]] == [(3, 3, 1)]
    ran = place("run", "-p", "ticks", "--json", now=due)
    assert (ran.code, place.database.ticks_hourly.count_documents({})) == (5, 3)
    assert "would remove 3 of the 3 summaries of ticks_hourly" in ran.policy("ticks")["error"]
    assert place("run", "-p", "ticks", "--allow-large", now=due).code == 0
    assert place.database.ticks_hourly.count_documents({}) == 0


@pytest.mark.proof
def test_undelete_lifts_the_tombstones_of_summaries(place: Place) -> None:
    place.write_config(SHORT)
    place("run", "-p", "ticks", now="2018-07-10T00:00:00Z")
    step(place, "expiry", NOW)
    ran = place("undelete", "-p", "ticks", "--json", now=NOW).policy("ticks")
    assert (ran["days"], ran["summaries"], ran["until"]) == (0, 3, "2018-10-01T00:00:00Z")
    assert "tombstones" not in place("undelete", "-p", "ticks", now=NOW).out
    assert step(place, "expiry", "2018-10-07T23:00:00Z")["waiting"]["hourly"] == 3
    assert findings(place, "2018-10-07T23:00:00Z") == []
    assert step(place, "expiry", "2018-10-08T00:00:00Z")["hourly"] == 3


@pytest.mark.proof
@after("run")
def test_a_longer_retention_makes_again_what_has_gone(place: Place) -> None:
    """From the archive; and not where that has ended as well."""
    hours = list(place.database.ticks_hourly.find())
    place.write_config(SHORT.replace('"31d"', '"31d"\ngrace = "0s"'))
    assert step(place, "expiry", NOW)["hourly"] == 3
    assert summarized(place) == (False, ["past its retention: the summaries are gone"], 0)
    place.write_config(LONG)
    assert step(place, "rollup", NOW, "plan")["hourly"]["written"] == 3
    assert step(place, "rollup", NOW)["hourly"]["written"] == 3
    assert (list(place.database.ticks_hourly.find()), summarized(place)) == (hours, (True, [], 10_800))
    assert step(place, "rollup", NOW)["hourly"] == {"written": 0, "unchanged": 0}
    assert findings(place) == []


@pytest.mark.proof
@after("run")
def test_summaries_that_somebody_removed_are_noticed_and_made_again(place: Place) -> None:
    hours, days = (list(place.database[it].find()) for it in ("ticks_hourly", "ticks_daily"))
    place.database.ticks_daily.drop()
    place.database.ticks_hourly.delete_one({"start": START})
    reason = "1 hourly summaries were removed by somebody: a run makes again what readings give"
    assert summarized(place) == (False, [reason], 7_200)
    assert {("summaries-missing", "error")} <= set(findings(place))
    for verb, lost in (("plan", None), ("run", 0)):
        missing = step(place, "rollup", NOW, verb)["missing"]
        assert [(it["level"], it["missing"], it["lost"]) for it in missing] == [
            ("hourly", 1, lost),
            ("daily", 1, lost),
        ]
        assert {(it["since"], it["until"]) for it in missing} == {
            ("2018-06-01T00:00:00Z", "2018-07-01T00:00:00Z")
        }
    assert list(place.database.ticks_hourly.find().sort("start")) == hours
    assert list(place.database.ticks_daily.find()) == days
    assert (summarized(place), findings(place)) == ((True, [], 10_800), [])
    assert "missing" not in step(place, "rollup", NOW)


ENDED = POLICIES.replace('hourly = "365d"', 'archive = "31d"\narchive_grace = "1d"')


#: Archived; under a tombstone; gone.
RUNS = "run -p ticks", *(f"run -p ticks --now 2018-09-0{day}T00:00:00Z" for day in (3, 5))


def ended(place: Place) -> None:
    place.write_config(ENDED)


@pytest.mark.proof
@after(ended, *RUNS)
def test_what_cannot_be_made_again_is_named(place: Place) -> None:
    """The archive has ended. A backup has the summaries."""
    hours = list(place.database.ticks_hourly.find())
    assert len(hours) == 3
    place.database.ticks_hourly.delete_many({})
    (missing,) = step(place, "rollup", "2018-09-05T00:00:00Z", code=3)["missing"]
    assert (missing["missing"], missing["lost"]) == (3, 3)
    reason = "3 hourly summaries were removed by somebody: their readings are gone"
    for _ in range(2):
        assert summarized(place) == (False, [reason], 0)
        assert findings(place, "2018-09-05T00:00:00Z") == [("summaries-lost", "warning")]
        assert "missing" not in step(place, "rollup", "2018-09-05T00:00:00Z")
    place.database.ticks_hourly.insert_many(hours)
    step(place, "rollup", "2018-09-05T00:00:00Z")
    assert (summarized(place), findings(place, "2018-09-05T00:00:00Z")) == ((True, [], 10_800), [])


@pytest.mark.proof
def test_what_is_lost_is_so_until_it_is_made_again_or_past_its_time(place: Place) -> None:
    """Its readings come back from a backup: the summaries of one hour of three. Then the month expires."""
    ends = 'hourly = "100d"\ngrace = "0s"\narchive = "31d"\narchive_grace = "1d"'
    place.write_config(POLICIES.replace('hourly = "365d"', ends))
    readings = list(place.database.ticks.find({"d": {"$lt": START + timedelta(hours=1)}}))
    now = "2018-09-05T00:00:00Z"
    for at in (NOW, "2018-09-03T00:00:00Z", now):
        place("run", "-p", "ticks", now=at)
    place.database.ticks_hourly.delete_many({})
    assert step(place, "rollup", now, code=3)["missing"][0]["lost"] == 3
    place.database.ticks.insert_many(readings)
    place("rollup", "-p", "ticks", now=now)
    reason = "2 hourly summaries were removed by somebody: their readings are gone"
    assert summarized(place) == (False, [reason], 3_600)
    assert ("summaries-lost", "warning") in findings(place, now)
    later = "2018-12-05T00:00:00Z"
    assert step(place, "expiry", later)["hourly"] == 1
    assert "summaries-lost" not in dict(findings(place, later))


@pytest.mark.proof
@after(ended, *RUNS)
def test_the_only_witness_is_not_replaced_by_less(place: Place) -> None:
    """The archive has ended. A reading comes late, the range is asked for, and settings change."""
    now = "2018-09-05T00:00:00Z"
    hours = list(place.database.ticks_hourly.find())
    place.database.ticks.insert_one({"symbol": "MDB", "d": START, "p": {"0": 1.5, "1": 2.5}})
    assert step(place, "rollup", now, code=3)["missed"] == 1  # its hour; the day is made of hours that stay
    ran = place("rollup", "-p", "ticks", "--json", "--since", "2018-06-30", "--until", "2018-07-01", now=now)
    assert (ran.code, ran.policy("ticks")["missed"]) == (3, 1)
    place.write_config(ENDED.replace('"ticks_daily"', '"ticks_daily"\npercentiles = [50]'))
    assert step(place, "rollup", now, code=3)["outdated"] == 3  # hours; the day is what they give
    assert list(place.database.ticks_hourly.find()) == hours
    assert ("summaries-outdated", "warning") in findings(place, now)


@pytest.mark.proof
def test_readings_that_somebody_took_out_are_named(place: Place) -> None:
    """Nothing tells of the delete where a scan looks for late readings, and it looks no further back."""
    place.write_config(POLICIES.replace('daily = "ticks_daily"', 'daily = "ticks_daily"\nlate_data = "scan"'))
    assert place("rollup", "-p", "ticks", now="2018-07-10T00:00:00Z").code == 0
    place.database.ticks.delete_many({"d": {"$gte": START + HOUR, "$lt": START + 2 * HOUR}})
    ran = place("run", "-p", "ticks")
    assert (ran.code, place.database.ticks.count_documents({})) == (3, 0)
    assert "1 summaries count readings that are neither live nor archived" in " ".join(ran.out.split())
    assert summarized(place) == (True, [], 10_800)
    assert place("run", "-p", "ticks").code == 0
    assert findings(place) == [("readings-gone", "error")]


@pytest.mark.proof
def test_a_step_from_a_reading_whose_summary_has_gone_stays(place: Place) -> None:
    """Neither an audit nor a roll-up of the first hours that are left takes it for none."""
    kept = '[policies.iot.retain]\nhourly = "100d"\ngrace = "0s"\n[policies.iot.values.t]\nkind = "counter"\n'
    place.write_config(POLICIES + kept)
    place.database.iot.delete_many({})
    hours = [START + timedelta(hours=hour, minutes=5) for hour in range(72)]
    place.database.iot.insert_many({"sensor": 7, "at": at, "t": float(n)} for n, at in enumerate(hours))
    assert place("run", "-p", "iot").code == 0
    for minutes in (0, 10):
        later = iso(START + timedelta(days=101, hours=5, minutes=minutes))
        assert place("run", "-p", "iot", now=later).code == 0
    before = list(place.database.iot_hourly.find(sort=[("start", 1)]))
    assert len(before) < len(hours)
    assert before[0]["t"]["increase"] == 1.0
    assert place("audit", "-p", "iot", now=later).code == 0
    within = ("--since", iso(before[0]["start"]), "--until", iso(before[2]["start"]))
    assert place("rollup", "-p", "iot", *within, now=later).code == 0
    assert list(place.database.iot_hourly.find(sort=[("start", 1)])) == before
