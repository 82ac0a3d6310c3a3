"""Changes between a roll-up and an archive run, a restore or another policy: no summary stays wrong."""

# mypy: disable-error-code="index, union-attr"

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.jobs.place import MINUTES, POLICIES, START, Place
from tests.jobs.states import after

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
IOT = """
[policies.iot]
collection = "dev"
model = "samples"
series_fields = ["sensor"]
value_fields = ["t"]
samples_field = "s"
sample_time_field = "at"
start_field = "first"
end_field = "last"
[policies.iot.rollup]
hourly = "iot_hourly"
[policies.iot.archive]
after = "30d"
to = "online"
collection = "iot_archive"
"""
WATCHER = """
[policies.watcher]
collection = "ticks"
model = "slots"
time_field = "d"
series_fields = ["symbol"]
value_fields = ["p"]
slot = "second"
[policies.watcher.rollup]
hourly = "watcher_hourly"
daily = "watcher_daily"
"""


def ok(place: Place, *arguments: str, **more: Any) -> Any:
    ran = place(*arguments, **more)
    assert ran.code == 0, ran
    return ran


def with_a_watcher(place: Place) -> None:
    place.write_config(POLICIES + WATCHER)


def test_a_bucket_that_ended_later_before_it_was_archived(place: Place) -> None:
    """No count tells an appended sample from a replaced one; `archive` comes before `rollup`."""
    place.write_config(IOT)
    times = [START, START + HOUR, START + 8 * HOUR]
    place.database["dev"].insert_one(
        {
            "_id": 1,
            "sensor": 7,
            "first": times[0],
            "last": times[-1],
            "s": [{"at": it, "t": 1.0} for it in times],
        }
    )
    ok(place, "rollup", "-p", "iot")
    early = START + 2 * HOUR
    place.database["dev"].update_one({"_id": 1}, {"$set": {"s.2": {"at": early, "t": 2.0}, "last": early}})
    ok(place, "archive", "-p", "iot")
    ok(place, "run", "-p", "iot")
    starts = sorted(it["start"] for it in place.database["iot_hourly"].find())
    assert starts == [START, START + HOUR, early]


@pytest.mark.proof
def test_a_change_taken_back_before_a_delete_that_waited(place: Place) -> None:
    """The delete finds the bucket as it was copied. The summaries hold what it was in between."""
    place.write_config(POLICIES.replace('to = "offline"', 'to = "offline"\ngrace = "1d"'))
    ok(place, "run", "-p", "ticks")
    ticks = place.database["ticks"]
    ticks.update_one({"d": START}, {"$set": {"p.0": 1000.5}})
    ok(place, "rollup", "-p", "ticks")
    ticks.update_one({"d": START}, {"$set": {"p.0": 50.0}})
    later = "2018-09-03T00:00:00Z"
    ok(place, "archive", "-p", "ticks", now=later)
    ok(place, "run", "-p", "ticks", now=later)
    assert ticks.count_documents({}) == 0
    assert place.database["ticks_hourly"].find_one({"start": START})["p"]["max"] < 100


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize("late_data", ["scan", "auto"])
def test_a_restored_one_that_was_changed_and_changed_back(place: Place, late_data: str) -> None:
    place.write_config(POLICIES.replace(".rollup]\n", f'.rollup]\nlate_data = "{late_data}"\n'))
    ok(place, "run", "-p", "ticks")
    ok(place, "restore", "-p", "ticks", "--to", "ticks")
    ticks = place.database["ticks"]
    ticks.update_one({"d": START}, {"$set": {"p.0": 1000.5}})
    ok(place, "run", "-p", "ticks")
    assert place.database["ticks_hourly"].find_one({"start": START})["p"]["max"] == 1000.5
    ticks.update_one({"d": START}, {"$set": {"p.0": 50.0}})
    ok(place, "unpin", "-p", "ticks")
    ok(place, "run", "-p", "ticks")
    ok(place, "run", "-p", "ticks")
    assert ticks.count_documents({}) == 0
    assert place.database["ticks_hourly"].find_one({"start": START})["p"]["max"] < 100


