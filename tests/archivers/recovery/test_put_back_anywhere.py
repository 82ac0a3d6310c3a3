"""A backup of MongoDB is taken somewhere in a random story, and put back later, beside a newer store.

What the archive holds by then stays in it, and what was live comes into it; the runs after it may die, too.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import bson
import pytest

from bucketwise.config.errors import BucketwiseError, HaltedError
from tests.archivers.builders import CODEC
from tests.archivers.faults import Crash, DyingStore, Steps, die_in_transactions
from tests.archivers.harness import Backup, Cycle
from tests.archivers.recovery.test_put_back import change, codes, cycle, held, keep, put

__all__ = ["cycle"]
pytestmark = pytest.mark.usefixtures("quick_disk")
_ACTS = ("new", "new", "change", "change", "run", "run", "copy", "delete", "die", "die", "restore", "reuse")
_SEEDS = [*range(3), *(pytest.param(seed, marks=pytest.mark.proof) for seed in range(3, 100))]


class Story:
    def __init__(self, cycle: Cycle, seed: int) -> None:
        self.cycle, self.random = cycle, random.Random(seed)
        self.written, self.versions = 0, 0

    def act(self, what: str) -> None:
        cycle = self.cycle
        if what == "new" and self.written < 36:
            put(cycle, self.written, self.written + 2)
            self.written += 2
        elif what == "change" and (live := sorted(self.live())):
            self.change(self.random.choice(live)[0])
        elif what == "reuse" and self.written:
            identity = self.random.randrange(self.written)
            if identity not in {it for it, _ in self.live()}:
                put(cycle, identity, identity + 1)
                self.change(identity)
        elif what in ("copy", "delete"):
            keep(cycle, what == "copy")
            cycle.run()
        elif what == "run":
            cycle.run()
        elif what == "die":
            self.die()
        elif what == "restore":
            try:
                cycle.restore(cycle.policy.collection)
            except BucketwiseError as error:
                assert "another document has the same _id" in str(error)
            cycle.unpin()

    def acts(self, count: int) -> None:
        for _ in range(count):
            self.act(self.random.choice(_ACTS))

    def change(self, identity: int) -> None:
        self.versions += 1
        change(self.cycle, identity, f"v{self.versions}")

    def die(self, work: Callable[..., object] | None = None) -> None:
        """While it runs, or adopts."""
        steps = Steps(self.random.randrange(5, 80))
        with pytest.MonkeyPatch.context() as patch:
            die_in_transactions(patch, steps)
            try:
                store = DyingStore(self.cycle.store, steps)
                (work or self.cycle.run)(store=store, check=lambda: steps.step("check"))
            except Crash:
                pass

    def live(self) -> set[tuple[int, str]]:
        found = (bson.decode(raw, CODEC) for raw in self.cycle.live())
        return {(it["_id"], it.get("note", "")) for it in found}


def put_back(cycle: Cycle, story: Story, before: int, since: int) -> bool:
    """Fewer than so many things happen before the backup, and since. Each bucket is found once; False where a
    person has to look first."""
    story.acts(story.random.randrange(2, before))
    cycle.run()
    backup, live = Backup(cycle), story.live()
    story.acts(story.random.randrange(1, since))
    cycle.run()
    archived = set(held(cycle))
    backup.put_back(cycle)
    keep(cycle, False)
    try:
        for _ in range(story.random.randrange(3)):
            story.die(cycle.adopt)
        cycle.adopt()
        cycle.run()
    except HaltedError as error:  # there may be no other copy: a person has to look
        assert "though a receipt names it" in str(error)
        return False
    cycle.run()
    assert story.live() == set()
    found = held(cycle)
    assert archived | live <= set(found)
    assert len(found) == len(set(found))
    assert cycle.verify().bad == []
    return True


@pytest.mark.in_turn(1)
@pytest.mark.parametrize("seed", _SEEDS)
def test_put_back_anywhere(cycle: Cycle, seed: int) -> None:
    if put_back(cycle, Story(cycle, seed), 9, 7):
        assert codes(cycle) <= {("receipts-lost", "warning")}
