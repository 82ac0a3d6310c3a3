"""Claims of an archive: runs that die in the middle of one, and databases that claim at the same time."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from bucketwise.archivers.binding import Binding, BindingState
from bucketwise.archivers.markers import KEY as MARKER
from bucketwise.archivers.markers import (
    MOST_BEGUN,
    Deployment,
    Topology,
    listed_collections,
    present_deployment,
    read_marker,
    read_record,
)
from bucketwise.archivers.records.receipts import NO_RUN, Receipts
from bucketwise.archivers.stores import open_store
from bucketwise.archivers.stores.base import ObjectStore, StoreObject
from bucketwise.archivers.stores.file import FileStore
from bucketwise.config.errors import HaltedError
from bucketwise.config.tables import Store
from bucketwise.rollups.context import transaction
from tests.archivers.faults import Crash
from tests.archivers.harness import nothing

Document = dict[str, Any]
OWNER = "ticks/meta/owner.json"


class Meddled(FileStore):
    """A folder that can't refuse to replace an object. `before` and `after` a put of a key, something else
    happens, once."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.before: dict[str, Callable[[], None]] = {}
        self.after: dict[str, Callable[[], None]] = {}

    def put_bytes(self, key: str, data: bytes, **given: Any) -> None:
        kind = "step" if "/lineage/" in key else key
        self.before.pop(kind, nothing)()
        super().put_bytes(key, data, **given | {"if_absent": False})
        self.after.pop(kind, nothing)()

    def replaced(self, key: str, data: bytes) -> Callable[[], None]:
        return partial(FileStore.put_bytes, self, key, data)


@pytest.fixture
def store(tmp_path: Path) -> Meddled:
    (tmp_path / "store").mkdir()
    return Meddled(tmp_path / "store")


@pytest.fixture
def other(client: MongoClient[Document]) -> Iterator[Database[Document]]:
    """Another database."""
    name = f"test_{uuid4().hex[:12]}"
    yield client[name]
    client.drop_database(name)


def binding(database: Database[Document], store: ObjectStore) -> Binding:
    """As a new run has it."""
    run = replace(NO_RUN, run=uuid4().hex, host="here", user="me")
    transact = partial(transaction, database, nothing)

    def present(anew: bool) -> Deployment:
        return present_deployment(database, listed_collections(database), Topology(), anew=anew)

    return Binding(Receipts(database, "ticks"), store, run, transact, BindingState(), present)


def dies() -> None:
    raise Crash


def steps(store: ObjectStore) -> list[str]:
    return [it.key for it in store.list("ticks/meta/lineage/")]


@pytest.mark.proof
def test_the_first_step_stays_our_own_however_many_runs_die_after_it(
    database: Database[Document], store: Meddled
) -> None:
    for when in (store.after, *[store.before] * 2 * MOST_BEGUN):
        when["step"] = dies
        with pytest.raises(Crash):
            binding(database, store).claim()
    assert len(steps(store)) == 1
    for _ in range(2 * MOST_BEGUN):
        store.after["step"] = dies
        with pytest.raises(Crash):
            binding(database, store).claim()
    assert len(steps(store)) == 2
    recorded = read_record(Receipts(database, "ticks"), store.url).lineage
    assert recorded.done == 0 and len(recorded.begun) <= MOST_BEGUN + 2
    binding(database, store).claim()
    assert len(steps(store)) == 1
    binding(database, store).check_claim()


@pytest.mark.parametrize("steps_before", [0, 1])
def test_a_clone_that_was_made_while_a_step_was_put_halts_once_that_run_went_on(
    database: Database[Document], store: Meddled, steps_before: int
) -> None:
    for _ in range(steps_before):
        binding(database, store).claim()
    receipts = database["bucketwise_receipts"]
    cloned: list[Document] = []
    store.after["step"] = lambda: cloned.extend(receipts.find())
    binding(database, store).claim()
    binding(database, store).check_claim()
    for document in cloned:
        receipts.replace_one({"_id": document["_id"]}, document)
    with pytest.raises(HaltedError, match="somebody else went on from the last step of its lineage"):
        binding(database, store).claim()
    reason = binding(database, store).reason_to_adopt()
    assert reason is not None and f"{steps_before + 1}, moved by me on here" in reason


