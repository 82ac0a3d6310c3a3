"""What programs remember: enough to tell those apart that do different things, and no more."""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import Any

import pytest

from tests.explore.actors import Stage
from tests.explore.effects import get, put
from tests.explore.explorer import Scope, State
from tests.explore.memory import remembered
from tests.explore.world import HOUR, Effect

Steps = Generator[Effect, Any, None]


def two_reads() -> Steps:
    """Reads two objects, and writes what it has read last."""
    first = yield get("file", 1)
    del first
    last = yield get("file", 2)
    yield put("file", 3, last)


def forgetful() -> Steps:
    """Reads an object, and never looks at it again."""
    unused = yield get("file", 1)
    assert unused is not None
    for number in range(2):
        yield put("file", number, "x")


def after(program: Any, *replies: Any) -> Any:
    stage = Stage(program)
    for it in replies:
        stage = stage.told(it)
    return stage.memory


def test_what_is_not_read_again_is_forgotten() -> None:
    assert after(two_reads, "a") == after(two_reads, "b")
    assert after(forgetful, "a") == after(forgetful, "b")


def test_what_is_read_again_is_remembered() -> None:
    assert after(two_reads, "a", "a") != after(two_reads, "a", "b")
    assert after(two_reads, "a", "b") == after(two_reads, "b", "b")


def test_where_a_loop_stands_is_remembered() -> None:
    assert after(forgetful, "a") != after(forgetful, "a", None)


def test_what_it_is_about_to_do_is_remembered() -> None:
    def program(name: str) -> Steps:
        yield get("file", name)

    one, other = (Stage(lambda name=name: program(name)) for name in "ab")  # type: ignore[misc]
    assert one.memory != other.memory


def test_a_stage_that_has_gone_on_can_be_returned_to() -> None:
    here = Stage(two_reads).told("a")
    before = here.memory
    assert here.told("b").memory != here.told("c").memory
    assert here.memory == before


def test_what_nothing_tells_apart_is_refused() -> None:
    with pytest.raises(TypeError, match="nothing tells what a object remembers"):
        remembered(object())


def test_who_says_that_it_is_blind_sees_nothing_of_writers() -> None:
    """Whatever a writer does before one of its commands, that has the same reply, and changes the same."""
    tried = set[str]()
    for seed in range(30):
        state = State(HOUR * (seed % 2), Scope(("archive",), (0,), holds=False, is_faulty=False))
        chooser = random.Random(seed)
        for _ in range(60):
            events = list(state.events())
            weights = [{"step": 2.0, "write": 0.6, "kill": 0.1}.get(it[0], 0.5) for it in events]
            for slot, actor in state.actors.items():
                if actor.next is not None and actor.next.is_blind:
                    tried.add(actor.next.name.split()[0])
                    check_blind(state, actor.next, slot)
            state.happen(chooser.choices(events, weights)[0])
    assert tried >= {"begins", "checks", "lists", "reads"}


def check_blind(state: State, effect: Effect, slot: str) -> None:
    plain = state.copy()
    reply = effect.do(plain.at(slot))
    for event in [it for it in state.events() if it[0] == "write"]:
        written = state.copy()
        written.happen(event)
        before = written.world.key()
        changes = plain.world.key() != state.world.key()
        assert remembered(effect.do(written.at(slot))) == remembered(reply), effect.name
        assert (written.world.key() != before) == changes, effect.name
