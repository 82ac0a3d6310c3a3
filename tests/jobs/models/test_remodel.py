"""`remodel` from outside: every model, what it refuses, and what is left after it was killed."""

from __future__ import annotations

import tomllib
from collections import Counter
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
from bson import encode
from bson.decimal128 import Decimal128

from bucketwise.buckets.writing import TARGETS
from bucketwise.config.load import settings_in
from bucketwise.jobs.core.lease import Lease
from bucketwise.jobs.remodel.rewriting import RemodelRecord, RemodelState
from bucketwise.jobs.suite import load
from tests.archivers import builders
from tests.jobs.command import Ran, started
from tests.jobs.place import MINUTES, START, Place

Document = dict[str, Any]
POLICY = """
[policies.iot]
collection = "iot"
model = "reading"
time_field = "at"
series_fields = ["sensor"]
value_fields = ["t", "a.b", "a_b"]
"""
MODELS = ("reading", "slots-hour", "samples-50", "timeseries")


def remodel(place: Place, collection: str, to: str, into: str = "other", *more: str) -> Ran:
    return place("remodel", collection, "--to", to, "--into", into, "--json", *more, now=None)


def documents(place: Place, collection: str) -> list[bytes]:
    return sorted(encode(it) for it in place.database[collection].find())


def keep_few(place: Place) -> None:
    """Every sixth minute, in each of the three hours."""
    place.database.ticks.delete_many({"$expr": {"$mod": [{"$minute": "$d"}, 6]}})


def prices(place: Place) -> Counter[tuple[Any, ...]]:
    """What the fixture's ticks hold, by plain Python."""
    return Counter(
        (it["symbol"], it["d"] + timedelta(seconds=int(second)), price)
        for it in place.database.ticks.find()
        for second, price in it["p"].items()
    )


def test_the_help_names_the_models() -> None:
    (to,) = (it for it in load("remodel").options if it.name == "to")
    assert f"{', '.join(TARGETS)}, or any number of samples" in to.annotation.__metadata__[0].help


def test_there_and_back(place: Place) -> None:
    """From model to model, and in the end as it was; each policy that it shows reads what was written."""
    keep_few(place)
    before, source = documents(place, "ticks"), "ticks"
    readings = prices(place)
    config = place.config.read_text()
    for number, model in enumerate((*MODELS, "slots-minute")):
        ran = remodel(place, source, model, f"step_{number}")
        assert ran.code == 0, ran
        told = ran.json
        assert (told["readings"], told["equal"], told["left_out"]) == (readings.total(), True, {})
        assert told["documents"] == place.database[f"step_{number}"].count_documents({})
        policy = settings_in(config + told["policy"], place.config, {"MONGODB_URI": place.uri})
        assert policy.policies[f"step_{number}"].collection == f"step_{number}"
        assert tomllib.loads(told["policy"])["policies"][f"step_{number}"]["archive"]["delete"] is False
        source = f"step_{number}"
    assert documents(place, "ticks") == before
    assert [{**it, "_id": 0} for it in place.database[source].find(sort=[("d", 1)])] == [
        {**it, "_id": 0} for it in place.database.ticks.find(sort=[("d", 1)])
    ]
    singles = place.database.step_0.find()
    assert Counter((it["symbol"], it["d"], it["p"]) for it in singles) == readings
    again = remodel(place, "ticks", "reading", "step_0")  # it only compares
    assert (again.code, again.json["equal"], again.json["documents"]) == (0, True, readings.total())


@pytest.mark.in_turn(1)
@pytest.mark.parametrize("make", [builders.samples, builders.samples_overflow, builders.timeseries])
def test_collections_without_a_policy(place: Place, make: Any) -> None:
    case: builders.Case = make()
    place.write_config("")
    place.database.iot.drop()
    case.load(place.database)
    ran = remodel(place, case.policy.collection, "samples-7")
    told = ran.json
    assert (told["equal"], told["readings"]) == (True, len(case.readings))
    assert ran.code == (3 if told["left_out"] else 0)
    assert set(told["left_out"]) <= {"p", "sum"}  # of the buckets with overflow; no reading's


