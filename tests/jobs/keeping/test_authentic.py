"""Only what runs of this database have archived is read: files of another one, and records that were changed,
are named, and nothing is restored or removed because of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from bson import decode, encode

from tests.jobs.keeping.test_proof import KEY, set_key
from tests.jobs.place import MINUTES, START, Place
from tests.jobs.states import States, after

RECEIPTS = "bucketwise_receipts"


def unsigned(_: Place) -> None:
    """As a policy file is without a key."""


def signed(place: Place) -> None:
    set_key(place, f'"{KEY}"')


@pytest.fixture(params=[unsigned, signed], ids=lambda it: it.__name__)
def archived(states: States, request: pytest.FixtureRequest) -> Place:
    """Three hours in an archive, of which no original is left."""
    return states.at(request.param, "run -p ticks")


@pytest.fixture
def other(place: Place) -> Iterator[Place]:
    """Another database under the same policies without a key, with its own store: the same `_id`s, and other
    values."""
    database = place.database.client[f"{place.database.name}_other"]
    it = replace(place, folder=place.folder / "other", database=database)
    it.folder.mkdir()
    it.write_config()
    yield it
    database.client.drop_database(database)


def restored(place: Place) -> list[bytes]:
    found = sorted(encode(it) for it in place.database.back.find())
    place.database.back.drop()
    return found


@pytest.mark.proof
def test_files_of_another_database(archived: Place, other: Place) -> None:
    """A store was synchronized to the wrong prefix."""
    assert archived("restore", "-p", "ticks", "--to", "back").code == 0
    genuine = restored(archived)
    assert len(genuine) == MINUTES
    other.database.ticks.insert_many({**decode(it), "p": {"0": 1.0}} for it in genuine)
    assert other("run", "-p", "ticks").code == 0
    store = archived.folder / "store/ticks"
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    for kind in ("data", "meta/buckets", "meta/manifests"):
        shutil.copytree(other.folder / "store/ticks" / kind, store / kind, dirs_exist_ok=True)
    for verb in ("run", "verify"):
        assert archived(verb, "-p", "ticks").code == 5, verb
    assert archived("audit", "-p", "ticks").code == 4
    ran = archived("restore", "-p", "ticks", "--to", "back")
    assert (ran.code, restored(archived)) in [(5, []), (0, genuine)]
    count = archived("query", "SELECT count(*) AS n FROM ticks", "--json")
    assert count.json["rows"] == [[MINUTES * 60]]
    assert {path: path.read_bytes() for path in before} == before
    for path in (it for it in store.rglob("*") if it.is_file() and it not in before):
        path.unlink()
    for verb in ("run", "verify", "audit"):
        assert archived(verb, "-p", "ticks").code == 0, verb


@pytest.mark.in_turn(3)
@pytest.mark.parametrize(
    "change",
    [
        {"$set": {"state": "replaced", "replaced_by": None}},
        {"$set": {"state": "replaced", "replaced_by": "2018-06-30_2018-06-30_f000001_0000000000000000"}},
        {"$set": {"kind": "dropped"}},
        {"$set": {"days": [20000]}},
        {"$unset": {"seal": ""}},
    ],
    ids=["ended", "replaced", "dropped", "days", "seal"],
)
@after(signed, "run -p ticks")
def test_a_record_of_a_commit_was_changed(place: Place, change: dict[str, Any]) -> None:
    """No copy goes, no less is restored with 0, and it is named."""
    store = place.folder / "store/ticks"
    before = {path for path in store.rglob("*") if path.is_file()}
    of_commit = {"kind": "offline", "_id.policy": "ticks"}
    assert place.database[RECEIPTS].update_one(of_commit, change).modified_count == 1
    ran = place("restore", "-p", "ticks", "--to", "back")
    assert (ran.code, len(restored(place))) in [(5, 0), (0, MINUTES)]
    place("run", "-p", "ticks")
    assert place("verify", "-p", "ticks").code == 5
    assert place("audit", "-p", "ticks").code == 4
    assert before <= {path for path in store.rglob("*") if path.is_file()}


@pytest.mark.proof
@after("run -p ticks")
def test_an_older_database_beside_a_newer_store(place: Place) -> None:
    """What it has forgotten is named, and lost to nobody, until `adopt` has verified and registered it."""
    late = [{"_id": n, "symbol": "MDB", "d": START + timedelta(days=2), "p": {"0": 1.0}} for n in (1, 2)]
    books = {name: list(place.database[name].find()) for name in place.database.list_collection_names()}
    place.database.ticks.insert_many(late)
    assert place("run", "-p", "ticks").code == 0
    for name in place.database.list_collection_names():
        place.database[name].delete_many({})
        if found := books.get(name):
            place.database[name].insert_many(found)
    store = {path: path.read_bytes() for path in (place.folder / "store").rglob("*.parquet")}
    for verb in ("run", "verify"):
        ran = place(verb, "-p", "ticks")
        assert (ran.code, "bucketwise adopt" in ran.out + ran.err) == (5, True), verb
    assert place("restore", "-p", "ticks", "--to", "back").code == 5
    assert {path: path.read_bytes() for path in store} == store
    assert place("adopt", "-p", "ticks", "--reason", "the backup of Monday").code == 0
    for verb in ("run", "verify", "audit"):
        assert place(verb, "-p", "ticks").code == 0, verb
    assert place("restore", "-p", "ticks", "--to", "back").code == 0
    assert len(restored(place)) == MINUTES + len(late)


@pytest.mark.proof
@pytest.mark.parametrize(
    ("policy", "count"), [("ticks", 6), ("iot", 2), pytest.param("iot", 6, marks=pytest.mark.proof)]
)
@after("run")
def test_readers_take_what_is_signed(place: Place, policy: str, count: int) -> None:
    """Where there is a key. Without one they go by the seals, and a proof has to have it."""
    reads = (
        ("drill", "-p", policy),
        ("restore", "-p", policy, "--to", "back"),
        ("readings", "-p", policy, "--output", "readings.csv"),
        ("query", f"SELECT count(*) AS n FROM {policy}"),
        ("coverage", "-p", policy),
        ("explain", "-p", policy, "--at", "2018-06-30T00:30:00Z"),
    )[:count]

    def codes() -> dict[str, int]:
        return {verb: place(verb, *given).code for verb, *given in reads}

    set_key(place, f'"{KEY}"')
    assert codes() == {verb: 5 for verb, *_ in reads}
    assert place.database.back.count_documents({}) == 0
    assert place("sign", "-p", policy).code == 0
    assert set(codes().values()) == {0}
    set_key(place, "[]")
    assert codes() == {verb: 5 if verb == "drill" else 0 for verb, *_ in reads}
