"""The chain of manifests: what a store that was put back, or a database that was, is told by."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from bucketwise.archivers.context import ArchiveReport, ArchiveState, Connections
from bucketwise.archivers.format.keys import Keys
from bucketwise.archivers.moving import sweep
from bucketwise.archivers.moving.archive import check_archive
from bucketwise.config.errors import HaltedError, LeaseLostError
from bucketwise.config.tables import Store
from bucketwise.jobs.audit.audit import audit_policy
from tests.archivers.builders import CODEC, Case, insert, slots
from tests.archivers.harness import Cycle
from tests.jobs.counting import CountingStore

Document = dict[str, Any]
RECEIPTS = "bucketwise_receipts"
KEY, OTHER = "k" * 32, "o" * 32


pytestmark = pytest.mark.usefixtures("quick_disk")


@pytest.fixture
def cycle(database: Database[Document], file_store: Store) -> Cycle:
    """Nothing is there yet."""
    base = slots("minute")
    return Cycle(database, Case(base.name, base.policy, base.documents, []), file_store)


def put(cycle: Cycle, first: int, last: int) -> None:
    insert(cycle.database, cycle.policy.collection, cycle.case.documents[first:last])


def archive_some(cycle: Cycle, *numbers: int) -> None:
    """A commit each, of two buckets."""
    for number in numbers:
        put(cycle, 2 * number, 2 * number + 2)
        assert cycle.run().deleted == 2


def drop_one(cycle: Cycle, number: int, *, whole: bool = False) -> None:
    """A commit of two buckets, of which one changes before its delete, or both do."""
    put(cycle, 2 * number, 2 * number + 2)
    cycle.case = cycle.case.with_archive(delete=False)
    cycle.run()
    for identity in (2 * number, 2 * number + 1)[: 2 if whole else 1]:
        cycle.database[cycle.policy.collection].update_one({"_id": identity}, {"$set": {"note": "new"}})
    cycle.case = cycle.case.with_archive(delete=True)
    assert cycle.run().deleted == 2


def folder(cycle: Cycle) -> Path:
    return cycle.root / cycle.policy.name


def manifests(cycle: Cycle) -> dict[str, Document]:
    """Those of commits that are there, and of dropped ones, in the order in which they were made."""
    paths = [*folder(cycle).glob("meta/manifests/*"), *folder(cycle).glob("meta/superseded/*.json")]
    found = sorted((json.loads(path.read_bytes()) for path in paths), key=lambda it: it["sequence"])
    return {it["sha256"]: it for it in found}


def heads(cycle: Cycle) -> list[str]:
    found = cycle.database[RECEIPTS].find_one({"_id.name": "heads"})
    return [link["sha256"] for link in found["commits"]] if found else []


def books(cycle: Cycle) -> list[Document]:
    return list(cycle.database.get_collection(RECEIPTS, codec_options=CODEC).find())


def put_back(cycle: Cycle, documents: list[Document]) -> None:
    """The receipts as they were, and only they."""
    books = cycle.database.get_collection(RECEIPTS, codec_options=CODEC)
    books.delete_many({})
    books.insert_many(documents)


def codes(cycle: Cycle) -> set[tuple[str, str]]:
    return {(it.code, it.severity) for it in audit_policy(cycle.context()).findings}


@pytest.mark.proof
def test_each_manifest_names_the_one_before(cycle: Cycle) -> None:
    archive_some(cycle, 0, 1)
    drop_one(cycle, 2)
    drop_one(cycle, 3, whole=True)
    archive_some(cycle, 4)
    chain = list(manifests(cycle).values())
    assert [it["sequence"] for it in chain] == list(range(1, len(chain) + 1))
    assert [[link["sha256"] for link in it["previous"]] for it in chain] == [
        [],
        *([it["sha256"]] for it in chain[:-1]),
    ]
    assert heads(cycle) == [chain[-1]["sha256"]]
    assert len(list(folder(cycle).glob("meta/superseded/*.json"))) == 2
    assert cycle.verify().bad == []
    assert codes(cycle) == set()


SINCE: dict[str, Callable[[Cycle], None]] = {
    "a commit": lambda cycle: archive_some(cycle, 1),
    "one that another took over": lambda cycle: drop_one(cycle, 2),
    "one that was dropped": lambda cycle: drop_one(cycle, 2, whole=True),
}


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("since", SINCE)
def test_a_store_of_yesterday(cycle: Cycle, tmp_path: Path, since: str) -> None:
    """Found before anything is written, whatever has happened since; with the right store all goes on."""
    archive_some(cycle, 0)
    shutil.copytree(cycle.root, tmp_path / "yesterday")
    SINCE[since](cycle)
    put(cycle, 6, 8)
    shutil.move(cycle.root, tmp_path / "today")
    shutil.copytree(tmp_path / "yesterday", cycle.root)
    before = cycle.listing(), books(cycle), cycle.live()
    for attempt in (cycle.run, lambda: check_archive(Connections(cycle.database, cycle.store), cycle.policy)):
        with pytest.raises(HaltedError, match="the store is not as it was left") as error:
            attempt()
        assert error.value.exit_code == 5
    assert "store-rolled-back" in {bad.code for bad in cycle.verify().bad}
    assert (cycle.listing(), books(cycle), cycle.live()) == before
    shutil.rmtree(cycle.root)
    shutil.move(tmp_path / "today", cycle.root)
    assert cycle.run().deleted == 2
    assert cycle.verify().bad == []


def test_a_commit_that_was_dropped_comes_back(cycle: Cycle) -> None:
    """The heads are there, and it could be one whose run has died; the receipts know that it was dropped."""
    put(cycle, 0, 1)
    cycle.case = cycle.case.with_archive(delete=False)
    cycle.run()
    held = {path: path.read_bytes() for path in folder(cycle).rglob("*2018-*") if path.is_file()}
    assert len(held) == 3
    cycle.database[cycle.policy.collection].update_one({"_id": 0}, {"$set": {"note": "new"}})
    cycle.case = cycle.case.with_archive(delete=True)
    cycle.run()
    assert not any(path.exists() for path in held)
    for path, data in held.items():
        path.write_bytes(data)
    assert "store-rolled-back" in {bad.code for bad in cycle.verify().bad}
    with pytest.raises(HaltedError, match="it was dropped, and has come back"):
        cycle.run()


def test_a_commit_is_dropped_while_verify_reads(cycle: Cycle) -> None:
    put(cycle, 0, 2)
    cycle.case = cycle.case.with_archive(delete=False)
    cycle.run()
    cycle.case = cycle.case.with_archive(delete=True)
    cycle.database[cycle.policy.collection].update_one({"_id": 0}, {"$set": {"note": "new"}})
    runs: list[ArchiveReport] = []

    def run() -> None:
        if not runs:
            runs.append(cycle.run())

    assert cycle.verify(check=run).bad == []
    assert runs[0].deleted == 2
    assert cycle.verify().bad == []


def test_the_record_of_the_heads_is_gone(cycle: Cycle) -> None:
    archive_some(cycle, 0)
    cycle.database[RECEIPTS].delete_one({"_id.name": "heads"})
    with pytest.raises(HaltedError, match="the record of the chain's heads is gone"):
        cycle.run()
    assert [bad.code for bad in cycle.verify().bad] == ["chain-broken"]


@pytest.mark.proof
def test_all_receipts_are_lost(cycle: Cycle) -> None:
    """The heads are found in the store, dropped commits included, and the chain goes on from there."""
    archive_some(cycle, 0, 1)
    drop_one(cycle, 2)
    before, archived = heads(cycle), cycle.archived()
    cycle.database[RECEIPTS].drop()
    cycle.adopt()
    assert heads(cycle) == before
    assert codes(cycle) == {("receipts-lost", "warning")}
    archive_some(cycle, 4)
    assert len(heads(cycle)) == 1
    assert cycle.verify().bad == []
    assert set(archived) < set(cycle.archived())


def test_another_step_of_the_same_number_is_told_from_ours(cycle: Cycle) -> None:
    archive_some(cycle, 0)
    (ours,) = cycle.store.list(f"{cycle.policy.identity}/meta/lineage/")
    number = int(Path(ours.key).name.partition("-")[0])
    key = f"{Path(ours.key).parent}/{number:010d}-other.json"
    cycle.store.put_bytes(key, b'{"user": "ann", "host": "db2", "at": "2026-07-01"}')
    told = f"another object of number {number} than the one from here, moved by ann on db2 at 2026-07-01"
    with pytest.raises(HaltedError, match=told):
        archive_some(cycle, 1)


@pytest.mark.proof
def test_a_database_older_than_the_store(cycle: Cycle) -> None:
    """Commits that it doesn't know are adopted; the receipts that it lost are told for good."""
    archive_some(cycle, 0, 1)
    older = books(cycle)
    archive_some(cycle, 2, 3)
    after = heads(cycle)
    put_back(cycle, older)
    with pytest.raises(HaltedError, match="somebody else has written there: its lineage is at 4"):
        cycle.run()
    cycle.adopt()
    assert heads(cycle) == after
    assert codes(cycle) == {("receipts-lost", "warning")}
    archive_some(cycle, 4)
    numbers = [it["sequence"] for it in books(cycle) if it["kind"] in ("delete", "gap")]
    assert numbers == [1, 2, 4, 5]  # the last manifest told of number 3; 4 says so
    assert codes(cycle) == {("receipts-lost", "warning")}


