"""`advise --shard-keys` on documents whose order, series and sizes are known."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import ObjectId
from pymongo import MongoClient

from tests.buckets.sharding.test_shard_queries import is_javascript
from tests.jobs.command import CommandLine
from tests.jobs.place import Db, Place

START = datetime(2024, 1, 1, tzinfo=UTC)
SYMBOLS = [*["MDB"] * 4, *"ABCD"]  # MDB has half of the documents
HOURS = 250
KEYS = (
    "symbol,d;d;d,symbol;symbol;symbol:hashed;_id:hashed;_id;day,symbol;uid;nope;p;tags;d:hashed,uid:hashed"
    ";symbol:hashed,d"
)
POLICY = """
[policies.ticks]
collection = "ticks"
model = "reading"
time_field = "d"
series_fields = ["symbol"]
value_fields = ["p"]
[policies.ticks.archive]
after = "40d"
to = "offline"
[policies.weather]
collection = "weather"
model = "timeseries"
time_field = "at"
series_fields = ["of.station"]
value_fields = ["t"]
[policies.minutes]
collection = "minutes"
model = "slots"
slot = "second"
time_field = "d"
series_fields = ["symbol"]
value_fields = ["p"]
"""
Advise = Callable[..., dict[str, Any]]


def documents() -> Iterator[dict[str, Any]]:
    for hour in range(HOURS):
        for place, symbol in enumerate(SYMBOLS):
            at = START + timedelta(hours=hour, minutes=place)
            identity = int(at.timestamp()).to_bytes(4) + (hour * 8 + place).to_bytes(8)
            uid = (hour * 8 + place) * 2654435761 % 2**32
            yield {
                "_id": ObjectId(identity),
                "symbol": symbol,
                "d": at,
                "day": at.replace(hour=0, minute=0),
                "uid": f"{uid:08x}",
                "p": 1.5,
                "tags": ["a", "b"],
            }


@pytest.fixture(scope="module")
def market(mongodb_uri: str) -> Iterator[Db]:
    with MongoClient[dict[str, Any]](mongodb_uri) as client:
        database = client["shard_keys"]
        database.ticks.insert_many(documents())
        database.create_collection("weather", timeseries={"timeField": "at", "metaField": "of"})
        database.weather.insert_many(
            {"at": START + timedelta(minutes=n), "of": {"station": n % 5}, "t": 1.5} for n in range(500)
        )
        database.minutes.insert_many(
            {"symbol": "MDB", "d": START + timedelta(minutes=n), "p": {"0": n / 8}} for n in range(50)
        )
        database.create_collection("empty")
        yield database
        client.drop_database(database)


@pytest.fixture(scope="module")
def place(
    market: Db, tmp_path_factory: pytest.TempPathFactory, mongodb_uri: str, bucketwise: CommandLine
) -> Place:
    it = Place(tmp_path_factory.mktemp("shard_keys"), market, mongodb_uri, bucketwise)
    it.write_config(POLICY)
    return it


@pytest.fixture(scope="module")
def advise(place: Place) -> Advise:
    def run(*arguments: str) -> dict[str, Any]:
        ran = place("advise", *arguments, "--json", now="2024-01-11T00:00:00Z")
        assert ran.code == 0, ran
        return ran.json

    return run


@pytest.fixture(scope="module")
def compared(place: Place, advise: Advise) -> dict[str, Any]:
    """What is told of all keys. Nothing changes by it."""
    before = place.everything()
    body = advise("ticks", "--shard-keys", KEYS, "--shards", "4")
    assert place.everything() == before
    return body


def by_key(body: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {",".join(f"{path}:{how}" for path, how in it["key"].items()): it for it in body["shard_keys"]}


def test_each_pattern_has_its_name_and_its_numbers(compared: dict[str, Any]) -> None:
    body = compared
    assert body["sharding"] == {
        "shards": 4, "documents": 2000, "sampled": 2000, "readings": 2000, "range_bytes": 128 << 20,
        "arrival": "_id", "queries": "usual", "bytes": body["sharding"]["bytes"],
    }  # fmt: skip
    assert [it["named"] for it in body["shard_keys"]][: len(KEYS.split(";"))] == [True] * len(KEYS.split(";"))
    found = by_key(body)
    assert {it: found[it]["pattern"] for it in found if found[it]["named"]} == {
        "symbol:1,d:1": "multi-hotspot",
        "d:1": "ascending",
        "d:1,symbol:1": "firehose",
        "symbol:1": "location",
        "symbol:hashed": "hashed",
        "_id:hashed": "hashed",
        "_id:1": "ascending",
        "day:1,symbol:1": "multi-hotspot",
        "uid:1": "random",
        "nope:1": "location",
        "p:1": "location",
        "tags:1": None,
        "d:hashed,uid:hashed": None,
        "symbol:hashed,d:1": "hashed",
    }
    distinct = {"symbol:1": 5, "d:1": 2000, "day:1,symbol:1": 11 * 5, "uid:1": 2000, "nope:1": 1}
    assert {it: found[it]["cardinality"] for it in distinct} == distinct
    assert found["symbol:1"]["most_frequent"] == 0.5
    assert found["_id:hashed"]["hottest_share"] == pytest.approx(0.25)
    assert found["_id:hashed"]["targeted_share"] == 0
    for key in ("d:1", "_id:1", "d:1,symbol:1"):
        assert found[key]["monotonic"]
        assert found[key]["rank_correlation"] == pytest.approx(1)
        assert found[key]["hottest_share"] == 1
    for key in ("symbol:1,d:1", "symbol:1"):
        assert not found[key]["monotonic"]
        assert found[key]["hottest_share"] == pytest.approx(0.5, abs=0.01)  # MDB
        assert found[key]["targeted_share"] == pytest.approx(2 / 3, abs=0.02)
    assert 0.25 <= found["uid:1"]["hottest_share"] < 0.35


def test_rules(advise: Advise) -> None:
    keys = "symbol;_id:hashed;nope;tags;d:hashed,uid:hashed"
    found = by_key(advise("ticks", "--shard-keys", keys, "--shards", "8"))
    rules = {key: {it["rule"]: it["severity"] for it in one["rules"]} for key, one in found.items()}
    assert rules["tags:1"]["no-arrays"] == "error"
    assert rules["d:hashed,uid:hashed"]["one-hashed"] == "error"
    assert rules["nope:1"] == {"missing": "warning", "cardinality": "warning", "unique-id": "note"}
    assert rules["symbol:1"] == {"cardinality": "warning", "unique-id": "note"}
    assert rules["_id:hashed"] == {}
    for key in ("tags:1", "d:hashed,uid:hashed"):
        assert found[key]["commands"] == []
        assert found[key]["hottest_share"] is None


def test_values_of_slots_are_no_key(advise: Advise) -> None:
    """They change as a bucket fills."""
    found = by_key(advise("minutes", "--shard-keys", "symbol,d;p;p.0"))
    changing = {
        key: "immutable" in {it["rule"] for it in one["rules"]} for key, one in found.items() if one["named"]
    }
    assert changing == {"symbol:1,d:1": False, "p:1": True, "p.0:1": True}


@pytest.mark.proof
def test_more_readings_than_there_are(advise: Advise) -> None:
    """A key of few values can't split them, and one that ascends has the balancer move all but a part."""
    body = advise("ticks", "--shard-keys", "symbol;d;symbol,d", "--shards", "4", "--shard-readings", "1e12")
    found = by_key(body)
    assert body["sharding"]["readings"] == 10**12
    ranges = body["sharding"]["bytes"] / (128 << 20)
    assert found["symbol:1"]["jumbo"] == 5
    assert found["symbol:1,d:1"]["jumbo"] == 0
    assert 0.6 * ranges < found["d:1"]["migrations"] < 0.8 * ranges
    at_the_end = [it["bytes"] for it in found["d:1"]["shards"]]
    assert max(at_the_end) < 1.1 * min(at_the_end)
    assert sum(at_the_end) == pytest.approx(body["sharding"]["bytes"], rel=1e-6)
    for one in found.values():
        for window in one["over_time"]:
            assert sum(window["writes"]) == pytest.approx(1)


