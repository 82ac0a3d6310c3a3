"""A database is put back to an older state, and commits that it names were merged since."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from pymongo.database import Database

from bucketwise.archivers.context import ArchiveState
from bucketwise.archivers.records.receipts import COLLECTION as RECEIPTS
from bucketwise.archivers.records.receipts import UNERASED
from bucketwise.config.tables import Store
from tests.archivers.builders import DAY0, LATER, insert, slots
from tests.archivers.faults import FEW_STEPS, Crash, DyingStore, Steps, deaths, die_in_transactions
from tests.archivers.harness import Cycle, Standing, expected_rows
from tests.archivers.moving.test_crash import World

pytestmark = pytest.mark.usefixtures("quick_disk")
Document = dict[str, Any]
HOUR, AFTER = timedelta(hours=1), timedelta(days=30)


@dataclass(frozen=True)
class Backup:
    """What a database knows of an archive: its receipts, and its runs."""

    receipts: list[Document]
    runs: set[Any]
    fence: int

    @classmethod
    def of(cls, cycle: Cycle) -> Backup:
        found = cycle.database[RECEIPTS].find({"_id.policy": cycle.policy.name})
        return cls(list(found), set(cycle.runs), cycle.fence)

    def put_back(self, cycle: Cycle) -> None:
        """In place of all that it knows by now."""
        cycle.database[RECEIPTS].delete_many({"_id.policy": cycle.policy.name})
        cycle.database[RECEIPTS].insert_many(self.receipts)
        cycle.runs, cycle.fence = set(self.runs), self.fence


@pytest.mark.proof
def test_a_database_is_put_back_while_replaced_commits_are_dropped(
    database: Database[Document], file_store: Store
) -> None:
    """The run that dropped them died after the first, and this database knows of no merge: what was archived
    since is in the merged commit alone."""
    for known in (0, 1, 5):  # commits, when the backup was taken
        world = World.make(database, slots("minute"), file_store)
        cycle, backup, live = world.cycle, [], []
        mine = {"_id.policy": cycle.policy.name}
        cycle.context(fence=1).binding.claim()
        for step, hour in enumerate(range(1, 22, 4)):
            if step == known:
                backup, live = list(database[RECEIPTS].find(mine)), cycle.live()
                runs, fence = set(cycle.runs), cycle.fence
            cycle.run(DAY0 + AFTER + hour * HOUR)
        cycle.run(LATER)
        cycle.compact(LATER)
        steps = DiesAt("after delete", 2)
        with pytest.raises(Crash):
            cycle.run(LATER + HOUR, store=DyingStore(cycle.store, steps))
        database[RECEIPTS].delete_many(mine)
        if backup:
            database[RECEIPTS].insert_many(backup)
        cycle.runs, cycle.fence = runs, fence
        insert(database, cycle.policy.collection, live[:3])  # the others were written since
        cycle.adopt(LATER + 2 * HOUR)
        cycle.run(LATER + 2 * HOUR)
        cycle.run(LATER + 4 * HOUR)
        assert cycle.live() == []
        assert world.archived() == world.units()
        assert cycle.rows() == expected_rows(cycle.case)
        assert cycle.verify().bad == []


class DiesAt(Steps):
    """Dies at a step of this name, when it comes again so often."""

    def __init__(self, name: str, times: int) -> None:
        super().__init__(0)
        self.name, self.times = name, times

    def step(self, name: str) -> None:
        self.times -= name == self.name
        if self.times == 0:
            raise Crash(name)


@pytest.mark.proof
def test_a_database_is_put_back_to_between_two_merges(
    database: Database[Document], file_store: Store
) -> None:
    """What the first one replaced was there still, and what it made was merged again since. Erasures that
    could not read what was merged are waited for."""
    world = World.make(database, slots("minute"), file_store)
    cycle = world.cycle
    for hour in (1, 5, 9):
        cycle.run(DAY0 + AFTER + hour * HOUR)
    cycle.compact(DAY0 + AFTER + 9 * HOUR)
    mine = {"_id.policy": cycle.policy.name}
    erasures = [{"key": "00", "series": "11", "reason": "case 17", "at": LATER}]
    database[RECEIPTS].update_one({**mine, "state": "closed"}, {"$set": {UNERASED: erasures}})
    backup, live = Backup.of(cycle), cycle.live()
    cycle.run(LATER)
    assert cycle.compact(LATER).commits > 1
    cycle.run(LATER + HOUR)
    backup.put_back(cycle)
    insert(database, cycle.policy.collection, live)
    cycle.adopt(LATER + 2 * HOUR)
    current = {**mine, "state": {"$in": ["open", "closed"]}, UNERASED: {"$exists": True}}
    assert [it[UNERASED][0]["key"] for it in database[RECEIPTS].find(current)] == ["00"]
    cycle.run(LATER + 2 * HOUR)
    cycle.run(LATER + 4 * HOUR)
    assert cycle.live() == []
    assert world.archived() == world.units()
    assert cycle.rows() == expected_rows(cycle.case)
    assert cycle.verify().bad == []


def test_a_database_is_put_back_to_where_what_was_merged_twice_waited_to_be_dropped(
    database: Database[Document], file_store: Store
) -> None:
    """All of it has been dropped since, also what the first merge made."""
    world = World.make(database, slots("minute"), file_store)
    cycle, last = world.cycle, DAY0 + AFTER + 9 * HOUR
    mine = {"_id.policy": cycle.policy.name}
    for hours in ((1, 5), (9,)):
        for hour in hours:
            cycle.run(DAY0 + AFTER + hour * HOUR)
        assert cycle.compact(last).into == 1
    assert database[RECEIPTS].count_documents({**mine, "state": "replaced"}) == 4
    backup, live = Backup.of(cycle), cycle.live()
    cycle.run(LATER)
    backup.put_back(cycle)
    insert(database, cycle.policy.collection, live)
    cycle.adopt(LATER + 2 * HOUR)
    cycle.run(LATER + 4 * HOUR)
    assert database[RECEIPTS].count_documents({**mine, "state": "replaced"}) == 0
    assert cycle.live() == []
    assert world.archived() == world.units()
    assert cycle.rows() == expected_rows(cycle.case)
    assert cycle.verify().bad == []


@pytest.mark.parametrize("merged", [False, True])
def test_a_database_is_put_back_to_before_a_bucket_left_its_commit(
    database: Database[Document], file_store: Store, merged: bool
) -> None:
    """Those that are left of it waited to be deleted, as was known, and one of them has changed since."""
    world = World.make(database, slots("minute").with_archive(delete=False), file_store)
    cycle = world.cycle
    hours = (1, 22) if merged else (22,)
    cycle.context(fence=1).binding.claim()
    for hour in hours:
        cycle.run(DAY0 + AFTER + hour * HOUR)
    backup = Backup.of(cycle)
    if merged:
        assert cycle.compact(LATER).into == 1
    world.change(world.first(1))
    cycle.run(LATER)
    backup.put_back(cycle)
    world.change(world.first(2))
    cycle.adopt(LATER + 2 * HOUR)
    world.keep(False)
    for hour in (2, 4):
        cycle.run(LATER + hour * HOUR)
    assert cycle.live() == []
    assert world.archived() == world.units()
    assert cycle.verify().bad == []


def test_a_database_is_put_back_to_before_all_buckets_left_a_commit(
    database: Database[Document], file_store: Store
) -> None:
    """By what it knows, the last run had come to its end, and nothing has been archived since."""
    world = World.make(database, slots("minute").with_archive(delete=False), file_store)
    cycle = world.cycle
    cycle.context(fence=1).binding.claim()
    cycle.run(DAY0 + AFTER + 22 * HOUR)
    backup = Backup.of(cycle)
    for place in range(len(cycle.case.documents)):
        world.change(world.first(place))
    with pytest.raises(Crash):
        cycle.run(LATER, store=DyingStore(cycle.store, DiesAt("after delete", 2)))
    assert list(cycle.as_stored().commits()) == []
    backup.put_back(cycle)
    cycle.adopt(LATER + 2 * HOUR, state=ArchiveState(is_clean=True))
    world.keep(False)
    for hour in (2, 4):
        cycle.run(LATER + hour * HOUR)
    assert cycle.live() == []
    assert world.archived() == world.units()
    assert cycle.verify().bad == []


def test_another_database_drops_a_merged_commit_and_the_archive_comes_back(
    database: Database[Document], file_store: Store
) -> None:
    """The other one knew none of its commits. What had been merged was all there, and so it counts."""
    world = World.make(database, slots("minute").with_archive(delete=False), file_store)
    cycle, mine = world.cycle, {"_id.policy": world.cycle.policy.name}
    cycle.context(fence=1).binding.claim()
    cycle.fence = 1
    others = Backup.of(cycle)
    for hour in (1, 22):
        cycle.run(DAY0 + AFTER + hour * HOUR)
    small = {it.name for it in cycle.as_stored().commits()}
    assert cycle.compact(LATER).into == 1
    ours = Backup.of(cycle)
    others.put_back(cycle)
    cycle.adopt(LATER)
    assert {it.name for it in cycle.as_stored().commits()} == small
    ours.put_back(cycle)
    cycle.adopt(LATER + 2 * HOUR)
    assert {it.name for it in cycle.as_stored().commits()} == small
    assert database[RECEIPTS].count_documents({**mine, "state": "open"}) == 2
    assert cycle.verify().bad == []
    world.keep(False)
    for hour in (2, 4):
        cycle.run(LATER + hour * HOUR)
    assert cycle.live() == []
    assert world.archived() == world.units()
    assert cycle.verify().bad == []


def test_files_whose_fence_is_to_come_again_are_removed_then(
    database: Database[Document], file_store: Store
) -> None:
    """Until then the archive is not clean: nobody would look for them any more."""
    cycle = Cycle(database, slots("minute"), file_store).load()
    with pytest.raises(Crash):
        cycle.run(fence=3, store=DyingStore(cycle.store, DiesAt("after put_bytes", 5)))
    for fence, is_clean in ((2, False), (4, True)):
        state = ArchiveState()
        cycle.run(fence=fence, state=state)
        assert state.is_clean == is_clean
        assert (list(cycle.as_stored().unlisted()) == []) == is_clean


@pytest.mark.proof
@FEW_STEPS
def test_it_dies_while_a_bucket_leaves_a_merged_commit(
    database: Database[Document], file_store: Store, few_steps: bool
) -> None:
    """What that one had replaced is dropped before its time, and must not be waited for."""
    world = World.make(database, slots("minute").with_archive(delete=False), file_store)
    cycle = world.cycle
    for hour in (1, 5, 22):
        cycle.run(DAY0 + AFTER + hour * HOUR)
    assert cycle.compact(LATER).into == 1
    world.change(world.first(1))
    standing = Standing(cycle)

    def ran(steps: Steps) -> None:
        standing.put_back(cycle)
        world.keep(True)
        with pytest.MonkeyPatch.context() as patch:
            die_in_transactions(patch, steps)
            with suppress(Crash):
                cycle.run(LATER + HOUR / 2, store=DyingStore(cycle.store, steps))
        world.check_nothing_is_lost()
        world.keep(False)
        cycle.run(LATER + HOUR / 2)
        cycle.run(LATER + HOUR / 2)
        world.check_finished()

    whole = Steps(1000)
    ran(whole)
    assert not whole.died
    for it in deaths(whole.passed, turn=1, of=2, few_steps=few_steps):
        steps = Steps(*it)
        ran(steps)
        assert steps.died