def test_receipts_that_the_archive_tells_of(cycle: Cycle) -> None:
    """The tail of the receipts was taken out, and the number of the last put back: manifests know better."""
    archive_some(cycle, 0, 1, 2)
    found = cycle.database[RECEIPTS].find_one({"_id.name": "delete-0000000001"})
    assert found
    cycle.database[RECEIPTS].delete_many({"_id.name": {"$in": ["delete-0000000002", "delete-0000000003"]}})
    cycle.database[RECEIPTS].update_one(
        {"_id.name": "last"}, {"$set": {"sequence": 1, "sha256": found["sha256"]}}
    )
    assert codes(cycle) == {("receipts-rolled-back", "error")}


def test_two_commits_after_one(cycle: Cycle) -> None:
    """A run that had lost its lease commits late: both are heads, until the next commit joins them."""
    archive_some(cycle, 0)
    put(cycle, 2, 4)
    others: list[ArchiveReport] = []

    class LateStore:
        """While the run is about to write its manifest, another one does the work."""

        def __getattr__(self, name: str) -> Any:
            return getattr(cycle.store, name)

        def put_bytes(self, key: str, data: bytes, **given: Any) -> None:
            if "/manifests/" in key and not others:
                others.append(cycle.run())  # under an older fence, whose clearing leaves the files alone
            cycle.store.put_bytes(key, data, **given)

    store: Any = LateStore()
    with pytest.raises(LeaseLostError):
        cycle.run(fence=9, guard=lost_after(others), store=store)
    assert others[0].deleted == 2
    cycle.fence = 9
    cycle.run()
    assert len(heads(cycle)) == 2
    assert cycle.verify().bad == []
    archive_some(cycle, 3)
    last = list(manifests(cycle).values())[-1]
    assert heads(cycle) == [last["sha256"]]
    assert len(last["previous"]) == 2
    assert cycle.verify().bad == []


