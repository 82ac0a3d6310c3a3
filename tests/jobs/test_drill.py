"""Restore drills from the command line."""

from __future__ import annotations

from tests.jobs.place import Place


def test_a_drill_of_what_is_archived(place: Place) -> None:
    place("run")
    before = set(place.database.list_collection_names())
    found = place("drill", "--json", "-p", "ticks", "--days", "9").policy("ticks")
    assert found["buckets"] == found["equal"] > 0
    assert (found["exit_code"], found["differing"], found["summaries_differing"]) == (0, 0, 0)
    assert set(place.database.list_collection_names()) == before
    shown = place("coverage", "--json", "-p", "ticks").policy("ticks")
    assert {it["drilled_at"] is None for day in shown["days"] for it in day["commits"]} == {False}


def test_summaries_that_differ_are_told(place: Place) -> None:
    place("run")
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
