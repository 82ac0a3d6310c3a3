"""Checkpoints: what vouches for the chain of manifests, and is told where it does not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from bucketwise.archivers.context import ArchiveState
from bucketwise.archivers.format.chain import CheckpointRecord
from bucketwise.archivers.format.keys import Keys
from bucketwise.archivers.format.names import checkpoint_key
from bucketwise.archivers.records.heads import Heads
from bucketwise.archivers.recovering import checkpoints as making
from bucketwise.config.errors import HaltedError
from bucketwise.config.tables import Store
from tests.archivers.builders import Case, slots
from tests.archivers.harness import Cycle
from tests.archivers.records.test_chain import (
    KEY,
    OTHER,
    RECEIPTS,
    archive_some,
    books,
    codes,
    drop_one,
    folder,
    manifests,
    put,
    put_back,
)
from tests.jobs.counting import CountingStore

Document = dict[str, Any]


pytestmark = pytest.mark.usefixtures("quick_disk")


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "EVERY", 3)


@pytest.fixture
def cycle(database: Database[Document], file_store: Store) -> Cycle:
    """Nothing is there yet."""
    base = slots("minute")
    return Cycle(database, Case(base.name, base.policy, base.documents, []), file_store)


def checkpoints(cycle: Cycle) -> list[Path]:
    return sorted(folder(cycle).glob("meta/checkpoints/*"))


def the_one(cycle: Cycle) -> Document:
    """What its file says."""
    (path,) = checkpoints(cycle)
    found: Document = json.loads(path.read_bytes())
    return found


def gets(cycle: Cycle) -> int:
    """How many objects a look at all of the archive reads."""
    store: Any = CountingStore(cycle.store)
    there = cycle.store
    cycle.store = store
    try:
        assert cycle.verify().bad == []
    finally:
        cycle.store = there
    return int(store.asked["get_bytes"])


@pytest.mark.parametrize(
    ("sequence", "last", "due"),
    [
        (63, None, False),
        (64, None, True),
        (100, CheckpointRecord(64, "", 30), False),
        (128, CheckpointRecord(64, "", 30), True),
        (1000 + 999, CheckpointRecord(1000, "", 8000), False),
        (1000 + 1000, CheckpointRecord(1000, "", 8000), True),
    ],
)
def test_when_one_is_due(
    sequence: int, last: CheckpointRecord | None, due: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "EVERY", 64)
    assert making.is_due(Heads(sequence, (), frozenset(), last)) == due


@pytest.mark.proof
def test_it_lists_what_stands_and_is_alone(cycle: Cycle) -> None:
    archive_some(cycle, 0, 1)
    assert checkpoints(cycle) == []
    drop_one(cycle, 2)
    for number in (3, 4, 5, 6, 7):
        archive_some(cycle, number)
        cycle.run()
        if made := checkpoints(cycle):
            assert len(made) == 1
    before = list(manifests(cycle).values())
    found = the_one(cycle)
    upto = [it for it in before if it["sequence"] <= found["sequence"]]
    assert found["sequence"] >= before[-1]["sequence"] - 3
    assert [it["sha256"] for it in found["heads"]] == [upto[-1]["sha256"]]
    there = {path.name for path in folder(cycle).glob("meta/manifests/*")}
    assert [f"{it['sequence']:010d}_{it['commit']}.json" for it in found["commits"]] == sorted(
        name for name in there if int(name[:10]) <= found["sequence"]
    )
    assert cycle.verify().bad == []
    assert codes(cycle) == set()


@pytest.mark.proof
def test_what_was_dropped_long_ago_is_not_read_again(cycle: Cycle, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive whose commits come and go: a look at all of it costs what stands."""
    monkeypatch.setattr(making, "EVERY", 10**6)
    archive_some(cycle, 0)
    drop_one(cycle, 1)
    short = gets(cycle)
    for number in range(2, 8):
        drop_one(cycle, number, whole=True)
    standing = len(list(folder(cycle).glob("meta/manifests/*")))
    assert gets(cycle) >= short + 6
    monkeypatch.setattr(making, "EVERY", 1)
    cycle.run()
    head, checkpoint, owner, lineage, files = 1, 1, 1, 1, 2
    aside = 2 * len(list(folder(cycle).glob("meta/versions/*")))  # each with the manifest of its commit
    assert gets(cycle) <= head + checkpoint + owner + lineage + standing * (1 + files) + aside


