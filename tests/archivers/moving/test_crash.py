"""A run dies at each of its steps in turn: nothing is lost, nothing is double, two clean runs finish.

An exception stands for the crash, so that much can be tried: what happened before, what changes meanwhile.
`tests.faults.proofs.test_crash_points` kills processes, at finer steps.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import bson
import pytest
from pydantic import SecretStr
from pymongo.database import Database

from bucketwise.archivers import writes
from bucketwise.archivers.format.keys import Keys
from bucketwise.archivers.moving import sweep
from bucketwise.archivers.writes import archived_source
from bucketwise.buckets.fields.times import FIRST_MS, LAST_MS
from bucketwise.config.tables import Store
from tests.archivers.builders import (
    CODEC,
    RAW,
    Case,
    encode,
    insert,
    raw_documents,
    samples_overflow,
    slots,
)
from tests.archivers.faults import Crash, DyingStore, Steps, deaths, die_in_transactions
from tests.archivers.harness import Cycle, nothing, whole
from tests.archivers.moving.test_guard import slot_rows

Document = dict[str, Any]
MARK = 10_000.0


@dataclass
class World:
    """One policy with collections of its own, and every bucket that was ever written to it."""

    cycle: Cycle
    written: list[bytes]  # the last version of each
    overflow: list[bytes] = field(default_factory=list)
    inserted: int = 0  # buckets, at any time: what came back counts again

    @classmethod
    def make(cls, database: Database[Document], case: Case, settings: Store) -> World:
        name = f"w{uuid.uuid4().hex[:8]}"
        policy, archive = case.policy, case.policy.archive
        assert archive is not None
        if archive.collection:
            archive = archive.model_copy(update={"collection": f"{name}_archive"})
        changes: dict[str, Any] = {"name": name, "collection": name, "archive": archive}
        if policy.overflow:
            changes["overflow"] = policy.overflow.model_copy(update={"collection": f"{name}_extra"})
        case = Case(name, policy.model_copy(update=changes), case.documents, case.readings, case.overflow)
        cycle = Cycle(database, case, settings, keys=Keys("a key of thirty-two characters…")).load()
        return cls(cycle, list(case.documents), list(case.overflow), len(case.documents))

    def change(self, identity: Any) -> None:
        """As a writer does, who knows nothing of archives: nothing happens where the bucket is gone."""
        source = self.cycle.database.get_collection(self.cycle.policy.collection, codec_options=RAW)
        update = {"$set": {"note": uuid.uuid4().hex}}
        if not source.update_one({"_id": identity}, update).matched_count:
            return
        found: Any = source.find_one({"_id": identity})
        self.written = [raw for raw in self.written if bson.decode(raw, CODEC)["_id"] != identity]
        self.written.append(bytes(found.raw))

    def add(self, document: Document) -> None:
        insert(self.cycle.database, self.cycle.policy.collection, [encode(document)])
        self.written.append(encode(document))
        self.inserted += 1

    def first(self, position: int) -> Any:
        return bson.decode(self.cycle.case.documents[position], CODEC)["_id"]

    def keep(self, kept: bool) -> None:
        self.cycle.case = self.cycle.case.with_archive(delete=not kept)

    def run_dying(self, steps: Steps, meddle: tuple[int, ...]) -> None:
        calls = 0

        def guard(*_args: object) -> None:
            nonlocal calls
            calls += 1
            if calls in meddle:
                self.change(self.first(calls % len(self.cycle.case.documents)))

        store = DyingStore(self.cycle.store, steps)
        self.cycle.run(guard=guard, check=lambda: steps.step("check"), store=store)

    def go_on(self) -> None:
        """A live bucket changes; where one is gone, another takes its `_id`, as an upsert does."""
        self.change(self.first(2))
        gone = self.first(0)
        cycle = self.cycle
        if not cycle.database[cycle.policy.collection].count_documents({"_id": gone}):
            document = bson.decode(cycle.case.documents[0], CODEC)
            if (
                cycle.policy.model == "slots"
                and cycle.policy.archive
                and cycle.policy.archive.to == "offline"
            ):
                self.add({**document, "p": {"1": MARK}})

    def archived(self, strict: bool = True) -> list[bytes]:
        """What who reads the manifests (or the archive collection) sees."""
        cycle = self.cycle
        if cycle.policy.archive is not None and cycle.policy.archive.to == "online":
            found = list(archived_source(cycle.database, cycle.policy).batches(FIRST_MS, LAST_MS + 1))
        else:
            archive = cycle.as_stored()
            manifests = archive.manifests(FIRST_MS, LAST_MS + 1)
            if not strict:  # a manifest may come too late, when its files have been cleared
                manifests = [manifest for manifest in manifests if archive.has_files(manifest)]
            found = [whole(archive, manifest) for manifest in manifests]
        return sorted(batch.unit(i) for batch in found for i in range(len(batch)))

    def units(self) -> list[bytes]:
        """Every bucket with its overflow, put together in plain Python."""
        overflow = self.cycle.policy.overflow
        if overflow is None:
            return sorted(self.written)
        more: dict[Any, list[tuple[Any, bytes]]] = {}
        for raw in self.overflow:
            document = bson.decode(raw, CODEC)
            more.setdefault(document[overflow.ref_field], []).append((document["_id"], raw))
        return sorted(
            raw + b"".join(it for _, it in sorted(more.get(bson.decode(raw, CODEC)["_id"], [])))
            for raw in self.written
        )

    def check_nothing_is_lost(self) -> None:
        """Right after a crash."""
        archived = set(self.archived(strict=False))
        overflow = self.cycle.policy.overflow
        live = set(self.cycle.live())
        live_overflow = set(self.cycle.live_overflow()) if overflow else set()
        for unit in self.units():
            if unit not in archived:
                size = int.from_bytes(unit[:4], "little")
                assert unit[:size] in live
                while unit := unit[size:]:
                    size = int.from_bytes(unit[:4], "little")
                    assert unit[:size] in live_overflow

    def check_finished(self) -> None:
        """Each bucket once, in the archive, and nothing else anywhere."""
        cycle = self.cycle
        assert cycle.live() == []
        if cycle.policy.overflow:
            assert cycle.live_overflow() == []
        assert self.archived() == self.units()
        assert cycle.verify().bad == []
        if cycle.policy.archive is None or cycle.policy.archive.to == "online":
            return
        archive = cycle.as_stored()
        assert list(archive.unlisted()) == []
        if cycle.policy.model == "slots":
            assert cycle.rows() == slot_rows(self.written)

    def finish(self) -> None:
        self.cycle.run()
        self.check_nothing_is_lost()
        self.cycle.run()
        self.check_finished()
        before = self.cycle.listing(), self.receipts()
        third = self.cycle.run()
        assert (third.buckets, third.deleted, third.left, third.parts) == (0, 0, 0, 0)
        assert (self.cycle.listing(), self.receipts()) == before

    def check_receipts(self) -> None:
        """What is not live any more is in the receipts of deletes."""
        books = self.cycle.database["bucketwise_receipts"]
        went = sum(
            it["buckets"] for it in books.find({"_id.policy": self.cycle.policy.name, "kind": "delete"})
        )
        assert self.inserted == went + len(self.cycle.live())

    def receipts(self) -> list[bytes]:
        return raw_documents(self.cycle.database, "bucketwise_receipts")


def few(case: Case, count: int = 5) -> Case:
    """Few buckets: each step is tried."""
    kept = case.documents[:count]
    ids = [bson.decode(raw, CODEC)["_id"] for raw in kept]
    overflow = case.policy.overflow
    extra = [raw for raw in case.overflow if overflow and bson.decode(raw, CODEC)[overflow.ref_field] in ids]
    return Case(case.name, case.policy, kept, [], extra)


pytestmark = pytest.mark.usefixtures("quick_disk")


CASES = {
    "slots": few(slots("minute")),
    "overflow": few(samples_overflow()),
    "slots online": few(slots("minute")).online(),
    "overflow online": few(samples_overflow()).online(),
}


@dataclass(frozen=True)
class Scenario:
    """What happens before the run that dies, and while it runs. `kept`: that run deletes nothing."""

    prepare: Callable[[World], None] = nothing
    meddle: tuple[int, ...] = ()  # a bucket changes at these transactions of the run
    kept: bool = False
    goes_on: bool = True  # the world, before the next run


def copied_and_changed(world: World) -> None:
    world.keep(True)
    world.cycle.run()
    world.change(world.first(1))
    world.keep(False)


def came_back(world: World) -> None:
    world.cycle.run()
    insert(world.cycle.database, world.cycle.policy.collection, world.written[:4])
    world.inserted += 4


def restored(world: World) -> None:
    world.cycle.run()
    world.inserted += world.cycle.restore(world.cycle.policy.collection).buckets
    world.change(world.first(1))
    world.cycle.unpin()


def dies_in_exchange(step: str) -> Callable[[World], None]:
    """A run that died while one commit took over another."""

    def prepare(world: World) -> None:
        copied_and_changed(world)
        with pytest.MonkeyPatch.context() as patch:
            steps = Steps(0)
            die_in_transactions(patch, steps)
            seen = {"before commit": 0, "before bury": 0}

            def count(name: str) -> None:
                if name in seen:
                    seen[name] += 1
                # the first transaction of that run deletes, the second exchanges
                if name == step and seen[name] == (2 if name == "before commit" else 1):
                    raise Crash(name)

            patch.setattr(steps, "step", count)
            with pytest.raises(Crash):
                world.cycle.run()

    return prepare


SCENARIOS = {
    "first run": Scenario(),
    "changes": Scenario(meddle=(1, 3)),
    "copied before": Scenario(copied_and_changed, meddle=(2,)),
    "copied again": Scenario(copied_and_changed, kept=True),
    "came back": Scenario(came_back, goes_on=False),
    "restored": Scenario(restored),
    "died before the exchange": Scenario(dies_in_exchange("before commit")),
    "died after the exchange": Scenario(dies_in_exchange("before bury")),
}
QUICK = [
    *(("slots", name) for name in SCENARIOS if name != "first run"),
    ("overflow", "changes"),
    *(("slots online", name) for name in ("changes", "copied before", "copied again", "restored")),
    ("overflow online", "changes"),
]


def _tries() -> Iterator[Any]:
    """At some steps: each name of a step is met in some scenario; in the proofs all of them."""
    yield pytest.param("slots", "first run", False, marks=pytest.mark.proof, id="slots: first run, all")
    for case, scenario in QUICK:
        yield pytest.param(case, scenario, True, id=f"{case}: {scenario}")
        yield pytest.param(case, scenario, False, marks=pytest.mark.proof, id=f"{case}: {scenario}, all")


@pytest.mark.proof
@pytest.mark.parametrize(("case", "scenario", "few_steps"), list(_tries()))
def test_a_crash_at_every_step(
    database: Database[Document],
    file_store: Store,
    monkeypatch: pytest.MonkeyPatch,
    case: str,
    scenario: str,
    few_steps: bool,
) -> None:
    monkeypatch.setattr(writes, "MAX_BUCKETS", 3)
    what = SCENARIOS[scenario]

    def ran(steps: Steps) -> World:
        world = World.make(database, CASES[case], file_store)
        what.prepare(world)
        world.keep(what.kept)
        with pytest.MonkeyPatch.context() as patch:
            die_in_transactions(patch, steps)
            with contextlib.suppress(Crash):
                world.run_dying(steps, what.meddle)
        world.check_nothing_is_lost()
        world.check_receipts()
        return world

    ran(Steps(1000))  # makes the store's marker, which all others find
    whole = Steps(1000)
    ran(whole)
    assert not whole.died
    assert {"before transaction", "before commit", "after commit"} <= set(whole.passed)
    turn = list(SCENARIOS).index(scenario)
    for die_at, only in deaths(whole.passed, turn, of=1 if "online" in case else 3, few_steps=few_steps):
        steps = Steps(die_at, only)
        world = ran(steps)
        assert steps.died
        if what.goes_on and die_at % 2:
            world.go_on()
        world.keep(False)
        world.finish()
        world.check_receipts()


@pytest.mark.proof
@pytest.mark.parametrize(("case", "scenario"), QUICK)
def test_a_crash_where_the_archive_is_encrypted(
    database: Database[Document],
    file_store: Store,
    monkeypatch: pytest.MonkeyPatch,
    case: str,
    scenario: str,
) -> None:
    encrypted = file_store.model_copy(update={"encryption_key": (SecretStr("k" * 40),)})
    test_a_crash_at_every_step(database, encrypted, monkeypatch, case, scenario, few_steps=True)


@pytest.mark.proof
def test_a_crash_between_the_pieces_of_a_long_run(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several commits in one run, each with its own deletes."""
    monkeypatch.setattr(writes, "MAX_BUCKETS", 3)
    monkeypatch.setattr(sweep, "MAX_READINGS", 100)
    for die_at in range(1, 1000, 43):
        world = World.make(database, CASES["slots"], file_store)
        steps = Steps(die_at)
        with pytest.MonkeyPatch.context() as patch:
            die_in_transactions(patch, steps)
            try:
                world.run_dying(steps, (1, 4, 5))
            except Crash:
                world.check_nothing_is_lost()
                world.go_on()
        if not steps.died:
            break
        world.finish()
    assert not steps.died and die_at > 50
