"""Writers, archive runs, crashes and restores in any order: what was written is live or archived, once."""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import bson
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from pymongo.database import Database

from bucketwise.archivers.records import pins
from bucketwise.config.errors import BucketwiseError
from bucketwise.config.tables import Store
from tests.archivers.builders import CODEC, DAY0, Case, encode, slots
from tests.archivers.faults import Crash, DyingStore, Steps, die_in_transactions
from tests.archivers.harness import nothing
from tests.archivers.moving.test_crash import World
from tests.archivers.moving.test_guard import read, slot_rows

Document = dict[str, Any]
IDS = st.integers(0, 9)
NOTES = st.integers(0, 1_000_000)


class Archive(RuleBasedStateMachine):
    """`written` is every bucket ever written, in its last version: its `_id`, its bytes."""

    place: tuple[Database[Document]]  # wrapped, since hypothesis asks every attribute what it is
    online = False

    def __init__(self) -> None:
        super().__init__()
        (database,) = self.place
        self.folder = tempfile.TemporaryDirectory()
        base = slots("minute")
        case = Case(base.name, base.policy, [], [])
        self.world = World.make(
            database, case.online() if self.online else case, Store(url=Path(self.folder.name).as_uri())
        )
        self.cycle = self.world.cycle
        self.source = database[self.cycle.policy.collection]
        self.day = 0
        self.written: list[tuple[int, bytes]] = []
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr("os.fsync", nothing)
        self.patch.setattr("bucketwise.archivers.writes.MAX_BUCKETS", 2)

    def teardown(self) -> None:
        self.patch.undo()
        self.folder.cleanup()

    def live(self) -> dict[int, bytes]:
        return {bson.decode(raw, CODEC)["_id"]: raw for raw in self.cycle.live()}

    @rule(identity=IDS, day=st.integers(0, 12), note=NOTES)
    def insert(self, identity: int, day: int, note: int) -> None:
        """A new bucket; also under the `_id` of one that was archived, where the archive can hold both. One
        that equals it to the byte is that one, come back."""
        taken = {it for it, _ in self.written} if self.online else self.live()
        if identity in taken:
            return
        at = DAY0 + timedelta(days=day, hours=identity)
        document = {"_id": identity, "p": {"7": float(note)}, "meta": {"symbol": "x"}, "d": at}
        if (identity, encode(document)) in self.written:
            return
        self.source.insert_one(document)
        self.written.append((identity, encode(document)))

    @rule(identity=IDS, note=NOTES)
    def update(self, identity: int, note: int) -> None:
        before = self.live().get(identity)
        if before is None:
            return
        self.source.update_one({"_id": identity}, {"$set": {"p.9": float(note)}})
        self.written.remove((identity, before))
        self.written.append((identity, self.live()[identity]))

    @rule(days=st.integers(0, 3), kept=st.booleans(), grace=st.integers(0, 1))
    def run(self, days: int, kept: bool, grace: int) -> None:
        self.configure(days, kept, grace)
        self.cycle.run(DAY0 + timedelta(days=30 + self.day))

    @rule(days=st.integers(0, 3), kept=st.booleans(), die_at=st.integers(1, 60))
    def crash(self, days: int, kept: bool, die_at: int) -> None:
        self.configure(days, kept, 0)
        steps = Steps(die_at)
        with pytest.MonkeyPatch.context() as patch:
            die_in_transactions(patch, steps)
            with contextlib.suppress(Crash):
                self.cycle.run(
                    DAY0 + timedelta(days=30 + self.day),
                    check=lambda: steps.step("check"),
                    store=DyingStore(self.cycle.store, steps),
                )

    @rule(identity=IDS, at=st.integers(1, 4), note=NOTES)
    def change_on_the_way(self, identity: int, at: int, note: int) -> None:
        calls = 0

        def guard(*_args: object) -> None:
            nonlocal calls
            calls += 1
            if calls == at:
                self.update(identity, note)

        self.configure(1, False, 0)
        self.cycle.run(DAY0 + timedelta(days=30 + self.day), guard=guard)

    def configure(self, days: int, kept: bool, grace: int) -> None:
        self.day += days
        self.cycle.case = self.cycle.case.with_archive(delete=not kept, grace=timedelta(days=grace))

    @precondition(lambda self: self.day > 3)
    @rule(since=st.integers(0, 12))
    def restore(self, since: int) -> None:
        """Into the source: what is in the way stays."""
        try:
            self.cycle.restore(self.cycle.policy.collection, since=DAY0 + timedelta(days=since))
        except BucketwiseError as error:
            assert "were not restored" in str(error)

    @rule()
    def unpin(self) -> None:
        self.cycle.unpin()

    @invariant()
    def each_bucket_is_live_or_archived_once(self) -> None:
        pinned = self.cycle.database[pins.COLLECTION].distinct("_id.id")
        assert set(pinned) <= self.live().keys()
        there = Counter(self.cycle.live()) + Counter(read(self.cycle))
        assert there == Counter(raw for _, raw in self.written)

    def teardown_all(self) -> None:
        """In the end all has expired, and two clean runs put everything into the archive, once."""
        self.configure(100, False, 0)
        self.cycle.unpin()
        for _ in range(2):
            self.cycle.run(DAY0 + timedelta(days=30 + self.day))
        written = [raw for _, raw in self.written]
        assert self.cycle.live() == []
        assert self.world.archived() == sorted(written)
        if not self.online:
            assert self.cycle.rows() == slot_rows(written)
        before = self.cycle.listing(), self.world.receipts()
        self.cycle.run(DAY0 + timedelta(days=30 + self.day))
        assert (self.cycle.listing(), self.world.receipts()) == before


@pytest.mark.proof
@pytest.mark.parametrize("online", [False, True], ids=["offline", "online"])
@pytest.mark.parametrize("examples", [5, pytest.param(150, marks=pytest.mark.proof)])
def test_any_order_of_events(database: Database[Document], online: bool, examples: int) -> None:
    class Machine(Archive):
        def teardown(self) -> None:
            try:
                self.teardown_all()
            finally:
                super().teardown()

    Machine.place, Machine.online = (database,), online
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=15,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
