"""The protocol, explored: no schedule breaks a promise, and each fault of the past is found."""

from __future__ import annotations

import pytest

from tests.explore.__main__ import LIMITS, explored
from tests.explore.breadth import Search, exhaustive
from tests.explore.explorer import Scope, shortest
from tests.explore.put_back import FAULTS, put_back
from tests.explore.schedules import random_schedule


def test_no_schedule_breaks_a_promise() -> None:
    failures = (random_schedule(seed, 100) for seed in range(1, 61))
    assert [it.wrong for it in failures if it is not None] == []


@pytest.mark.parametrize("seed", [3003045, 3015155])
def test_schedules_that_failed_once_hold(seed: int) -> None:
    assert random_schedule(seed, 100) is None


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_past_is_found(name: str) -> None:
    with put_back(name) as fault:
        found = fault.found()
        assert found is not None
        least = shortest(found)
    assert least.wrong.split()[0] == found.wrong.split()[0]
    assert len(least.events) <= 20, least.story


def test_no_schedule_of_few_turns_breaks_one() -> None:
    scope = Scope(("archive",), (0,), (1,), holds=False, is_faulty=False, most=LIMITS)
    levels = list(exhaustive(Search(scope), 3))
    assert [it.failure for it in levels] == [None] * 3
    assert levels[-1].states > 400


@pytest.mark.proof
@pytest.mark.process
def test_no_schedule_of_thousands_breaks_one() -> None:
    failures = [it.wrong for found, _ in explored(10_000, 100, 1) for it in found]
    assert failures == []