def test_of_two_first_claims_the_one_that_was_overtaken_puts_no_owner(
    database: Database[Document], store: Meddled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It slept after its last look; the other one was killed right after it put its step."""
    listing, listed = store.list, list[int]()

    def slow(prefix: str = "", after: str = "") -> Iterator[StoreObject]:
        found = list(listing(prefix, after))
        listed.append(len(found))
        if len(listed) == 2:
            store.after["step"] = dies
            with pytest.raises(Crash):
                binding(database, store).claim()
        return iter(found)

    with monkeypatch.context() as patched:
        patched.setattr(store, "list", slow)
        with pytest.raises(HaltedError, match="another run has moved the lineage"):
            binding(database, store).claim()
    assert store.head(OWNER) is None
    for _ in range(2):
        binding(database, store).claim()


def test_an_archive_from_before_there_was_a_lineage_is_claimed_though_a_run_is_killed(
    database: Database[Document], store: Meddled
) -> None:
    binding(database, store).claim()
    owner = json.loads(store.get_bytes(OWNER))
    store.delete(steps(store))
    store.put_bytes(OWNER, json.dumps({key: owner[key] for key in ("owner", "database")}).encode())
    database["bucketwise_receipts"].update_one(
        {"_id.name": "owner"}, {"$unset": {"lineage": "", "deployment": ""}}
    )
    store.after["step"] = dies
    with pytest.raises(Crash):
        binding(database, store).claim()
    for _ in range(2):
        binding(database, store).claim()


@pytest.mark.parametrize("when", [MARKER, "step"], ids=["at once", "once it was read back"])
def test_a_marker_that_another_database_put_in_its_place_is_taken(
    database: Database[Document], store: Meddled, when: str
) -> None:
    store.after[when] = store.replaced(MARKER, json.dumps({"id": "another"}).encode())
    binding(database, store).claim()
    assert read_marker(store) == "another"
    binding(database, store).check_claim()
    binding(database, store).claim()


@pytest.mark.parametrize("key", [MARKER, OWNER])
def test_what_was_torn_is_removed_and_the_next_run_goes_on(
    database: Database[Document], store: Meddled, key: str
) -> None:
    store.after[key] = store.replaced(key, b'{"id": "on')
    with pytest.raises(HaltedError, match="read back, it is not what was written"):
        binding(database, store).claim()
    assert store.head(key) is None
    binding(database, store).claim()
    binding(database, store).check_claim()


def test_the_owner_that_another_database_put_in_its_place_stays(
    database: Database[Document], store: Meddled
) -> None:
    theirs = json.dumps({"owner": "another", "database": "plant"}).encode()
    store.after[OWNER] = store.replaced(OWNER, theirs)
    with pytest.raises(HaltedError, match="another database has just begun to archive there"):
        binding(database, store).claim()
    assert store.get_bytes(OWNER) == theirs
    with pytest.raises(HaltedError, match="it belongs to another database: database plant"):
        binding(database, store).claim()


def test_the_second_of_two_that_begin_at_once_halts_and_the_first_goes_on(
    database: Database[Document], other: Database[Document], store: Meddled
) -> None:
    store.before["step"] = binding(other, store).claim
    with pytest.raises(HaltedError, match="somebody else has written there: its lineage is at 1"):
        binding(database, store).claim()
    found = json.loads(store.get_bytes(OWNER))
    assert found["database"] == other.name
    assert read_record(Receipts(other, "ticks"), store.url).owner == found["owner"]


@pytest.mark.in_turn(1)
@pytest.mark.parametrize("kind", ["file", "moto", "rclone"])
def test_of_two_that_claim_at_once_one_goes_on_at_most(
    database: Database[Document], other: Database[Document], kind: str, request: pytest.FixtureRequest
) -> None:
    settings: Store = request.getfixturevalue(f"{kind}_store")
    both = (database, other)

    def claim(at: tuple[Database[Document], str]) -> bool:
        mine = binding(at[0], open_store(settings.model_copy(update={"url": at[1]})))
        meet.wait(60)
        try:
            mine.claim()
        except HaltedError:
            return False
        return True

    with ThreadPoolExecutor(2) as threads:
        for number in range(6):
            url = f"{settings.url}/{number}"
            if kind == "file":
                Path(url.removeprefix("file://")).mkdir()
            meet = threading.Barrier(2)
            done = list(threads.map(claim, [(it, url) for it in both]))
            store = open_store(settings.model_copy(update={"url": url}))
            found = read_marker(store)  # it can be read
            assert sum(done) <= 1
            if any(done):
                assert found is not None
                winner = both[done.index(True)]
                assert json.loads(store.get_bytes(OWNER))["database"] == winner.name
            for it in both:
                it.client.drop_database(it.name)


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("what", ["step", OWNER])
def test_an_adoption_that_dies_is_done_again_and_nobody_writes_until_then(
    database: Database[Document], other: Database[Document], store: Meddled, what: str, when: str
) -> None:
    binding(other, store).claim()
    getattr(store, when)[what] = dies
    with pytest.raises(Crash):
        binding(database, store).adopt("moved")
    done = (what, when) == (OWNER, "after")  # but for its receipt
    assert binding(database, store).reason_to_adopt() is not None
    for it in (other,) if done else (other, database):
        with pytest.raises(HaltedError, match=r"another database|somebody else|rolled back"):
            binding(it, store).claim()
    binding(database, store).adopt("moved")
    binding(database, store).claim()
    with pytest.raises(HaltedError, match="it belongs to another database"):
        binding(other, store).claim()
