"""Restored into their collection, buckets stay until they are released, and count once all the while."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bucketwise.archivers.records import pins
from bucketwise.jobs.core.lease import Lease
from tests.jobs.place import MINUTES, NOW, POLICIES, START, Place
from tests.jobs.states import States, after

COUNTS = {"ticks": MINUTES, "iot": MINUTES // 10}
RELEASED = "restored, and pinned: `bucketwise unpin` releases them"
TIMESERIES = """
[policies.weather]
collection = "weather"
model = "timeseries"
time_field = "d"
series_fields = ["at"]
value_fields = ["t"]
[policies.weather.archive]
after = "30d"
to = "offline"
"""


@pytest.fixture(params=["ticks", "iot"])
def name(request: pytest.FixtureRequest) -> str:
    """A policy: of the offline archive, and of the online one."""
    return str(request.param)


@pytest.fixture
def moved(states: States, name: str) -> Place:
    """All buckets of that policy are in its archive."""
    return states.at(f"run -p {name}")


def answers(place: Place, name: str) -> tuple[Any, ...]:
    """What people ask of a policy: its summaries, byte for byte, and its readings."""
    stands = place.everything()
    ran = place("readings", "-p", name)
    assert ran.code == 0
    return stands[f"{name}_hourly"], stands.get(f"{name}_daily"), ran.out


def archived(place: Place, name: str, now: str = NOW) -> dict[str, Any]:
    """What one run does with the buckets; it leaves nothing that is worth an exit code."""
    ran = place("run", "-p", name, "--json", now=now)
    assert ran.code == 0
    found: dict[str, Any] = ran.policy(name)["archive"]
    return found


def restore(place: Place, name: str, *options: str) -> dict[str, Any]:
    ran = place("restore", "-p", name, "--to", name, "--json", *options)
    assert ran.code == 0
    return ran.policy(name)


def status(place: Place, name: str, now: str = NOW) -> tuple[int, int, str | None]:
    found = place("status", "--json", "-p", name, now=now).policy(name)
    return found["waiting"], found["pinned"], found["pinned_until"]


@pytest.mark.proof
@pytest.mark.in_turn(1)
def test_pinned_until_unpin(moved: Place, name: str) -> None:
    place, count = moved, COUNTS[name]
    before = answers(place, name)
    done = restore(place, name)
    assert (done["buckets"], done["pinned"], done["pinned_until"]) == (count, count, None)
    for _ in range(2):
        done = archived(place, name)
        assert (done["buckets"], done["deleted"], done["left"]) == (0, 0, count)
        assert done["reasons"] == [{"reason": RELEASED, "count": count}]
    assert answers(place, name) == before
    assert place.database[name].count_documents({}) == count
    planned = place("plan", "--json", "-p", name)
    assert (planned.code, planned.policy(name)["archive"]["reasons"]) == (0, done["reasons"])
    assert f"{name}: {count} stay: {RELEASED}" in place("plan", "-p", name).out
    assert status(place, name) == (count, count, None)
    audited = place("audit", "--json", "-p", name)
    assert (audited.code, audited.policy(name)["findings"]) == (0, [])
    assert place("verify", "-p", name).code == 0

    for released in (count, 0):
        ran = place("unpin", "-p", name, "--json")
        assert (ran.code, ran.policy(name)) == (0, {"policy": name, "exit_code": 0, "buckets": released})
    assert status(place, name) == (count, 0, None)
    done = archived(place, name)
    assert (done["deleted"], done["parts"], done["left"]) == (count, 0, 0)
    assert answers(place, name) == before
    assert place.database[name].count_documents({}) == 0
    assert place.database[pins.COLLECTION].count_documents({}) == 0


@pytest.mark.in_turn(1)
def test_pinned_for_a_time(moved: Place, name: str) -> None:
    place = moved
    before, until = answers(place, name), "2018-09-03T00:00:00Z"
    assert restore(place, name, "--keep-for", "2d")["pinned_until"] == until
    early = "2018-09-02T23:59:59.999Z"
    done = archived(place, name, now=early)
    assert (done["deleted"], done["left"]) == (0, COUNTS[name])
    assert done["reasons"] == [{"reason": f"restored, and pinned until {until}", "count": COUNTS[name]}]
    assert status(place, name, early)[1:] == (COUNTS[name], until)
    assert until in place("status", "-p", name, now=early).out
    assert status(place, name, until)[1:] == (0, None)
    assert place("audit", "-p", name, now=until).code == 0
    assert archived(place, name, now=until)["deleted"] == COUNTS[name]
    assert answers(place, name) == before


@pytest.mark.proof
@after("run -p ticks")
def test_the_first_end_of_some_is_told(place: Place) -> None:
    hours = [("--since", f"2018-06-30T0{at}:00Z", "--until", f"2018-06-30T0{at + 1}:00Z") for at in range(3)]
    for hour, keep in zip(hours, ("30d", "36h", "forever"), strict=True):
        restore(place, "ticks", *hour, "--keep-for", keep)
    assert status(place, "ticks") == (MINUTES, MINUTES, "2018-09-02T12:00:00Z")
    ran = place("unpin", "--json", *hours[1])
    assert (ran.policy("ticks")["buckets"], ran.policy("iot")["buckets"]) == (60, 0)
    assert status(place, "ticks")[1:] == (120, "2018-10-01T00:00:00Z")
    assert archived(place, "ticks")["deleted"] == 60
    left = {at.hour for at in place.database.ticks.distinct("d")}
    assert left == {0, 2}


def scanning(place: Place) -> None:
    place.write_config(POLICIES.replace(".rollup]\n", '.rollup]\nlate_data = "scan"\n'))


@pytest.mark.proof
@pytest.mark.parametrize(
    ("name", "late_data"),
    [
        ("ticks", "scan"),
        ("iot", "auto"),
        pytest.param("ticks", "auto", marks=pytest.mark.proof),
        pytest.param("iot", "scan", marks=pytest.mark.proof),
    ],
)
def test_a_changed_one_is_followed_and_archived_once_released(
    states: States, name: str, late_data: str
) -> None:
    """Also where nothing tells the roll-up of a change so long ago."""
    place = states.at(*([scanning] if late_data == "scan" else []), f"run -p {name}")
    time, field, changed = {"ticks": ("d", "p", "p.0"), "iot": ("at", "t", "t")}[name]
    later, asked = "2018-09-10", ("readings", "-p", name, "--format", "json")
    before = place(*asked).out.splitlines()
    restore(place, name)
    place.database[name].update_one({time: START}, {"$set": {changed: 1000.5}})
    done = archived(place, name, now=later)
    assert (done["buckets"], done["left"]) == (0, COUNTS[name])
    assert (done["summaries"] > 0) == (late_data == "scan")
    (summary,) = place.database[f"{name}_hourly"].find({"start": START})
    assert summary[field]["max"] == 1000.5
    assert summary["count"] == (3600 if name == "ticks" else 6)
    after = answers(place, name)
    readings = place(*asked).out.splitlines()
    assert (len(readings), len(set(readings) - set(before))) == (len(before), 1)
    assert archived(place, name, now=later)["summaries"] == 0
    assert answers(place, name) == after
    place("unpin", "-p", name)
    done = archived(place, name, now=later)
    assert (done["buckets"], done["deleted"], done["left"]) == (1, COUNTS[name], 0)
    assert answers(place, name) == after
    assert archived(place, name, now=later)["buckets"] == 0


@after("run -p ticks")
def test_unpin_takes_the_lease(place: Place) -> None:
    restore(place, "ticks")
    with Lease(place.database, "ticks"):
        ran = place("unpin", "--json", "-p", "ticks")
        assert ran.code == 11
        assert place("restore", "-p", "ticks", "--to", "ticks").code == 11
    assert status(place, "ticks")[1] == MINUTES
    table = place("unpin", "-p", "ticks").out
    assert "Unpin" in table
    assert str(MINUTES) in table


def test_nothing_is_pinned_where_nothing_is_deleted(place: Place) -> None:
    place.write_config(TIMESERIES)
    place.database.create_collection("weather", timeseries={"timeField": "d", "metaField": "at"})
    place.database.weather.insert_many(
        {"d": START + timedelta(minutes=count), "at": "here", "t": 20.5} for count in range(10)
    )
    place("run", "-p", "weather")
    refused = place("restore", "--to", "weather", "--keep-for", "2d", "--json")
    assert refused.code == 2
    assert "nothing is ever deleted" in refused.json["error"]
    done = restore(place, "weather")
    assert (done["buckets"], done["pinned"]) == (10, 0)
    assert place.database.weather.count_documents({}) == 10
    assert status(place, "weather")[1] == 0


@after("run -p iot")
def test_a_week_counts_from_the_present_that_is_given(place: Place) -> None:
    """`--keep-for` counts from the present that `--now` gives."""
    place("restore", "-p", "iot", "--to", "iot", "--keep-for", "1w", now="2018-09-02T02:00:00+02:00")
    held = place.database[pins.COLLECTION].distinct("until")
    assert held == [datetime(2018, 9, 9, tzinfo=UTC)]
