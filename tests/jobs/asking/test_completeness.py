"""What is missing, as a user meets it: in the summaries, and as findings of `audit`."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.jobs.place import POLICIES, START, Place

TOLD = POLICIES.replace('slot = "second"', 'slot = "second"\nexpected_interval = "1s"\nmax_hole = "10m"')


@pytest.mark.proof
def test_a_hole_is_told_and_does_not_fail_the_audit(place: Place) -> None:
    place.write_config(TOLD)
    lost = {"$gte": START + timedelta(minutes=50), "$lt": START + timedelta(minutes=65)}
    place.database.ticks.delete_many({"d": lost})
    place.database.ticks.update_one({"d": START}, {"$unset": {"p.0": "", "p.7": ""}})
    assert place("run", "-p", "ticks").code == 0
    first, second, _ = place.database.ticks_hourly.find().sort("start", 1)
    told = [(one["expected"], one["missing"], one["longest_hole"]) for one in (first, second)]
    assert told == [(3600, 602, 600), (3600, 300, 300)]
    day = place.database.ticks_daily.find_one({})
    assert day is not None
    assert (day["expected"], day["missing"], day["longest_hole"]) == (86_400, 86_400 - 165 * 60 + 2, 75_600)
    assert day["longest_hole_at"] == START + timedelta(hours=3)
    audited = place("audit", "-p", "ticks", "--json")
    assert audited.code == 0
    findings = [it for it in audited.policy("ticks")["findings"] if it["code"] == "hole"]
    assert {(it["place"], it["severity"]) for it in findings} == {("ticks_daily", "warning")}
    assert [it["message"] for it in findings] == [
        'no reading of symbol="MDB" from 2018-06-30T00:50:00Z to 2018-06-30T01:05:00Z, 900 s; '
        "one is expected every 1s",
        'no reading of symbol="MDB" from 2018-06-30T03:00:00Z to 2018-07-01T00:00:00Z, 75600 s; '
        "one is expected every 1s",
    ]
    assert place("run", "-p", "ticks").code == 0
    assert place("audit", "-p", "ticks").code == 0
