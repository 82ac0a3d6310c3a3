"""A run that goes on without its lease: what its last write leaves in a copy, the next runs take away; and
nothing else that a copy alone has."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from bucketwise.archivers.context import ArchiveContext, ArchiveState
from bucketwise.archivers.format.names import (
    checkpoint_key,
    commit_name,
    hold_key,
    link_key,
    manifest_key,
    part_key,
)
from bucketwise.archivers.mirroring.changes import catch_up, caught_up
from bucketwise.archivers.preconditions import has_copies, require
from bucketwise.archivers.records.changes import CopyRecords, StoreJournal
from bucketwise.archivers.recovering import checkpoints
from bucketwise.archivers.stores.base import StoreError, StoreObject
from bucketwise.archivers.stores.copied import CopiedStore, Copy
from bucketwise.archivers.stores.file import FileStore
from bucketwise.buckets.fields.times import as_ms
from bucketwise.config.errors import HaltedError, LeaseLostError
from bucketwise.config.tables import Store
from tests.archivers.builders import DAY0, LATER, slots
from tests.archivers.copying.test_crash import files
from tests.archivers.faults import Crash
from tests.archivers.harness import Cycle
from tests.archivers.moving.test_crash import few

pytestmark = pytest.mark.usefixtures("quick_disk")
DAY = timedelta(days=1)
WHATEVER = "0" * 16


class Slow(FileStore):
    """Has others do their work before an object of a kind comes to it, once."""

    of, listed = "", 0
    meanwhile: Callable[[], None] | None = None

    def put_bytes(self, key: str, data: bytes, **given: Any) -> None:
        if self.meanwhile is not None and self.of in key:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        super().put_bytes(key, data, **given)

    def list(self, prefix: str = "", after: str = "") -> Iterator[StoreObject]:
        self.listed += 1
        return super().list(prefix, after)


class Dying(FileStore):
    """Dies once it has a manifest."""

    def put_bytes(self, key: str, data: bytes, **given: Any) -> None:
        super().put_bytes(key, data, **given)
        if "/manifests/" in key:
            raise Crash


class Unreachable(FileStore):
    def list(self, prefix: str = "", after: str = "") -> Iterator[StoreObject]:
        del after
        raise StoreError("list", f"{self.url}/{prefix}", "it can't be reached")


class World:
    """A cycle whose store has a copy in another folder."""

    def __init__(self, database: Database[dict[str, Any]], settings: Store, folder: Path) -> None:
        self.cycle = Cycle(database, few(slots("minute")), settings).load()
        self.folder = folder
        folder.mkdir()
        self.copy: FileStore = FileStore(folder)
        self.required = True
        self.state = ArchiveState()

    def store(self) -> CopiedStore:
        journal = StoreJournal(lambda: LATER, self.cycle.database)
        return CopiedStore(self.cycle.store, [Copy("b", self.copy, self.required)], journal)

    def run(self, now: datetime = LATER, **given: Any) -> None:
        """As a run does: what it needs is asked for first."""
        store, self.state = self.store(), ArchiveState()
        require(self.cycle.context(now, fence=self.cycle.fence + 1, store=store), [has_copies])
        self.cycle.run(now, **{"store": store, "state": self.state, **given})
        caught_up(self.cycle.context(now, fence=self.cycle.fence, store=store))

    def late(self, of: str, work: Callable[..., object], meanwhile: Callable[[], None]) -> None:
        """Does some work under a lease that expires right before an object of a kind comes to the copy."""
        lost = list[bool]()

        def check(*_: object) -> None:
            if lost:
                raise LeaseLostError("another run took it")

        def others() -> None:
            lost.append(True)
            meanwhile()

        slow, there = Slow(self.folder), self.copy
        slow.of, slow.meanwhile, self.copy = of, others, slow
        store, self.copy = self.store(), there
        require(self.cycle.context(fence=self.cycle.fence + 1, store=store), [has_copies])
        with pytest.raises((LeaseLostError, HaltedError, StoreError)):
            work(store=store, check=check, guard=check)
        assert lost

    def context(self, **given: Any) -> ArchiveContext:
        """What the run works with that began last."""
        return self.cycle.context(fence=self.cycle.fence, store=self.store(), **given)

    def alone(self) -> list[str]:
        """What the copy has and the store has not."""
        return sorted(files(self.folder).keys() - files(self.cycle.root).keys())

    def waiting(self) -> int:
        found = CopyRecords(self.cycle.context().receipts).waiting().get("b")
        return found.keys if found else 0


@pytest.fixture
def world(database: Database[dict[str, Any]], file_store: Store, tmp_path: Path) -> World:
    return World(database, file_store, tmp_path / "b")


@pytest.mark.parametrize("of", ["/data/", "/meta/buckets/"])
def test_a_file_that_comes_to_a_copy_too_late_is_taken_away(world: World, of: str) -> None:
    world.late(of, world.cycle.run, world.run)
    assert any(of in it for it in world.alone()), world.alone()
    world.run()
    assert world.alone() == []


def test_so_it_is_from_a_copy_that_is_not_required(world: World) -> None:
    """What a run puts there once it has ended, or `copy` does."""
    world.required = False
    world.run()
    catch_up(world.context(), world.store(), world.store().copies[0])
    key = part_key("slots", "2018-06-30", _named(1))
    FileStore(world.folder).put_bytes(key, b"late")
    world.run()
    assert not (world.folder / key).exists()


def _named(fence: int) -> str:
    return commit_name(as_ms(DAY0), as_ms(DAY0), fence, WHATEVER)


def in_two_commits(world: World) -> None:
    """What is archived in two commits of a day."""
    source = world.cycle.database["slots"]
    held = list(source.find().sort("_id"))
    source.delete_many({"_id": {"$in": [it["_id"] for it in held[2:]]}})
    world.run()
    source.insert_many(held[2:])
    world.run()
    assert len(list(world.cycle.as_stored().commits())) == 2


def test_a_merged_commit_that_comes_too_late_is_taken_away(world: World) -> None:
    in_two_commits(world)
    now = LATER + 9 * DAY
    world.late("/meta/manifests/", lambda **named: world.cycle.compact(now, **named), lambda: world.run(now))
    assert any("/manifests/" in it for it in world.alone()), world.alone()
    world.run(now)
    assert world.alone() == []


def test_a_version_that_comes_too_late_is_taken_away(world: World) -> None:
    world.cycle.case = world.cycle.case.with_archive(grace=2 * DAY)
    world.run()
    world.cycle.database["slots"].update_many({}, {"$unset": {"p.5": 1}})
    now = LATER + 3 * DAY
    world.late("/meta/versions/", lambda **named: world.cycle.run(now, **named), lambda: world.run(now))
    assert any("/versions/" in it for it in world.alone()), world.alone()
    world.run(now)
    assert world.alone() == []


def test_a_checkpoint_that_comes_too_late_is_taken_away(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "EVERY", 1)
    in_two_commits(world)
    key = checkpoint_key("slots", 1, WHATEVER)
    later = checkpoint_key("slots", 10**9, WHATEVER)
    for it in (key, later):
        FileStore(world.folder).put_bytes(it, b"late")
    world.run()
    assert world.alone() == [later]


def test_a_step_of_the_lineage_that_comes_too_late_is_taken_away(world: World) -> None:
    world.late("/meta/lineage/", world.cycle.run, world.run)
    assert any("/lineage/" in it for it in world.alone()), world.alone()
    world.run()
    assert world.alone() == []


def test_nothing_else_is_taken_away(world: World) -> None:
    """Not what the store has lost, nor what others have put there, or may have."""
    world.run()
    ours, unknown, later = (_named(it) for it in (1, 998, 999))
    world.cycle.runs.add((999, LATER))
    lost = next(it for it in files(world.cycle.root) if "/data/" in it)
    (world.cycle.root / lost).unlink()
    forgotten = commit_name(as_ms(DAY0), as_ms(DAY0), 1, "1" * 16)
    stays = {
        lost,
        *(part_key("slots", "2018-06-30", it) for it in (unknown, later, forgotten)),
        manifest_key("slots", 7, forgotten),  # of a commit that the database has forgotten
        link_key("slots", ours, WHATEVER),
        hold_key("slots", "case", WHATEVER),
        "slots/meta/owner.json.old",
        "slots/data/readme",
        part_key("other", "2018-06-30", ours),
    }
    goes = {part_key("slots", "2018-06-30", ours, 1)}
    for key in (stays | goes) - {lost}:
        FileStore(world.folder).put_bytes(key, b"whatever")
    world.run()
    assert set(world.alone()) == stays


@pytest.mark.parametrize("is_sound", [True, False])
def test_a_version_that_the_store_has_lost_stays_in_the_copy(world: World, is_sound: bool) -> None:
    """Whatever a record says that somebody has changed."""
    world.cycle.case = world.cycle.case.with_archive(grace=2 * DAY)
    world.run()
    world.cycle.database["slots"].update_one({}, {"$unset": {"p.5": 1}})
    now = LATER + 3 * DAY
    world.run(now)
    (kept,) = (it for it in files(world.cycle.root) if "/versions/" in it)
    receipts = world.cycle.database["bucketwise_receipts"]
    record = receipts.find_one({"_id.name": kept.rpartition("/")[2].partition(".")[0]})
    assert record is not None
    if not is_sound:
        names = {it["_id"]["name"] for it in receipts.find({"kind": "offline"})}
        other = min(names - {record["_id"]["name"], record["replaced_by"]})
        receipts.update_one({"_id": record["_id"]}, {"$set": {"replaced_by": other}})
    (world.cycle.root / kept).unlink()
    with suppress(HaltedError):
        world.run(now)
    assert kept in files(world.folder)


def test_while_a_part_is_nowhere_no_file_is_taken_away(world: World) -> None:
    """It may be that one, renamed."""
    world.run()
    lost = next(it for it in files(world.cycle.root) if "/data/" in it)
    for folder in (world.cycle.root, world.folder):
        (folder / lost).unlink()
    key = part_key("slots", "2018-06-30", _named(1))
    FileStore(world.folder).put_bytes(key, b"late")
    world.run()
    assert world.alone() == [key]


@pytest.mark.parametrize("of_copy", ["unreachable", "not mounted", "another one"])
@pytest.mark.parametrize("required", [True, False])
def test_a_copy_that_could_not_be_looked_at_is_looked_at_again(
    world: World, of_copy: str, required: bool, tmp_path: Path
) -> None:
    world.run()
    world.required = required
    key = part_key("slots", "2018-06-30", _named(1))
    FileStore(world.folder).put_bytes(key, b"late")
    if of_copy == "unreachable":
        world.copy = Unreachable(world.folder)
    else:
        shutil.move(world.folder, tmp_path / "away")
        world.folder.mkdir()
        if of_copy == "another one":
            FileStore(world.folder).put_bytes("slots/meta/owner.json", b"{}")
    if required and of_copy != "not mounted":  # which has nothing to take away
        with pytest.raises((StoreError, HaltedError), match=r"copy b|/b/"):
            world.run()
    else:
        world.run()
        assert not world.state.is_clean
    if of_copy == "unreachable":
        world.copy = FileStore(world.folder)
    else:
        shutil.rmtree(world.folder)
        shutil.move(tmp_path / "away", world.folder)
    assert world.waiting() == 0 or not required
    world.run()
    assert world.state.is_clean
    assert not (world.folder / key).exists()


def test_a_manifest_that_comes_to_the_store_too_late_is_put_into_the_copy(world: World) -> None:
    """Its run has died, and what it wrote down of the manifest was crossed off: it was nowhere. Originals are
    deleted of what both have."""
    first, world.cycle.store = world.cycle.store, Dying(world.cycle.root)
    with pytest.raises(Crash):
        world.run()
    world.cycle.store = first
    (manifest,) = (world.cycle.root / "slots/meta/manifests").iterdir()
    data = manifest.read_bytes()
    manifest.unlink()
    require(world.context(), [has_copies])
    assert world.waiting() == 0
    manifest.write_bytes(data)
    world.run()
    assert world.cycle.live() == []
    assert files(world.folder) == files(world.cycle.root)


def test_a_clean_run_looks_at_no_copy(world: World) -> None:
    world.run()
    counts = []
    for is_clean in (True, False):
        world.copy = slow = Slow(world.folder)
        world.run(state=ArchiveState(is_clean=is_clean))
        counts.append(slow.listed)
    assert counts == [0, 1]