@pytest.mark.in_turn(1)
@pytest.mark.parametrize("apart", [14, pytest.param(4, marks=pytest.mark.proof)])
@pytest.mark.parametrize("model", ["reading", "timeseries"])
def test_it_is_killed_again_and_again(place: Place, model: str, apart: int) -> None:
    """At any operation, and each run goes on where the last one was."""
    codes, known = [], 0
    for number in range(16, 60, apart):
        given = {
            "log": str(place.folder / "log"),
            "folder": str(place.folder),
            "number": number,
            "moment": "after",
        }
        ran = place.command.meddled(
            ("tests.faults.crashes.points", given),
            *("remodel", "ticks", "--to", model, "--into", "other", "--json", "--quiet"),
            cwd=place.folder,
            MONGODB_URI=place.uri,
        )
        codes.append(ran.code)
        place.database.bucketwise_lease.delete_many({})  # it would expire by itself
        mark = place.database.bucketwise_remodel.find_one({}) or {"documents": 0}
        there = place.database.other.count_documents({})
        assert known <= mark["documents"] <= there
        known = mark["documents"]
        if ran.code == 0:
            break
    assert codes.count(-9) >= min(len(codes) - 1, 4) >= 2
    if codes[-1]:
        ran = remodel(place, "ticks", model)
    assert (ran.code, ran.json["equal"]) == (0, True)
    singles = place.database.other.find()
    assert Counter((it["symbol"], it["d"], it["p"]) for it in singles) == prices(place)


def test_what_has_no_place_is_told_before(place: Place) -> None:
    place.database.iot.insert_many({"sensor": 7, "at": START, "t": it} for it in (Decimal128("1.1"), "warm"))
    ran = remodel(place, "iot", "reading")
    assert ran.code == 2 and "1 readings whose t is a decimal" in ran.err
    assert (ran.json["equal"], ran.json["documents"]) == (False, 0)
    assert set(place.database.list_collection_names()) == {"ticks", "iot"}


def test_two_readings_of_a_slot(place: Place) -> None:
    place.database.iot.insert_one({"sensor": 7, "at": START, "t": 1.0})
    assert "of a slot that holds one already" in remodel(place, "iot", "slots").err
    assert remodel(place, "iot", "samples").json["equal"] is True


def test_fields_that_no_reading_has_are_left_out_and_told(place: Place) -> None:
    place.database.iot.update_many({}, {"$set": {"note": {"by": "hand"}}})
    dry = remodel(place, "iot", "samples", "other", "--dry-run")
    assert dry.code == 0 and dry.json["left_out"] == {"note": 18}
    assert "other" not in place.database.list_collection_names()
    ran = remodel(place, "iot", "samples")
    assert ran.code == 3 and ran.json["equal"] is True
    assert place("remodel", "iot", "--to", "samples", "--into", "third", now=None).out.startswith("Left out")


def test_what_was_written_is_looked_at(place: Place) -> None:
    """One that was begun, and changed by somebody before it went on, is not equal."""
    given = {"log": str(place.folder / "log"), "folder": str(place.folder), "number": 40, "moment": "after"}
    place.command.meddled(
        ("tests.faults.crashes.points", given),
        *("remodel", "ticks", "--to", "reading", "--into", "other", "--quiet"),
        cwd=place.folder,
        MONGODB_URI=place.uri,
    )
    place.database.bucketwise_lease.delete_many({})
    assert (
        place.database.other.update_one({"d": START}, {"$set": {"p": 50}}).modified_count == 1
    )  # it was 50.0
    ran = remodel(place, "ticks", "reading")
    assert (ran.code, ran.json["equal"]) == (1, False)
    assert "1 readings differ" in ran.err


@pytest.mark.parametrize("lost", [{"$lt": START + timedelta(hours=1)}, {"$gt": START + timedelta(hours=1)}])
def test_what_the_source_has_lost_since_is_no_longer_equal(place: Place, lost: Document) -> None:
    """At either end: no reading of the source lies beside what the target has more."""
    assert remodel(place, "iot", "reading").json["equal"] is True
    place.database.iot.delete_many({"at": lost})
    ran = remodel(place, "iot", "reading")
    assert (ran.code, ran.json["equal"]) == (1, False)


@pytest.mark.parametrize("late", [{"p": {"0": 1.0}}, {"d": START, "p": {"60": 1.0}}])
def test_what_comes_in_meanwhile_and_can_not_be_read(place: Place, late: Document) -> None:
    """After all was looked through: a bucket without a time, or with a slot that is none."""
    keep_few(place)
    place.database.ticks.insert_one({"_id": 1, "symbol": "MDB", "d": START, "p": {}})
    place.database.ticks.rename("it")
    late = {"symbol": "MDB", **late}
    change = ("mongo create other", place.uri, place.database.name, encode({"_id": 1, **late}).hex())
    given = {"log": str(place.folder / "log"), "folder": str(place.folder), "change": change}
    ran = place.command.meddled(
        ("tests.faults.crashes.points", given),
        *("remodel", "it", "--to", "reading", "--into", "other", "--json", "--quiet"),
        cwd=place.folder,
        MONGODB_URI=place.uri,
    )
    assert place.database.it.count_documents(late) == 1
    assert (ran.code, ran.json["equal"]) == (1, False)


def test_another_one_at_work(place: Place) -> None:
    with Lease(place.database, "remodel other"):
        ran = remodel(place, "ticks", "timeseries")
        assert ran.code == 11 and "remodel other: another run holds the lease: pid" in ran.err
        assert "other" not in place.database.list_collection_names()


