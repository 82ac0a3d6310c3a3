"""`advise` from outside: each finding where there is a reason for it and nowhere else, and models tried."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import ObjectId, encode
from bson.int64 import Int64
from pymongo.database import Database

from bucketwise.config.load import settings_in
from bucketwise.jobs.advise.server import by_oplog
from bucketwise.jobs.core.lease import Lease
from bucketwise.jobs.core.subject import Subject
from tests.archivers import builders
from tests.jobs.command import Ran
from tests.jobs.place import START, Place

Document = dict[str, Any]
SECOND, MINUTE, HOUR, DAY = (timedelta(seconds=it) for it in (1, 60, 3600, 86400))
MODELS = ["reading", "slots-minute", "slots-hour", "samples-50", "samples-200", "samples-1000", "timeseries"]


BUCKETS = """
[policies.iot]
collection = "iot"
model = "samples"
series_fields = ["sensor"]
value_fields = ["val"]
samples_field = "samples"
sample_time_field = "time"
start_field = "first"
end_field = "last"
"""
SINGLE = """
[policies.iot]
collection = "iot"
model = "reading"
time_field = "at"
series_fields = ["sensor"]
value_fields = ["t", "a.b", "a_b"]
"""


def advise(place: Place, collection: str, *more: str) -> Ran:
    ran = place("advise", collection, "--json", "--no-candidates", *more, now=None)
    assert ran.code == 0, ran
    return ran


def codes(ran: Ran) -> set[str]:
    return {it["code"] for it in ran.json["findings"]}


def iot(place: Place, documents: list[Document]) -> None:
    """Instead of the fixture's, without a policy."""
    place.write_config("")
    place.database.iot.drop()
    place.database.iot.insert_many(documents)
    for keys in ("at", "first", "last", "d"):
        if keys in documents[0]:
            place.database.iot.create_index(keys)
            place.database.iot.create_index([("sensor", 1), (keys, 1)])


def reading(number: int, **more: Any) -> Document:
    at = START + number * MINUTE
    identity = ObjectId(int(at.timestamp()).to_bytes(4, "big") + number.to_bytes(8, "big"))
    return {"_id": identity, "sensor": number % 2, "at": at, "t": number / 8, **more}


def bucket(number: int, size: int = 20, **more: Any) -> Document:
    times = [START + number * HOUR + i * MINUTE for i in range(size)]
    samples = [{"time": at, "val": i / 4} for i, at in enumerate(times)]
    head = {"_id": number, "sensor": 1, "first": times[0], "last": times[-1], "n": size}
    return {**head, "sum": sum(it["val"] for it in samples), "samples": samples, **more}


def test_what_is_kept_well(place: Place) -> None:
    """And nothing is changed by looking at it."""
    place.database.ticks.create_index([("symbol", 1), ("d", 1)])
    before = place.everything()
    ran = advise(place, "ticks")
    assert place.everything() == before
    told = ran.json
    assert (told["model"], told["policy"], told["candidates"]) == ("slots", "ticks", [])
    assert codes(ran) == {"late"}  # written now, of 2018
    assert told["sample"]["fill"] == 1.0 and told["sample"]["capacity"] == 60
    assert (told["current"]["documents"], told["current"]["readings"]) == (180, 10_800)
    assert told["current"]["indexes"].keys() == {"_id_", "d_1", "symbol_1_d_1"}
    iot(place, [reading(it) for it in range(200)])
    assert codes(advise(place, "iot")) == set()


