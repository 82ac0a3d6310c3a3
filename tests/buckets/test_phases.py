"""Phases: who counts a second, and who does not."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import pytest

from bucketwise.buckets import phases
from bucketwise.buckets.phases import phase, profiled, waiting


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock of which a test says how it goes."""
    now = [0.0]
    monkeypatch.setattr(phases, "perf_counter", lambda: now[0])
    return now


@phase("decode")
def decoded(clock: list[float], seconds: float) -> float:
    clock[0] += seconds
    return seconds


def test_a_second_counts_for_the_inner_phase_alone(clock: list[float]) -> None:
    with profiled() as times:
        with phase("compare"):
            clock[0] += 1
            with phase("read_back"):
                clock[0] += 2
            assert decoded(clock, 4) == 4
            clock[0] += 8
        clock[0] += 16
    decoded(clock, 32)
    told = {name: it for name, it in times.seconds.items() if it}
    assert told == {"compare": 9, "read_back": 2, "decode": 4}


def test_what_fails_counts_and_others_go_on(clock: list[float]) -> None:
    with profiled() as times:
        with pytest.raises(ZeroDivisionError), phase("put"):
            clock[0] += 1
            raise ZeroDivisionError
        decoded(clock, 2)
    assert (times.seconds["put"], times.seconds["decode"]) == (1, 2)


def test_getting_items_counts_and_what_is_done_with_them_does_not(clock: list[float]) -> None:
    with profiled() as times:
        for seconds in waiting("read", (decoded(clock, it) for it in (1, 2, 4))):
            clock[0] += 100 * seconds
    assert (times.seconds["read"], times.seconds["decode"]) == (0, 7)


def test_threads_with_the_context_count(clock: list[float]) -> None:
    with profiled() as times, ThreadPoolExecutor(1) as pool:
        pool.submit(copy_context().run, decoded, clock, 3.0).result()
        pool.submit(decoded, clock, 5.0).result()
    assert times.seconds["decode"] == 3
