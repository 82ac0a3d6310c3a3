"""Runs that lost their lease without noticing: they harm nothing, and leave nothing that lasts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from pymongo.database import Database

from bucketwise.archivers import writes
from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.format.manifest import Manifest
from bucketwise.archivers.records import registry
from bucketwise.config.errors import BucketwiseError, LeaseLostError
from bucketwise.config.tables import Store
from tests.archivers.builders import slots
from tests.archivers.faults import Crash, DyingStore, Steps, deaths, die_in_transactions
from tests.archivers.harness import Cycle
from tests.archivers.moving.test_crash import CASES, SCENARIOS, World

Document = dict[str, Any]


pytestmark = pytest.mark.usefixtures("quick_disk")


@dataclass
class Paused(Steps):
    """At one step another run takes the lease and does all the work; then this one goes on."""

    world: World | None = None
    changes: bool = False
    lost: bool = False
    busy: bool = False  # the other run is at work

    def step(self, name: str) -> None:
        if not self.busy and name != "before commit":  # inside a transaction the lease can't change hands
            super().step(name)

    def reached(self, name: str) -> None:
        assert self.world is not None, name
        self.lost = self.busy = True
        if self.changes:
            self.world.change(self.world.first(2))
        self.world.cycle.run()
        self.world.cycle.run()
        self.busy = False

    def guard(self, *_args: object) -> None:
        if self.lost:
            raise LeaseLostError("another run took it")


def _tries() -> list[Any]:
    found = []
    for case in ("slots", "slots online"):
        for scenario in ("first run", "copied before", "copied again", "died before the exchange"):
            if "online" not in case or "died" not in scenario:
                found.append(pytest.param(case, scenario, True, id=f"{case}: {scenario}"))
    for scenario in ("first run", "copied before", "copied again"):
        found.append(
            pytest.param("slots", scenario, False, marks=pytest.mark.proof, id=f"slots: {scenario}, all")
        )
    return found


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize(("case", "scenario", "few_steps"), _tries())
def test_a_run_that_wakes_up_after_another_did_its_work(
    database: Database[Document],
    file_store: Store,
    monkeypatch: pytest.MonkeyPatch,
    case: str,
    scenario: str,
    few_steps: bool,
) -> None:
    monkeypatch.setattr(writes, "MAX_BUCKETS", 3)
    what = SCENARIOS[scenario]

    def ran(steps: Paused) -> World:
        steps.world = world = World.make(database, CASES[case], file_store)
        what.prepare(world)
        world.keep(what.kept)
        cycle = world.cycle
        cycle.fence += 1
        with pytest.MonkeyPatch.context() as patch:
            die_in_transactions(patch, steps)
            try:
                cycle.run(
                    fence=cycle.fence,
                    guard=steps.guard,
                    check=partial(steps.step, "check"),
                    store=DyingStore(cycle.store, steps),
                )
            except BucketwiseError:
                assert steps.lost
        world.check_nothing_is_lost()
        return world

    ran(Paused(1000))  # which claims the store
    whole = Paused(1000)
    ran(whole)
    assert not whole.lost and len(whole.passed) > 3
    turn = list(SCENARIOS).index(scenario)
    for pause_at, only in deaths(whole.passed, turn, of=1 if "online" in case else 3, few_steps=few_steps):
        steps = Paused(pause_at, only, changes=bool(pause_at % 2))
        world = ran(steps)
        assert steps.lost
        world.keep(False)
        world.finish()


def test_files_of_a_newer_holder_are_left_alone(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run under lease 7 is about to commit; one under lease 6 clears, and must not take its files."""
    cycle = Cycle(database, slots("minute"), file_store).load()
    steps = Steps(10**6)

    def die_when_written(name: str) -> None:
        steps.passed.append(name)
        if name == "after put_bytes" and sum("_f000007_" in key for key in cycle.listing()) == 2:
            raise Crash(name)

    monkeypatch.setattr(steps, "step", die_when_written)
    with pytest.raises(Crash):
        cycle.run(fence=7, store=DyingStore(cycle.store, steps))
    newer = {key for key in cycle.listing() if "_f000007_" in key}
    assert len(newer) == 2
    cycle.run(fence=6)
    assert newer <= set(cycle.listing())
    cycle.run(fence=8)
    assert not newer & set(cycle.listing())
    assert cycle.archived() == sorted(cycle.case.documents)


def test_a_manifest_is_not_announced_without_the_lease(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    cycle = Cycle(database, slots("minute"), file_store).load()
    commit, lost = OfflineArchive.commit, list[bool]()

    def lose_and_commit(*given: Any) -> Manifest:
        lost.append(True)
        return commit(*given)

    def check() -> None:
        if lost:
            raise LeaseLostError("another run took it")

    monkeypatch.setattr(OfflineArchive, "commit", lose_and_commit)
    with pytest.raises(LeaseLostError):
        cycle.run(check=check)
    assert lost
    assert database["bucketwise_receipts"].count_documents({"kind": registry.NAME}) == 0