@pytest.mark.proof
def test_two_at_once(place: Place) -> None:
    """One of them writes; the other is kept out, or finds all done."""
    arguments = ("remodel", "ticks", "--to", "timeseries", "--into", "other", "--quiet")
    with ExitStack() as both:
        runs = [
            both.enter_context(started(*arguments, cwd=place.folder, MONGODB_URI=place.uri)) for _ in "12"
        ]
        codes = {it.wait() for it in runs}
    assert codes in ({0}, {0, 11})
    singles = place.database.other.find()
    assert Counter((it["symbol"], it["d"], it["p"]) for it in singles) == prices(place)


@pytest.mark.proof
@pytest.mark.parametrize("model", ["reading", "timeseries"])
def test_who_wakes_up_after_another_took_over_says_what_it_may_have_done(place: Place, model: str) -> None:
    """MongoDB refuses an `_id` that is there, but not in a native time series: that the last documents may be
    there twice is told by who wrote them, and found by whoever compares again."""
    arguments = ["remodel", "ticks", "--to", model, "--into", "other", "--quiet"]
    meddle = ("tests.jobs.asleep", {"at": 2, "database": place.database.name, "command": arguments})
    ran = place.command.meddled(meddle, *arguments, cwd=place.folder, MONGODB_URI=place.uri)
    assert ran.code == 11 and "remodel other: the lease is lost (another run took it)" in ran.err, ran
    is_twice = model == "timeseries"
    assert ("may be in other twice" in ran.err) is is_twice
    assert (place.database.other.count_documents({}) > MINUTES * 60) is is_twice
    again = remodel(place, "ticks", model)
    assert (again.code, again.json["equal"]) == (int(is_twice), not is_twice)
    assert ("drop other and run again" in again.err) is is_twice


def test_who_lost_the_lease_does_not_take_back_what_is_known(place: Place) -> None:
    bookmark = RemodelRecord(place.database, "other", {})
    bookmark.begin()
    place.database.create_collection("other")
    bookmark.set(2, done=True)
    bookmark.set(1)
    assert bookmark.check() == RemodelState(2, done=True)


@pytest.mark.in_turn(1)
@pytest.mark.parametrize("model", ["reading", "timeseries"])
def test_another_collection_of_the_name_stays_as_it_is(place: Place, model: str) -> None:
    assert remodel(place, "iot", model).code == 0
    place.database.other.drop()
    place.database.other.insert_one({"mine": 1})
    place.database.bucketwise_remodel.update_one({}, {"$set": {"done": False, "documents": 3}})
    ran = remodel(place, "iot", model)
    assert ran.code == 2 and "this collection already exists" in ran.err
    assert [it["mine"] for it in place.database.other.find()] == [1]


def test_readings_of_which_no_archive_can_be(place: Place) -> None:
    place.database.iot.update_many({}, {"$set": {"a": {"b": 2}, "a_b": 3}})
    place.write_config(POLICY)
    ran = remodel(place, "iot", "samples")
    assert ran.json["equal"] is True and "it becomes one column with" in ran.json["policy"]
    assert not tomllib.loads(ran.json["policy"])


def test_targets_that_are_not_its_own(place: Place) -> None:
    assert "this collection already exists" in remodel(place, "ticks", "reading", "iot").err
    assert "no such model" in remodel(place, "ticks", "sluts").err
    assert "no such collection. Did you mean ticks?" in remodel(place, "tick", "reading").err
    for name in ("bucketwise_x", "ticks_hourly", "iot_archive", "iot_archive_versions", "system.x"):
        ran = remodel(place, "ticks", "reading", name)
        assert ran.code == 2 and "another" in ran.err, ran
    assert "policies.ticks.rollup.hourly" in remodel(place, "ticks", "reading", "ticks_hourly").err
    place.database.create_collection("seen", viewOn="ticks", pipeline=[])
    assert "it is a view" in remodel(place, "seen", "reading").err
    place.database.create_collection("none")
    assert "it is empty" in remodel(place, "none", "reading").err
    place.database.users.insert_one({"name": "u"})
    assert "no readings that bucketwise understands" in remodel(place, "users", "reading").err
    place.database.bucketwise_remodel.insert_one(
        {"_id": "other", "documents": 4, "done": False, "task": {"source": "iot", "model": "reading"}}
    )
    place.database.create_collection("other")
    assert "it was started with another source and policy" in remodel(place, "ticks", "reading").err
    assert place.database.other.count_documents({}) == 0


def test_without_any_policy(place: Place) -> None:
    place.write_config("")
    assert remodel(place, "ticks", "slots-hour").json["equal"] is True
    assert place("plan").code == 2  # that needs one
