"""All levels of summaries, from the command line: every verb treats them alike."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.jobs.place import POLICIES, START, Place
from tests.jobs.states import after

FURTHER = "".join(
    f'[[policies.ticks.rollup.levels]]\nname = "{name}"\ncollection = "ticks_{name}"\n'
    for name in ("5m", "15m", "weekly", "monthly")
)
WITH_LEVELS = POLICIES.replace("[policies.ticks.archive]", f"{FURTHER}[policies.ticks.archive]", 1)
ALL = ("5m", "15m", "hourly", "daily", "weekly", "monthly")
COUNTS = {"5m": 36, "15m": 12, "hourly": 3, "daily": 1, "weekly": 1, "monthly": 1}


def with_levels(place: Place) -> None:
    place.write_config(WITH_LEVELS)


@pytest.fixture(autouse=True)
def _with_levels(place: Place) -> None:
    with_levels(place)


@pytest.mark.proof
def test_every_verb_knows_every_level(place: Place) -> None:
    assert place("check").code == 0
    plan = place("plan", "--json", "-p", "ticks").policy("ticks")["rollup"]
    ran = place("run", "--json", "-p", "ticks").policy("ticks")
    told = {level: {"written": count, "unchanged": 0} for level, count in COUNTS.items()}
    assert {level: plan[level] for level in ALL} == {level: ran["rollup"][level] for level in ALL} == told
    assert ran["expiry"] == {**dict.fromkeys(ALL, 0), "waiting": dict.fromkeys(ALL, 0)}
    assert ran["archive"]["deleted"] == 180, "the month did not hold them back"
    assert all(place.database[f"ticks_{level}"].count_documents({}) == COUNTS[level] for level in ALL)
    assert place("audit", "-p", "ticks").code == 0
    status = place("status", "--json", "-p", "ticks").policy("ticks")
    assert set(status["levels"]) == set(ALL)
    assert status["levels"]["monthly"] == "2018-08-01T00:00:00Z"
    assert status["levels"]["weekly"] == "2018-08-27T00:00:00Z"
    answer = place("summarize", "-p", "ticks", "--since", "2018-06-01", "--until", "2018-07-01", "--json")
    body = answer.policy("ticks")
    assert body["windows"] == {level: int(level == "monthly") for level in ALL}
    assert body["series"][0]["count"] == 10_800
    shown = place("summarize", "-p", "ticks", "--since", "2018-06-30", "--until", "2018-07-01T00:20")
    assert "0 months, 0 weeks, 1 day, 0 hours, 1 15-minute window and 1 5-minute window" in shown.out


@pytest.mark.proof
@after(with_levels, "run -p ticks")
def test_a_late_reading_after_the_archive_mends_all_levels(place: Place) -> None:
    late = {"symbol": "MDB", "d": START + timedelta(hours=5), "p": {"7": 99.0}}
    place.database.ticks.insert_one(late)
    ran = place("run", "--json", "-p", "ticks").policy("ticks")
    assert {level: ran["rollup"][level]["written"] for level in ALL} == dict.fromkeys(ALL, 1)
    month = place.database.ticks_monthly.find_one()
    assert month is not None and (month["count"], month["p"]["max"]) == (10_801, 99.0)
    again = place("run", "--json", "-p", "ticks").policy("ticks")
    assert not any(again["rollup"][level]["written"] for level in ALL)
    assert place("audit", "-p", "ticks").code == 0


@pytest.mark.proof
@after(with_levels, "run -p ticks")
def test_what_is_wrong_with_a_level_is_found(place: Place) -> None:
    place.database.ticks_weekly.update_one({}, {"$set": {"count": 1}})
    place.database.ticks_monthly.delete_many({})
    found = place("audit", "--json", "-p", "ticks").policy("ticks")["findings"]
    assert {(it["code"], it["place"]) for it in found} == {
        ("not-rolled-up", "ticks_weekly"),
        ("not-rolled-up", "ticks_monthly"),
        ("summaries-missing", "ticks_monthly"),
    }
    place.database.ticks_weekly.create_index("end", expireAfterSeconds=86_400)
    place.database.drop_collection("ticks_15m")
    place.database.create_collection("ticks_15m", viewOn="ticks", pipeline=[])
    found = place("check", "--json", "-p", "ticks").policy("ticks")["findings"]
    assert {("ttl-conflict", "ticks_weekly, index end_1"), ("target-kind", "ticks_15m")} <= {
        (it["code"], it["place"]) for it in found
    }


@pytest.mark.proof
def test_each_level_has_its_retain(place: Place) -> None:
    kept = 'hourly = "365d"\n5m = "40d"\n15m = "50d"\nweekly = "500d"\nmonthly = "600d"\ngrace = "0s"\n'
    place.write_config(WITH_LEVELS.replace('hourly = "365d"\n', kept, 1))
    place("run", "-p", "ticks")
    gone = []
    for days in (70, 400, 550, 700):
        now = f"{datetime(2018, 6, 30, tzinfo=UTC) + timedelta(days=days):%Y-%m-%d}"
        ran = place("run", "--json", "-p", "ticks", now=now).policy("ticks")
        gone.append({level: count for level in ALL if (count := ran["expiry"][level])})
        assert place("audit", "-p", "ticks", now=now).code == 0
    assert gone == [{}, {"hourly": 3}, {"weekly": 1}, {"monthly": 1}]
    assert place.database.ticks_daily.count_documents({}) == 1


@pytest.mark.proof
def test_what_waits_for_its_month_is_not_overdue(place: Place) -> None:
    """Of the readings of June the month is over; those of July wait, for this policy or for one beside it."""
    month = '[[policies.ticks.rollup.levels]]\nname = "monthly"\ncollection = "ticks_monthly"\n'
    alone = POLICIES.partition("[policies.iot]")[0].replace('after = "30d"', 'after = "1d"')
    daily = '[policies.ticks.rollup]\nhourly = "ticks_hourly"\ndaily = "ticks_daily"\n'
    monthly = alone.replace(daily, f"[policies.ticks.rollup]\n{month}")
    beside = monthly.partition("[policies.ticks.archive]")[0].replace("policies.ticks", "policies.slow")
    place.database.ticks.insert_one({"symbol": "MDB", "d": START + timedelta(days=2), "p": {"7": 99.0}})
    for policies in (monthly, alone + beside):
        place.write_config(policies.replace('[policies.ticks.retain]\nhourly = "365d"\n', ""))
        assert place("run", now="2018-07-20").code == 0
        assert place.database.ticks.count_documents({}) == 1
        assert place("audit", now="2018-07-20").code == 0
        found = place("audit", "--json", now="2018-08-03").policy("ticks")["findings"]
        assert "overdue" in {it["code"] for it in found}