def lost_after(others: list[ArchiveReport]) -> Callable[..., None]:
    """The lease is lost once another run has worked."""

    def guard(*_args: object) -> None:
        if others:
            raise LeaseLostError("another run took it")

    return guard


@pytest.mark.proof
def test_a_run_costs_the_same_after_many_commits(cycle: Cycle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "MAX_READINGS", 1)
    asked = []
    for number in range(4):
        archive_some(cycle, number)
        store: Any = CountingStore(cycle.store)
        cycle.run(store=store, state=ArchiveState(is_clean=True))
        asked.append(store.asked)
    assert all(it == asked[0] for it in asked)
    assert asked[0] == {"get_bytes": 2, "list": 1, "listed": 1}  # the head, the owner; from the head on


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_clean_run_finds_what_is_not_registered(cycle: Cycle, is_clean: bool) -> None:
    """A commit whose receipt was lost with a backup: each run looks at what stands behind the heads."""
    archive_some(cycle, 0)
    books_before = list(cycle.database[RECEIPTS].find())
    archive_some(cycle, 1)
    cycle.database[RECEIPTS].delete_many({})
    cycle.database[RECEIPTS].insert_many(books_before)
    with pytest.raises(HaltedError, match="somebody else has written there"):
        cycle.run(state=ArchiveState(is_clean=is_clean))
    cycle.adopt()
    assert cycle.verify().bad == []
    assert len(cycle.archived()) == 4


