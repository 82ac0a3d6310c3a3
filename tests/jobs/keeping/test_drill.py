"""Restore drills from the command line."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.jobs.place import POLICIES, START, Place
from tests.jobs.states import after

DRILLED = '[drill]\nevery = "30d"\n'


def not_drilled(place: Place, now: str) -> list[dict[str, Any]]:
    """The findings of an audit, which has no others."""
    ran = place("audit", "--json", now=now)
    assert ran.code == 0, ran
    found = [it for result in ran.json["policies"] for it in result["findings"]]
    assert {it["code"] for it in found} <= {"not-drilled"}
    return found


@after("run")
def test_a_drill_of_what_is_archived(place: Place) -> None:
    before = set(place.database.list_collection_names())
    found = place("drill", "--json", "-p", "ticks", "--days", "9").policy("ticks")
    assert found["buckets"] == found["equal"] > 0
    assert (found["exit_code"], found["differing"], found["summaries_differing"]) == (0, 0, 0)
    assert set(place.database.list_collection_names()) == before
    shown = place("coverage", "--json", "-p", "ticks").policy("ticks")
    assert {it["drilled_at"] is None for day in shown["days"] for it in day["commits"]} == {False}


@after("run")
def test_summaries_that_differ_are_told(place: Place) -> None:
    place.database["ticks_hourly"].update_one({}, {"$set": {"count": 4711}})
    ran = place("drill", "--json", "-p", "ticks", "--days", "9")
    found = ran.policy("ticks")
    assert (ran.code, found["differing"], found["summaries_differing"]) == (3, 0, 1)
    assert (
        place("coverage", "--json", "-p", "ticks").policy("ticks")["days"][0]["commits"][0]["drilled_at"]
        is None
    )


def test_no_days_are_refused(place: Place) -> None:
    ran = place("drill", "--days", "0")
    assert ran.code == 2
    assert "--days" in ran.err


@pytest.mark.proof
def test_days_that_no_drill_has_proven(place: Place) -> None:
    """Counted from the commit on, then from the last drill; a finding a policy, whatever the number."""
    place.write_config(DRILLED + POLICIES)
    days = [START + timedelta(days=it) for it in range(1, 4)]
    place.database.ticks.insert_many({"symbol": "MDB", "d": at, "p": {"0": 1.5}} for at in days)
    place("run", now="2018-09-01")
    assert not_drilled(place, "2018-09-30") == []
    found, online = not_drilled(place, "2018-10-02")
    assert (online["policy"], online["place"]) == ("iot", "iot_archive")
    assert (found["code"], found["severity"], found["policy"]) == ("not-drilled", "warning", "ticks")
    assert found["place"].endswith("/store/ticks")
    assert "no drill has proven for 30d: 1; " in found["message"]
    assert "2018-06-30, never" in found["message"]
    assert place("drill", "--days", "99", now="2018-10-02").code == 0
    assert not_drilled(place, "2018-10-31") == []
    found, _ = not_drilled(place, "2018-11-05")
    assert "2018-06-30, last at 2018-10-02T00:00:00Z" in found["message"]


@after("run")
def test_without_every_nothing_is_told(place: Place) -> None:
    assert not_drilled(place, "2018-12-01") == []