def test_a_run_with_nothing_to_do_asks_once_more(cycle: Cycle) -> None:
    archive_some(cycle, 0, 1, 2)
    cycle.run()
    assert len(checkpoints(cycle)) == 1
    store: Any = CountingStore(cycle.store)
    cycle.run(store=store, state=ArchiveState(is_clean=True))
    assert store.asked == {"get_bytes": 2, "list": 1, "listed": 1, "head": 1}


def remove(path: Path, _other: Path) -> None:
    path.unlink()


def empty(path: Path, _other: Path) -> None:
    path.write_bytes(b"")


def spoil(path: Path, _other: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"sequence": 3', b'"sequence": 2', 1))


def take_older(path: Path, older: Path) -> None:
    shutil.copy(older, path)


DAMAGE: dict[str, tuple[Callable[[Path, Path], None], str]] = {
    "missing": (remove, "checkpoint-missing"),
    "empty": (empty, "checkpoint-differs"),
    "one digit": (spoil, "checkpoint-differs"),
    "older": (take_older, "checkpoint-differs"),
}


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_told_and_mended_where_the_chain_proves_it(cycle: Cycle, tmp_path: Path, kind: str) -> None:
    damage, code = DAMAGE[kind]
    archive_some(cycle, 0, 1, 2)
    cycle.run()
    older = tmp_path / "older"
    shutil.copy(checkpoints(cycle)[0], older)
    archive_some(cycle, 3, 4, 5)
    cycle.run()
    (path,) = checkpoints(cycle)
    damage(path, older)
    assert [it.code for it in cycle.verify().bad] == [code]
    assert codes(cycle) == {(code, "error")}
    path.unlink(missing_ok=True)  # as the message says
    cycle.run()
    assert len(checkpoints(cycle)) == 1
    assert cycle.verify().bad == []
    assert len(cycle.archived()) == 12


@pytest.mark.proof
def test_a_damaged_one_vouches_for_nothing(cycle: Cycle) -> None:
    """The next one is made from the whole chain; and not at all where that is broken."""
    archive_some(cycle, 0)
    drop_one(cycle, 1)
    cycle.run()
    link = next(folder(cycle).glob("meta/superseded/*.json"))
    kept = link.read_bytes()
    link.unlink()
    bad = {it.code for it in cycle.verify().bad}
    assert bad == {"file-foreign"}  # the checkpoint vouches for it, and nothing for what it had kept
    checkpoints(cycle)[0].write_bytes(b"{}")
    assert {it.code for it in cycle.verify().bad} == bad | {"checkpoint-differs", "chain-broken"}
    checkpoints(cycle)[0].unlink()
    put(cycle, 8, 10)
    live = cycle.live()
    with pytest.raises(HaltedError, match="the manifest is missing, though the chain"):
        cycle.run()
    assert cycle.live() == live
    assert checkpoints(cycle) == []
    link.write_bytes(kept)
    assert cycle.run().deleted == 2
    assert cycle.verify().bad == []


def test_a_commit_that_no_checkpoint_lists_is_found(cycle: Cycle) -> None:
    """A receipt that leads to a commit which the chain has never had."""
    archive_some(cycle, 0, 1, 2)
    cycle.run()
    receipts = cycle.database[RECEIPTS]
    receipt = next(it for it in receipts.find({"kind": "offline"}))
    receipts.update_one({"_id": receipt["_id"]}, {"$set": {"seal": "0" * 64}})
    assert "chain-broken" in {it.code for it in cycle.verify().bad}


@pytest.mark.proof
def test_a_database_that_was_put_back_names_one_that_is_gone(cycle: Cycle) -> None:
    archive_some(cycle, 0, 1, 2)
    cycle.run()
    before = books(cycle)
    archive_some(cycle, 3, 4, 5)
    cycle.run()
    (later,) = checkpoints(cycle)
    put_back(cycle, before)
    assert "checkpoint-missing" in {it.code for it in cycle.verify().bad}
    cycle.adopt()
    assert len(checkpoints(cycle)) == 1
    assert checkpoints(cycle)[0].name != later.name or the_one(cycle)["sequence"] == 6
    assert cycle.verify().bad == []
    assert len(cycle.archived()) == 12


def test_another_runs_newer_one_stays(cycle: Cycle) -> None:
    archive_some(cycle, 0, 1, 2)
    keys = [checkpoint_key(cycle.policy.name, number, "f" * 64) for number in (2, 4)]
    for key in keys:
        cycle.store.put_bytes(key, b"{}")
    cycle.run()
    names = [it.name for it in checkpoints(cycle)]
    assert [name[:10] for name in names] == ["0000000003", "0000000004"]
    assert keys[1].endswith(names[1])


@pytest.mark.proof
def test_it_is_signed(cycle: Cycle) -> None:
    archive_some(cycle, 0, 1, 2)
    cycle.run()
    assert the_one(cycle)["signature"] is None
    cycle.keys = Keys(KEY)
    assert "signature-missing" in {it.code for it in cycle.verify().bad}
    cycle.sign()
    assert the_one(cycle)["signature"].startswith(cycle.keys.first)
    assert cycle.verify().bad == []
    (path,) = checkpoints(cycle)
    forged = Keys(OTHER).sign(the_one(cycle)["sha256"]) or ""
    path.write_bytes(path.read_bytes().replace(the_one(cycle)["signature"].encode(), forged.encode()))
    assert [it.code for it in cycle.verify().bad] == ["signature-missing"]
    path.unlink()
    cycle.run()
    assert the_one(cycle)["signature"].startswith(cycle.keys.first)
    assert cycle.verify().bad == []


@pytest.mark.proof
def test_none_hides_receipts_that_were_taken_out(cycle: Cycle) -> None:
    """Manifests alone tell of them, so that these are read until they are there again."""
    archive_some(cycle, 0, 1, 2)
    take_out(cycle)
    for first, last in ((0, 0), (6, 8), (8, 10), (10, 12)):  # and other receipts take their numbers
        put(cycle, first, last)
        assert cycle.run(state=ArchiveState(is_clean=True)).deleted == last - first
        assert checkpoints(cycle) == []
        assert codes(cycle) == {("receipts-rolled-back", "error")}


def test_one_is_made_once_they_are_back(cycle: Cycle) -> None:
    archive_some(cycle, 0, 1, 2)
    before = books(cycle)
    take_out(cycle)
    cycle.run(state=ArchiveState(is_clean=True))
    assert checkpoints(cycle) == []
    put_back(cycle, before)
    cycle.run(state=ArchiveState(is_clean=True))
    assert len(checkpoints(cycle)) == 1
    assert codes(cycle) == set()


@pytest.mark.proof
def test_a_commit_that_was_forgotten_when_one_was_made(cycle: Cycle) -> None:
    """Its receipt was taken out, and `adopt` brings it back: it lies behind the checkpoint unlisted."""
    archive_some(cycle, 0, 1, 2)
    (_, second, _) = sorted(cycle.database[RECEIPTS].distinct("_id.name", {"kind": "offline"}))
    cycle.database[RECEIPTS].delete_one({"_id.name": second})
    cycle.run(state=ArchiveState(is_clean=True))
    assert [it["sequence"] for it in the_one(cycle)["commits"]] == [1, 3]
    cycle.adopt()
    assert codes(cycle) == set()
    archive_some(cycle, 3, 4, 5)
    cycle.run()
    assert [it["sequence"] for it in the_one(cycle)["commits"]] == [1, 2, 3, 4, 5, 6]
    assert codes(cycle) == set()


def take_out(cycle: Cycle) -> None:
    """The receipts of the second and the third delete."""
    receipts = cycle.database[RECEIPTS]
    first = receipts.find_one({"_id.name": "delete-0000000001"})
    assert first
    receipts.delete_many({"_id.name": {"$in": ["delete-0000000002", "delete-0000000003"]}})
    receipts.update_one({"_id.name": "last"}, {"$set": {"sequence": 1, "sha256": first["sha256"]}})