@pytest.mark.proof
def test_commands_are_javascript(place: Place, compared: dict[str, Any]) -> None:
    place.database.one.replace_one({"_id": 1}, {}, upsert=True)
    found = by_key(compared)
    for one in found.values():
        assert all(is_javascript(place.database, it) for it in one["commands"])
    told = "\n".join(found["symbol:1,d:1"]["commands"])
    assert 'sh.shardCollection("shard_keys.ticks", { "symbol": 1, "d": 1 })' in told
    assert 'sh.splitAt("shard_keys.ticks", { "symbol": "MDB", "d": MinKey() })' in told
    assert "Zone" not in told
    zones = "\n".join(found["d:1"]["commands"])
    assert "splitAt" not in zones
    # A quarter of the 40 days that the policy keeps.
    assert '{ "d": ISODate("2024-01-01T00:00:00.000Z") }, { "d": MaxKey() }, "hot")' in zones
    assert zones.count("addShardToZone") == 4
    assert "presplitHashedZones: true" in "\n".join(found["symbol:hashed,d:1"]["commands"])


def test_queries_of_a_file_and_of_the_profiler(place: Place, advise: Advise) -> None:
    path = place.folder / "queries.json"
    path.write_text(
        '{"symbol": "MDB"}\n{"p": 1.5}\n{"symbol": {"$in": ["A", "MDB"]}}\n\n{"symbol": "A", "p": 2}\n'
    )
    body = advise("ticks", "--shard-keys", "symbol", "--queries", str(path), "--shards", "5")
    assert body["sharding"]["queries"] == "file"
    assert by_key(body)["symbol:1"]["targeted_share"] == 0.5
    place.database.command("profile", 2)
    try:
        for symbol in "AB":
            place.database.ticks.find_one({"symbol": symbol})
        list(place.database.ticks.aggregate([{"$match": {"p": 1.5}}, {"$limit": 1}]))
    finally:
        place.database.command("profile", 0)
    body = advise("ticks", "--shard-keys", "symbol", "--shards", "5")
    assert body["sharding"]["queries"] == "profiler"
    assert by_key(body)["symbol:1"]["targeted_share"] == pytest.approx(2 / 3)
    place.database["system.profile"].drop()


