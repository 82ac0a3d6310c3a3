"""As `test_put_back_anywhere`, and commits are merged before the backup and after it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.archivers.builders import LATER
from tests.archivers.faults import Crash, DyingStore, Steps, die_in_transactions
from tests.archivers.harness import Cycle
from tests.archivers.recovery.test_put_back import codes, cycle
from tests.archivers.recovery.test_put_back_anywhere import _ACTS, Story, put_back

__all__ = ["cycle"]
pytestmark = pytest.mark.usefixtures("quick_disk")
_MORE = (*_ACTS, "compact", "compact", "compact", "die merging")
_TELLING = (107, 214, 257, 280, 308)  # each found something
_MANY = (seed for seed in range(300, 400) if seed not in _TELLING)
_SEEDS = [*_TELLING, *(pytest.param(seed, marks=pytest.mark.proof) for seed in _MANY)]


class MergingStory(Story):
    """Time goes on from act to act, so that what was replaced is dropped soon or late."""

    def __init__(self, cycle: Cycle, seed: int) -> None:
        super().__init__(cycle, seed)
        self.now = LATER
        run, compact, adopt = cycle.run, cycle.compact, cycle.adopt

        def later() -> Any:
            self.now += timedelta(minutes=self.random.choice((1, 40, 90)))
            return self.now

        vars(cycle).update(
            run=lambda **given: run(later(), **given),
            compact=lambda **given: compact(later(), **given),
            adopt=lambda **given: adopt(later(), **given),
        )

    def act(self, what: str) -> None:
        if what == "compact":
            self.cycle.compact()
        elif what == "die merging":
            self.die_merging()
        else:
            super().act(what)

    def die_merging(self) -> None:
        steps = Steps(self.random.randrange(5, 60))
        with pytest.MonkeyPatch.context() as patch:
            die_in_transactions(patch, steps)
            try:
                store = DyingStore(self.cycle.store, steps)
                self.cycle.compact(store=store, check=lambda: steps.step("check"))
            except Crash:
                pass

    def acts(self, count: int) -> None:
        for _ in range(count):
            self.act(self.random.choice(_MORE))


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize("seed", _SEEDS)
def test_put_back_among_merges(cycle: Cycle, seed: int) -> None:
    if put_back(cycle, MergingStory(cycle, seed), 12, 12):
        cycle.run(fence=1000)  # the count of leases was put back, too
        assert codes(cycle) <= {("receipts-lost", "warning")}