FOUND: dict[str, tuple[list[Document], str]] = {
    "duplicates": (
        [reading(it) for it in range(99)] + [{**reading(it), "_id": it} for it in range(7)],
        "7 of 106",
    ),
    "gaps": ([reading(it + 900 * (it > 50)) for it in range(100)], "longest gap, 15 h"),
    "no-numbers": (
        [reading(it, **({"t": "off"} if it % 10 == 0 else {})) for it in range(99)],
        "hold no number",
    ),
    "fields-unused": ([reading(it, note="x" * 40) for it in range(99)], "% of the bytes"),
    "offset-unused": ([reading(it, tz="Europe/Paris") for it in range(99)], "local_offset_field"),
    "times-not-dates": (
        [reading(it, at=f"{START + it * MINUTE:%Y-%m-%dT%H:%M:%SZ}") for it in range(99)],
        "times are text",
    ),
    "late": (
        [reading(it, at=START + it * MINUTE - (HOUR if it % 9 == 0 else 0 * HOUR)) for it in range(99)],
        "1 h",
    ),
    "underfilled": ([bucket(it, 100 if it % 9 == 0 else 2) for it in range(90)], "have room for 100"),
    "outliers": ([bucket(it, 3_000 if it == 9 else 20) for it in range(60)], "far larger than the usual"),
    "fields-disagree": ([bucket(it, n=it) if it % 9 == 0 else bucket(it) for it in range(90)], "quarantined"),
    "slots-unused": (
        [{"_id": it, "sensor": 1, "d": START + it * MINUTE, "t": {"0": 1.5, "30": 2.5}} for it in range(60)],
        "a slot of 30 s would do",
    ),
}


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("code", FOUND)
def test_each_finding(place: Place, code: str) -> None:
    documents, fragment = FOUND[code]
    iot(place, documents)
    ran = advise(place, "iot")
    (found,) = [it for it in ran.json["findings"] if it["code"] == code]
    assert fragment in f"{found['message']} {found['cost']} {found['remedy']}", found
    assert all(found[key] for key in ("message", "cost", "remedy"))
    sample = ran.json["sample"]
    sizes = list(sample["bucket_bytes"].values())
    assert sizes == sorted(sizes) and sizes[-1] == max(len(encode(it)) for it in documents)
    assert sample["fill"] is None or 0 < sample["fill"] <= 1


@pytest.mark.proof
def test_sums_that_are_wrong_and_bounds_that_are(place: Place) -> None:
    wrong = [bucket(it, sum=-1.0) if it % 9 == 0 else bucket(it) for it in range(90)]
    iot(place, wrong)
    assert [
        it["field"] for it in advise(place, "iot").json["findings"] if it["code"] == "fields-disagree"
    ] == ["sum"]
    iot(place, [bucket(it, last=START) if it % 9 == 1 else bucket(it) for it in range(90)])
    place.write_config(BUCKETS)
    assert [
        it["field"] for it in advise(place, "iot").json["findings"] if it["code"] == "fields-disagree"
    ] == ["first"]


def upsert(place: Place, at: datetime, reading: Document, **more: Any) -> None:
    """As an application writes a reading into its bucket, which has text for its `_id`."""
    kept: Document = {"$setOnInsert": {"sensor": 1, **more}, **reading}
    place.database.iot.update_one({"_id": f"1-{at:%Y%m%dT%H%M}"}, kept, upsert=True)


def by_slots(place: Place, now: datetime, age: timedelta) -> None:
    at = now - age
    start = at.replace(second=0, microsecond=0)
    upsert(place, start, {"$set": {f"t.{at.second}": 1.5}}, d=start)


def by_samples(place: Place, now: datetime, age: timedelta) -> None:
    at = now - age
    start = at.replace(minute=0, second=0, microsecond=0)
    grown = {"$push": {"samples": {"time": at, "val": 1.5}}, "$inc": {"n": 1}, "$max": {"last": at}}
    upsert(place, start, {**grown, "$min": {"first": at}})


def by_documents(place: Place, now: datetime, age: timedelta) -> None:
    document = {"_id": f"{now - age}", "sensor": 1, "at": now - age, "t": 1.5}
    with place.database.client.start_session() as session, session.start_transaction():
        place.database.iot.insert_one(document, session=session)
        place.database.other.insert_one({"_id": f"{now - age}"}, session=session)


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize("write", [by_slots, by_samples, by_documents])
def test_late_readings_of_which_only_the_oplog_tells(place: Place, write: Any) -> None:
    """Twenty that come as they are measured, into buckets that are begun; then three of some hours ago."""
    place.write_config("")
    place.database.iot.drop()
    now = datetime.now(UTC).replace(microsecond=0)
    for number in range(20, -1, -1):
        write(place, now, number * SECOND)
    place.database.iot.update_many({}, {"$set": {"note": "no reading"}})
    on_time = advise(place, "iot")
    told = on_time.json["arrival"]
    assert (told["by"], told["writes"]) == ("oplog", 21) and "late" not in codes(on_time)
    for number in range(3):
        write(place, now, 5 * HOUR + number * MINUTE)
    (found,) = [it for it in advise(place, "iot").json["findings"] if it["code"] == "late"]
    assert found["message"].startswith(
        "3 of 24 writes came more than 10 min after their last reading: up to 5"
    )
    assert found["field"] is None