@pytest.mark.proof
@after(with_a_watcher, "rollup")
def test_a_second_policy_hears_of_a_change_that_the_first_archived(place: Place) -> None:
    place.database["ticks"].update_one({"d": START}, {"$set": {"p.0": 1000.5}})
    ok(place, "run")
    assert place.database["ticks_hourly"].find_one({"start": START})["p"]["max"] == 1000.5
    assert place.database["watcher_hourly"].find_one({"start": START})["p"]["max"] == 1000.5


@pytest.mark.proof
@after(with_a_watcher, "run")
def test_a_second_policy_outlives_a_restore_of_a_part(place: Place) -> None:
    """It was rolled up before the first deleted."""
    (day,) = place.database["watcher_daily"].find()
    assert day["count"] == MINUTES * 60
    until = (START + 10 * MINUTE).isoformat()
    ok(place, "restore", "-p", "ticks", "--to", "ticks", "--until", until)
    place("run")
    assert place.database["watcher_daily"].find_one()["count"] == MINUTES * 60


@pytest.mark.proof
@after(with_a_watcher, "run")
def test_a_second_policy_says_that_it_misses_what_comes_late(place: Place) -> None:
    """For what the first has archived. Once that is put back, it counts all of it."""
    for _ in range(2):
        assert ok(place, "run", "--json").policy("watcher")["rollup"]["missed"] == 0
    place.database["ticks"].insert_one({"symbol": "MDB", "d": START + MINUTE, "p": {"7": 3.0}})
    ran = place("run")
    assert (ran.code, "watcher: 1 summaries lack readings that came late" in ran.out) == (3, True)
    found = ok(place, "check", "--json")
    assert [it["code"] for it in found.policy("watcher")["findings"]] == ["late-missed", "policy"]
    assert [it["code"] for it in found.policy("ticks")["findings"]] == ["policy"]

    def counts() -> list[int]:
        names = ("watcher_hourly", "ticks_hourly")
        return [place.database[name].find_one({"start": START})["count"] for name in names]

    assert counts() == [3600, 3601]
    until = (START + 24 * HOUR).isoformat()
    ok(place, "restore", "-p", "ticks", "--to", "ticks", "--until", until)
    assert ok(place, "run", "--json").policy("watcher")["rollup"]["missed"] == 0
    ok(place, "unpin", "-p", "ticks")
    for _ in range(2):
        ok(place, "run")
    assert (counts(), place.database["ticks"].count_documents({})) == ([3601, 3601], 0)


@after("run")
def test_a_run_by_scan_forgets_what_was_live(place: Place) -> None:
    iot = place.database["iot"]
    iot.insert_one({"_id": "late", "sensor": 7, "at": START + MINUTE, "t": 99.0})
    ok(place, "rollup", "-p", "iot")
    assert place.database["iot_hourly"].find_one({"start": START})["count"] == 7
    iot.delete_one({"_id": "late"})
    place.write_config(POLICIES.replace(".rollup]\n", '.rollup]\nlate_data = "scan"\n'))
    ok(place, "rollup", "-p", "iot")
    place.write_config(POLICIES)
    for _ in range(2):
        ok(place, "rollup", "-p", "iot")
    assert place.database["iot_hourly"].find_one({"start": START})["count"] == 6


@pytest.mark.proof
@pytest.mark.in_turn(1)
@after("run")
@pytest.mark.parametrize("policy", ["ticks", "iot"])
def test_the_archived_copy_of_a_moved_bucket_counts_again_once_that_is_deleted(
    place: Place, policy: str
) -> None:
    """The delete tells where the bucket was, with a pre-image; its archived copy lies elsewhere."""
    field = {"ticks": "d", "iot": "at"}[policy]
    hours = place.database[f"{policy}_hourly"]
    before = list(hours.find().sort("start"))
    place.database.command({"collMod": policy, "changeStreamPreAndPostImages": {"enabled": True}})
    ok(place, "restore", "-p", policy, "--to", policy)
    ok(place, "run", "-p", policy)
    source = place.database[policy]
    source.update_many({field: {"$lt": START + HOUR}}, {"$set": {field: START + 40 * HOUR}})
    ok(place, "run", "-p", policy)
    assert hours.find_one({"start": START}) is None
    source.delete_many({field: START + 40 * HOUR})
    ok(place, "run", "-p", policy)
    assert list(hours.find().sort("start")) == before
