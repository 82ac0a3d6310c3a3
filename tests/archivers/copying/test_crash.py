"""A run with a copy that dies at any step of either store: the next ones make the copy like the store, and
nothing is lost or deleted before it is there."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from bucketwise.archivers.format.manifest import DamagedError
from bucketwise.archivers.kinds import archive_of
from bucketwise.archivers.mirroring.places import first_alone
from bucketwise.archivers.preconditions import has_copies, require
from bucketwise.archivers.records.changes import CopyRecords, StoreJournal
from bucketwise.archivers.stores import open_store
from bucketwise.archivers.stores.copied import CopiedStore, Copy
from bucketwise.archivers.stores.file import FileStore
from bucketwise.config.tables import Store
from tests.archivers.builders import LATER, slots
from tests.archivers.faults import FEW_STEPS, Crash, DyingStore, Steps, deaths, die_in_transactions
from tests.archivers.harness import Cycle, Standing
from tests.archivers.moving.test_crash import few

pytestmark = pytest.mark.usefixtures("quick_disk")
NEVER = Steps(0)


def files(folder: Path) -> dict[str, bytes]:
    return {str(it.relative_to(folder)): it.read_bytes() for it in folder.rglob("*") if it.is_file()}


class Lying(FileStore):
    """Keeps other bytes than it was given, of some objects, with the digest that it was given."""

    def __init__(self, root: Path, of: str) -> None:
        super().__init__(root)
        self._of = of

    def put_bytes(self, key: str, data: bytes, **given: Any) -> None:
        lies = self._of in key
        super().put_bytes(key, data[:-1] + bytes([data[-1] ^ 1]) if lies else data, **given)

    def check(self, key: str, size: int | None, sha256: str) -> None:
        """Goes by the digest that it was given."""


class World:
    """A cycle whose store has a copy in another folder."""

    def __init__(self, database: Database[dict[str, Any]], settings: Store, folder: Path) -> None:
        self.cycle = Cycle(database, few(slots("minute")), settings).load()
        self.folder = folder
        folder.mkdir()
        self.first = open_store(settings)
        self.standing = Standing(self.cycle)

    def put_back(self) -> None:
        self.standing.put_back(self.cycle)
        shutil.rmtree(self.folder)
        self.folder.mkdir()

    def store(self, steps: Steps) -> CopiedStore:
        copy = Copy("b", DyingStore(FileStore(self.folder), steps), required=True)
        journal = StoreJournal(lambda: LATER, self.cycle.database)
        return CopiedStore(DyingStore(self.first, steps), [copy], journal)

    def run(self, steps: Steps = NEVER) -> None:
        """As a run does: what it needs is asked for first."""
        store = self.store(steps)
        require(self.cycle.context(fence=self.cycle.fence + 1, store=store), [has_copies])
        self.cycle.run(store=store)


@pytest.mark.proof
@FEW_STEPS
def test_a_run_with_a_copy_that_dies(
    database: Database[dict[str, Any]], file_store: Store, tmp_path: Path, few_steps: bool
) -> None:
    world = World(database, file_store, tmp_path / "b")
    counting = Steps(0)
    with pytest.MonkeyPatch.context() as patch:
        die_in_transactions(patch, counting)
        world.run(counting)
    assert files(world.folder) == files(world.cycle.root)
    documents = sorted(world.cycle.case.documents)
    for at, only in deaths(counting.passed, 0, few_steps=few_steps):
        world.put_back()
        steps = Steps(at, only)
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Crash):
            die_in_transactions(patch, steps)
            world.run(steps)
        gone = set(documents) - set(world.cycle.live())
        if gone:  # then it is in the copy, and can be restored from that alone
            world.cycle.store = FileStore(world.folder)
            assert gone <= set(world.cycle.archived()), (at, only)
            world.cycle.store = world.first
        world.run()
        world.run()
        assert world.cycle.live() == []
        assert sorted(world.cycle.archived()) == documents
        assert files(world.folder) == files(world.cycle.root), (at, only)
        store = world.store(NEVER)
        context = world.cycle.context(store=store)
        assert CopyRecords(context.receipts).waiting() == {}
        for alone in (first_alone(context), world.cycle.context(store=FileStore(world.folder))):
            assert archive_of(alone).verify().bad == []


@pytest.mark.parametrize("of", ["/data/", "/meta/buckets/", "/meta/versions/"])
def test_nothing_counts_that_only_a_copy_has(
    database: Database[dict[str, Any]], file_store: Store, tmp_path: Path, of: str
) -> None:
    """Its bytes would be taken from there, and the last sound ones lie in one place."""
    world = World(database, file_store, tmp_path / "b")
    if of == "/meta/versions/":
        world.cycle.case = world.cycle.case.with_archive(grace=timedelta(days=2))
        world.run()
        database["slots"].update_many({}, {"$unset": {"p.5": 1}})
    live, store = world.cycle.live(), world.store(NEVER)
    lying = CopiedStore(Lying(world.cycle.root, of), store.copies, store.journal)
    with pytest.raises(DamagedError, match="a copy of the store has that"):
        world.cycle.run(LATER + timedelta(days=3), store=lying)
    assert world.cycle.live() == live
    for days in (4, 8, 12):
        world.cycle.run(LATER + timedelta(days=days), store=world.store(NEVER))
    assert world.cycle.live() == []
    assert archive_of(first_alone(world.cycle.context(store=store))).verify().bad == []