def test_a_native_time_series(advise: Advise) -> None:
    found = by_key(
        advise("weather", "--shard-keys", "of.station,at;at,of.station;_id;at:hashed", "--shards", "2")
    )
    assert found["of.station:1,at:1"]["commands"] == [
        'sh.shardCollection("shard_keys.weather", { "of.station": 1, "at": 1 })'
    ]
    for refused in ("at:1,of.station:1", "_id:1", "at:hashed"):
        assert [it["severity"] for it in found[refused]["rules"]] == ["error"], refused
    assert found["of.station:1"]["cardinality"] == 5
    likely = by_key(advise("weather", "--shards", "2"))
    assert {"of.station:1", "of.station:1,at:1", "at:1"} <= set(likely)
    assert {it["severity"] for it in likely["at:1"]["rules"]} == {"warning"}


@pytest.mark.in_turn(3)
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["ticks", "--shard-keys", "a,,b"], "a part of the field's path is empty"),
        (["ticks", "--queries", "missing.json"], "--queries missing.json: No such file or directory"),
        (["ticks", "--queries", "bad.json"], "--queries bad.json, line 2: not valid JSON"),
        (["ticks", "--queries", "list.json"], "--queries list.json, filter 1: it is not an object"),
        (["ticks", "--shards", "2", "--html", "x.html"], "--html and --scratch are about models"),
        (["empty", "--shards", "2"], "it is empty"),
    ],
)
def test_what_can_not_be(place: Place, arguments: list[str], told: str) -> None:
    (place.folder / "bad.json").write_text('{"symbol": "MDB"}\n{"symbol": \n')
    (place.folder / "list.json").write_text(json.dumps([[1]]))
    ran = place("advise", *arguments)
    assert ran.code == 2
    assert told in ran.err