def test_the_oplog_is_looked_at_no_further_than_it_is_said(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.database.create_collection("series", timeseries={"timeField": "at", "metaField": "sensor"})
    place.database.series.insert_many({"_id": it, "sensor": 1, "at": START, "t": 1.0} for it in range(3))
    assert advise(place, "series").json["arrival"]["by"] is None
    policy = settings_in(place.config.read_text(), place.config, {"MONGODB_URI": place.uri}).policies["iot"]
    policy = policy.model_copy(update={"overflow": None})
    place.database.iot.update_many({}, {"$inc": {"t": 1.5}})
    place.database.other.insert_many({"_id": it} for it in range(7))
    subject = Subject(place.database, policy, "collection")
    for looked, found in ((5, 0), (1_000, 36)):
        monkeypatch.setattr("bucketwise.jobs.advise.server.ENTRIES", looked)
        arrival = by_oplog(subject, policy)
        assert (arrival.by, len(arrival.late)) == ("oplog", found)
        told = re.search("the newest ([0-9,]+) entries of the oplog, back to 20", arrival.basis)
        assert told and 5 <= int(told[1].replace(",", "")) <= looked


def test_indexes(place: Place) -> None:
    place.database.iot.create_index([("t", 1)])
    place.database.iot.create_index([("at", 1), ("t", 1)])
    found = {it["code"]: it for it in advise(place, "iot").json["findings"]}
    assert "t_1 " in found["index-unused"]["message"]
    assert "at_1 is the beginning of at_1_t_1" in found["index-redundant"]["message"]
    assert '"sensor": 1, "at": 1' in found["index-missing"]["remedy"]
    place.database.iot.find_one({"t": 20.5})
    place.database.iot.create_index([("sensor", 1), ("at", 1)])
    assert codes(advise(place, "iot")) & {"index-unused", "index-missing"} == set()


@pytest.mark.proof
def test_the_models_are_tried(place: Place) -> None:
    place.database.ticks.delete_many({"$expr": {"$mod": [{"$minute": "$d"}, 6]}})  # 30 buckets are left
    before = place.everything()
    page = place.folder / "advice.html"
    ran = place(
        *("advise", "ticks", "--json", "--readings", "1800", "--html", str(page)),
        *("--scratch", f"{place.database.name}_try"),
        now=None,
    )
    told = ran.json
    found = {it["model"]: it for it in told["candidates"]}
    assert list(found) == [*MODELS, "parquet", "slots + online archive"]
    assert told["summaries"]["query_ms"].keys() == {"hour", "day", "month"}
    assert found["reading"]["documents"] == told["current"]["readings"] == 1_800
    assert found["slots-minute"]["documents"] == 30
    assert found["slots-hour"]["documents"] == 3
    assert found["samples-50"]["documents"] == 36
    for name in MODELS:
        it = found[name]
        assert it["query_ms"].keys() == {"last", "hour", "day", "month"} and it["unfit"] is None
        assert all(it["readings_per_second"].values()) and it["data_bytes"] > 0 and it["index_bytes"] > 0
    assert found["slots-minute"]["data_bytes"] == pytest.approx(
        place.database.command("collStats", "ticks")["size"], rel=0.02
    )
    text = page.read_text()
    assert '<h2 id="models">Models</h2>' in text and "slots-minute" in text
    page.unlink()
    assert place.everything() == before
    assert f"{place.database.name}_try" not in place.database.client.list_database_names()


@pytest.mark.proof
def test_models_without_a_place_for_the_readings(place: Place) -> None:
    iot(place, [reading(it, at=START + it * timedelta(milliseconds=1500)) for it in range(200)])
    ran = place("advise", "iot", "--json", now=None)  # in an embedded MongoDB
    found = {it["model"]: it for it in ran.json["candidates"]}
    assert "not on a slot of 1 s" in found["slots-minute"]["unfit"] and found["samples-50"]["documents"] == 4
    iot(place, [reading(it, a={"b": 1.5}, a_b=2) for it in range(200)])  # one column for both
    place.write_config(SINGLE)
    plain = place("advise", "iot", "--scratch", f"{place.database.name}_try", now=None)
    assert "parquet: no place for two columns" in plain.out


@pytest.mark.proof
def test_readings_that_are_years_apart(place: Place) -> None:
    """They are in few buckets, which no roll-up may read again for each of their days."""
    iot(place, [{"_id": it, "sensor": 1, "at": START - it * 10_000 * DAY, "t": 1.0} for it in range(12)])
    ran = place("advise", "iot", "--json", "--scratch", f"{place.database.name}_try", now=None)
    assert ran.json["summaries"]["query_ms"].keys() == {"hour", "day", "month"}


Scratch = Database[Document]


@pytest.fixture
def scratch(place: Place) -> Iterator[Scratch]:
    """A name for a database beside the place's."""
    name = f"{place.database.name}_try"
    yield place.database.client[name]
    place.database.client.drop_database(name)


def tried(place: Place, scratch: Scratch, moment: str | None) -> Ran:
    return place.command.meddled(
        ("tests.jobs.broken_models", {"moment": moment}) if moment else None,
        *("advise", "ticks", "--scratch", scratch.name, "--readings", "500", "--quiet"),
        cwd=place.folder,
        MONGODB_URI=place.uri,
    )


def held(scratch: Scratch) -> set[str]:
    return {it for it in scratch.list_collection_names() if not it.startswith("system.")}


def is_there(scratch: Scratch) -> bool:
    return scratch.name in scratch.client.list_database_names()


@pytest.mark.parametrize(("moment", "code"), [("asked", 130), ("failed", 1)])
def test_the_scratch_database_goes_in_any_case(
    place: Place, scratch: Scratch, moment: str, code: int
) -> None:
    assert tried(place, scratch, moment).code == code
    assert not is_there(scratch)


@pytest.mark.proof
def test_what_a_killed_process_left_is_dropped_by_the_next(place: Place, scratch: Scratch) -> None:
    """But not while somebody works there; and what others make there meanwhile stays."""
    assert tried(place, scratch, "killed").code == -9
    left = held(scratch)
    assert {"try_reading", "bucketwise_lease"} <= left
    (lease,) = scratch.bucketwise_lease.find()
    assert lease["host"]["pid"] and lease["taken_at"]
    with Lease(scratch, "advise --scratch"):
        ran = tried(place, scratch, None)
        assert ran.code == 11 and "advise --scratch: another run holds the lease: pid" in ran.err, ran
        assert held(scratch) == left
    ran = tried(place, scratch, "joined")
    assert ran.code == 0, ran
    assert held(scratch) == {"orders"} and scratch.orders.count_documents({}) == 1


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("others", ["try_orders", "orders", "bucketwise_receipts"])
def test_what_a_killed_process_left_beside_what_others_made(
    place: Place, scratch: Scratch, others: str
) -> None:
    """All of it stays: who uses the database by now may have taken over what has names like its own."""
    assert tried(place, scratch, "killed").code == -9
    scratch[others].insert_one({"_id": 1})
    scratch.bucketwise_lease.insert_one({"_id": "orders"})
    left = held(scratch)
    ran = tried(place, scratch, None)
    assert ran.code == 2 and "this database already exists" in ran.err
    assert held(scratch) == left and scratch[others].count_documents({}) == 1


def test_without_its_mark_nothing_is_dropped(place: Place, scratch: Scratch) -> None:
    scratch.try_reading.insert_one({"_id": 1})
    scratch.bucketwise_lease.insert_one({"_id": "orders"})
    assert tried(place, scratch, None).code == 2
    assert held(scratch) == {"try_reading", "bucketwise_lease"}


def test_what_is_refused(place: Place) -> None:
    def refused(*arguments: str) -> str:
        ran = place("advise", *arguments, now=None)
        assert ran.code == 2 and ran.out == "", ran
        return ran.err

    assert "no such collection. Did you mean ticks?" in refused("tick")
    assert "this database already exists" in refused("ticks", "--scratch", place.database.name)
    assert "it is not a valid MongoDB database name" in refused("ticks", "--scratch", "a b")
    assert "there is no folder" in refused("ticks", "--html", "nowhere/x.html")
    assert "not for the collection" in refused("ticks", "-p", "iot")
    place.database.create_collection("none")
    place.database.create_collection("seen", viewOn="ticks", pipeline=[])
    place.database.users.insert_one({"name": "u", "age": Int64(3)})
    assert "it is empty" in refused("none")
    assert "it is a view" in refused("seen")
    assert "no readings that bucketwise understands" in refused("users")


@pytest.mark.in_turn(1)
@pytest.mark.parametrize(
    "make",
    [
        builders.reading,
        builders.samples,
        builders.samples_overflow,
        builders.slots_overflow,
        builders.timeseries,
    ],
)
def test_every_model(place: Place, make: Any) -> None:
    case: builders.Case = make()
    place.write_config("")
    place.database.iot.drop()
    place.database.ticks.drop()
    case.load(place.database)
    told = advise(place, case.policy.collection).json
    assert told["model"] == case.policy.model
    assert told["sample"]["tried_readings"] == len(case.readings)
