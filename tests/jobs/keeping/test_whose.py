"""Whose archive it is: clones of a database, stores that are not there, and archives that are taken over."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import bson
import pytest
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient

from bucketwise.jobs.core.embedded import embedded_mongod
from tests.jobs.place import NOW, POLICIES, START, Place
from tests.jobs.states import after

LATER = "2018-10-01T00:00:00Z"
RAW: Any = MongoClient[Any](connect=False, document_class=RawBSONDocument).codec_options


@pytest.fixture(scope="module")
def other() -> Iterator[MongoClient[dict[str, Any]]]:
    """Another replica set."""
    with (
        embedded_mongod() as mongod,
        MongoClient[dict[str, Any]](mongod.uri, tz_aware=True) as client,
    ):
        yield client


def dump(place: Place) -> dict[str, list[Any]]:
    database = place.database
    names = database.list_collection_names(filter={"name": {"$not": {"$regex": "^system"}}})
    return {name: list(database.get_collection(name, codec_options=RAW).find()) for name in names}


def put_back(place: Place, dumped: dict[str, list[Any]]) -> None:
    """Restores what was dumped, into the collections that are there: they keep their UUIDs, as on a disk."""
    for name in place.database.list_collection_names(filter={"name": {"$not": {"$regex": "^system"}}}):
        place.database[name].delete_many({})
    for name, documents in dumped.items():
        if name not in place.database.list_collection_names():
            place.database.create_collection(name)
        if documents:
            place.database.get_collection(name, codec_options=RAW).insert_many(documents)


def files(place: Place) -> dict[str, bytes]:
    found = (it for it in (place.folder / "store").rglob("*") if it.is_file())
    return {str(it.relative_to(place.folder)): it.read_bytes() for it in found}


def restored_as(place: Place, client: MongoClient[dict[str, Any]]) -> Place:
    """The database restored from a dump on another replica set, with the same policy file and store."""
    host, port = client.address or ("", 0)
    uri = f"mongodb://{host}:{port}/?replicaSet=bucketwise"
    staging = replace(place, database=client[place.database.name], uri=uri)
    put_back(staging, dump(place))
    return staging


@pytest.mark.proof
@after("run -p ticks")
def test_a_dump_restored_as_staging_writes_nothing(place: Place, other: MongoClient[dict[str, Any]]) -> None:
    staging = restored_as(place, other)
    before = files(place)
    erasure = ("erase", "--series", "symbol=MDB", "--reason", "why", "--confirm", "ticks")
    for verb in (("run",), ("archive",), ("compact",), ("sign",), erasure):
        ran = staging(*verb, "-p", "ticks", "--json", now=LATER)
        assert ran.code == 5, (verb, ran)
        message = ran.policy("ticks")["error"]
        assert re.search(r", written by \S+ on \S+ at \S+\.[0-9]{3}\+00:00, and this is another", message)
        assert "this is another deployment" in message and "bucketwise adopt --reason TEXT" in message
        assert files(place) == before, verb
    (found,) = (
        it
        for it in staging("check", "-p", "ticks", "--json").policy("ticks")["findings"]
        if it["code"] == "archive-not-ours"
    )
    assert found["severity"] == "error"
    assert staging("restore", "-p", "ticks", "--to", "back").code == 0  # reading is allowed
    assert staging.database.back.count_documents({}) == 180
    assert place("run", "-p", "ticks", now=LATER).code == 0
    assert place("verify", "-p", "ticks").code == 0
    other.drop_database(staging.database.name)


@after("run -p ticks")
def test_adopt_moves_it_over_and_the_former_owner_halts(
    place: Place, other: MongoClient[dict[str, Any]]
) -> None:
    moved = restored_as(place, other)
    assert moved("adopt", "-p", "ticks").code == 2  # without a reason
    ran = moved("adopt", "-p", "ticks", "--reason", "moved to Frankfurt", "--json")
    assert ran.code == 0, ran
    told = ran.policy("ticks")["adopted"]
    assert told["lineage"] == 2 and place.database.name in told["from"]
    assert moved("adopt", "-p", "ticks", "--reason", "again", "--json").policy("ticks")["adopted"] is None
    moved.database.ticks.insert_one({"symbol": "A", "d": START, "p": {"1": 1.0}})
    assert moved("run", "-p", "ticks", now=LATER).code == 0
    assert moved("verify", "-p", "ticks").code == 0
    proof = moved("audit", "-p", "ticks", "--json", now=LATER).policy("ticks")["proof"]
    assert [it["kind"] for it in proof["events"]] == ["adopt"]
    assert proof["ownership"]["lineage"] == 3
    former = place("run", "-p", "ticks", "--json", now=LATER)
    assert former.code == 5 and "belongs to another database" in former.policy("ticks")["error"]
    other.drop_database(moved.database.name)


@after("run -p ticks")
def test_what_was_archived_after_the_backup_is_rolled_up_once_it_is_adopted(
    place: Place, other: MongoClient[dict[str, Any]]
) -> None:
    moved = restored_as(place, other)
    place.database.ticks.insert_one({"symbol": "A", "d": START + timedelta(days=3), "p": {"1": 1.0}})
    assert place("run", "-p", "ticks", now=LATER).code == 0
    assert place.database.ticks.count_documents({}) == 0
    assert moved("adopt", "-p", "ticks", "--reason", "moved").code == 0
    assert moved("run", "-p", "ticks", now=LATER).code == 0
    for name in ("ticks_hourly", "ticks_daily"):
        theirs, mine = (sorted(bson.encode(it) for it in one.database[name].find()) for one in (place, moved))
        assert theirs == mine
    other.drop_database(moved.database.name)


@after("run -p ticks")
def test_a_summary_of_what_another_database_took_out_is_told_once_it_is_adopted(
    place: Place, other: MongoClient[dict[str, Any]]
) -> None:
    day = START + timedelta(days=2)
    place.write_config(POLICIES.replace('after = "30d"', 'after = "30d"\ngrace = "3d"'))
    place.database.ticks.insert_one({"_id": 1, "symbol": "A", "d": day, "p": {"1": 1.0}})
    assert place("run", "-p", "ticks").code == 0
    moved = restored_as(place, other)
    place.database.ticks.delete_one({"_id": 1})  # its copy counts, so far
    assert place("run", "-p", "ticks", now="2018-09-02T00:00:00Z").code == 0
    moved.database.ticks.update_one({"_id": 1}, {"$set": {"d": day + timedelta(days=5)}})
    assert moved("adopt", "-p", "ticks", "--reason", "moved").code == 0
    assert moved("run", "-p", "ticks", now="2018-09-03T00:00:00Z").code == 3  # it waits for its grace
    assert place("adopt", "-p", "ticks", "--reason", "moved back").code == 0
    ran = place("run", "-p", "ticks", "--json", now="2018-09-08T00:00:00Z")
    rolled_up = ran.policy("ticks")["rollup"]
    assert (ran.code, rolled_up["kept"], rolled_up["gone"]) == (3, 2, 1)  # its hour and its day
    other.drop_database(moved.database.name)


@pytest.mark.proof
@after("run -p ticks")
def test_of_a_database_and_its_snapshot_the_second_to_write_halts(place: Place) -> None:
    """On the same host and port, with the same UUIDs: only the lineage tells them apart."""
    late = {"symbol": "B", "d": START, "p": {"1": 1.0}}
    snapshot = dump(place)
    place.database.ticks.insert_one(dict(late))
    assert place("run", "-p", "ticks", now=LATER).code == 0
    put_back(place, snapshot)
    place.database.ticks.insert_one(dict(late))
    before = files(place)
    for verb in ("archive", "run"):
        ran = place(verb, "-p", "ticks", "--json", now=LATER)
        assert ran.code == 5, (verb, ran)
        assert files(place) == before
    message = ran.policy("ticks")["error"]
    assert "somebody else has written there: its lineage is at 2, moved by " in message
    assert place.database.ticks.count_documents({}) == 1
    assert place("adopt", "-p", "ticks", "--reason", "restored from a backup").code == 0
    assert place("run", "-p", "ticks", now=LATER).code == 0
    assert place.database.ticks.count_documents({}) == 0
    assert place("verify", "-p", "ticks").code == 0


MORE = POLICIES + POLICIES[: POLICIES.index("[policies.iot]")].replace("ticks", "prices")


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize("is_mount", [True, False], ids=["an empty mount point", "no directory"])
@after("run -p ticks")
def test_a_new_policy_does_not_write_where_the_store_is_not_mounted(place: Place, is_mount: bool) -> None:
    place.write_config(MORE)
    place.database.prices.create_index("d")
    place.database.prices.insert_one({"symbol": "A", "d": START, "p": {"1": 1.0}})
    store: Path = place.folder / "store"
    store.rename(place.folder / "unmounted")
    if is_mount:
        store.mkdir()
    ran = place("run", "-p", "ticks", "-p", "prices", "--json")
    assert ran.code == 5
    assert [it["exit_code"] for it in ran.json["policies"]] == [5, 5]
    assert is_mount or ("Mount it, put it back" in ran.policy("ticks")["error"] and "mkdir" not in ran.out)
    checked = place("check", "-p", "prices", "--json").policy("prices")["findings"]
    assert "error" in {it["severity"] for it in checked}
    assert store.exists() == is_mount and place.database.prices.count_documents({}) == 1
    assert not is_mount or list(store.iterdir()) == []
    shutil.rmtree(store, ignore_errors=True)
    (place.folder / "unmounted").rename(store)
    assert place("run", "-p", "ticks", "-p", "prices").code == 0
    assert place.database.prices.count_documents({}) == 0


def test_a_store_that_was_never_used_is_not_created(place: Place) -> None:
    (place.folder / "store").rmdir()
    for verb in ("plan", "run"):
        ran = place(verb, "-p", "ticks", "--json")
        assert ran.code == 1 and "mkdir -p" in ran.policy("ticks")["error"]
    checked = place("check", "-p", "ticks", "--json")
    assert {"store", "store-absent"} <= {
        it["code"]
        for it in (*checked.json["findings"], *checked.policy("ticks")["findings"])
        if it["severity"] == "error"
    }
    assert not (place.folder / "store").exists()
    assert place.database.ticks.count_documents({}) == 180


@pytest.mark.proof
@after("run -p ticks --now 2018-07-01T00:00:00Z")
def test_nothing_is_claimed_where_nothing_is_archived(place: Place) -> None:
    assert files(place) == {}
    assert place("run", "-p", "ticks", now=NOW).code == 0
    before = {it for it in files(place) if "lineage" in it}
    assert len(before) == 1
    assert place("run", "-p", "ticks", now=LATER).code == 0
    assert {it for it in files(place) if "lineage" in it} == before