def test_a_manifest_that_is_lost_for_good(cycle: Cycle) -> None:
    """Its seal is given up by a person; the rest of the chain counts on."""
    archive_some(cycle, 0, 1, 2)
    second = list(manifests(cycle).values())[1]
    for path in [it for it in folder(cycle).rglob(f"*{second['commit']}*") if it.is_file()]:
        path.unlink()
    with pytest.raises(HaltedError, match="the manifest is missing"):
        cycle.run()
    cycle.database[RECEIPTS].delete_one({"_id.name": second["commit"]})
    assert [bad.code for bad in cycle.verify().bad] == ["chain-broken", "record-differs"]
    query = {"_id.policy": cycle.policy.name, "_id.name": "heads"}
    cycle.database[RECEIPTS].update_one(query, {"$addToSet": {"lost": second["sha256"]}})
    cycle.run()
    assert cycle.verify().bad == []


@pytest.mark.proof
def test_signing_is_turned_on(cycle: Cycle) -> None:
    archive_some(cycle, 0)
    drop_one(cycle, 2)
    put(cycle, 2, 4)
    cycle.keys = Keys(KEY)
    before = cycle.listing(), books(cycle), cycle.live()
    with pytest.raises(HaltedError, match="run `bucketwise sign`"):
        cycle.run()
    assert {bad.code for bad in cycle.verify().bad} == {"signature-missing"}
    assert (cycle.listing(), books(cycle), cycle.live()) == before
    signed = cycle.sign()
    assert (signed.manifests, signed.receipts) == (4, 3)
    assert cycle.verify().bad == []
    assert cycle.run().deleted == 2
    assert cycle.verify().bad == []
    assert all(it["signature"].startswith(f"{cycle.keys.first}:") for it in manifests(cycle).values())
    again = cycle.sign()
    assert (again.manifests, again.receipts) == (0, 0)
    cycle.keys = Keys()  # the policy file has lost it
    put(cycle, 6, 8)
    with pytest.raises(HaltedError, match="which is not among"):
        cycle.run()
    assert len(cycle.archived()) == 6  # what is archived is not locked away
    assert {bad.code for bad in cycle.verify().bad} == {"signature-missing"}


@pytest.mark.proof
def test_a_key_is_changed(cycle: Cycle) -> None:
    cycle.keys = Keys(KEY)
    archive_some(cycle, 0, 1)
    cycle.keys = Keys(OTHER, KEY)
    archive_some(cycle, 2)
    assert cycle.verify().bad == []
    cycle.keys = Keys(OTHER)
    assert {bad.code for bad in cycle.verify().bad} == {"signature-missing"}  # all but the last
    cycle.keys = Keys(OTHER, KEY)
    assert cycle.sign().manifests == 2
    cycle.keys = Keys(OTHER)
    archive_some(cycle, 3)
    assert cycle.verify().bad == []
    cycle.keys = Keys()
    assert cycle.sign().manifests == 4  # and given up
    archive_some(cycle, 4)
    assert cycle.verify().bad == []


def test_a_wrong_signature_is_not_signed_over(cycle: Cycle) -> None:
    cycle.keys = Keys(KEY)
    archive_some(cycle, 0, 1)
    path = next(folder(cycle).glob("meta/manifests/*"))
    right = json.loads(path.read_bytes())["signature"]
    wrong = right[:-1] + ("0" if right[-1] != "0" else "1")
    path.write_bytes(path.read_bytes().replace(right.encode(), wrong.encode()))
    assert [bad.code for bad in cycle.verify().bad] == ["signature-wrong"]
    with pytest.raises(HaltedError, match="nothing was signed"):
        cycle.sign()


def test_a_commit_that_was_slipped_in(cycle: Cycle) -> None:
    """It is as a run leaves it that dies before its receipt. With a key none is adopted that isn't signed."""
    cycle.keys = Keys(KEY)
    archive_some(cycle, 0)
    path = next(folder(cycle).glob("meta/manifests/*"))
    cycle.database[RECEIPTS].drop()  # nothing is known of it
    data = path.read_bytes()
    signature = json.loads(data)["signature"]
    path.write_bytes(data.replace(f'"{signature}"'.encode(), b"null"))
    with pytest.raises(HaltedError, match="it is not signed"):
        cycle.adopt()
