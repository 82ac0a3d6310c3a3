"""The lineage: whatever crashes, one database goes on, and of two the second to write is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from bucketwise.archivers.markers import MOST_BEGUN, Lineage, Step, step_key, step_of

DIES = ("not", "not", "after begun", "after removed", "after put", "after done")


@dataclass
class Writer:
    """A database, and runs on it that move the lineage."""

    name: str
    store: set[Step]
    owners: set[str]
    lineage: Lineage = field(default_factory=Lineage)
    runs: int = 0

    def may_write(self) -> bool:
        is_taken = self.lineage.went_on(self.store, has_owner=bool(self.owners))
        return not (self.lineage.is_behind(self.store) or self.lineage.foreign(self.store) or is_taken)

    def run(self, dies: str, *, after_put: Callable[[], None] = lambda: None) -> None:
        self.runs += 1
        listed = sorted(self.store)
        step = self.lineage.next(listed, f"{self.name}{self.runs}")
        self.lineage = self.lineage.begin(step, listed[-1:])
        if dies == "after begun":
            return
        self.store -= {*listed[:-1]}
        if dies == "after removed":
            return
        self.store.add(step)
        if dies == "after put":
            return
        after_put()
        assert not self.lineage.finish(step).foreign(self.store)
        self.lineage = self.lineage.finish(step)
        if dies == "after done":
            return
        self.store -= {it for it in self.store if it.number < step.number}
        self.owners.add("a")

    def clone(self, name: str) -> Writer:
        return Writer(name, self.store, self.owners, self.lineage)


@given(st.lists(st.sampled_from(DIES), max_size=3 * MOST_BEGUN))
def test_one_database_goes_on_whatever_dies(deaths: list[str]) -> None:
    ours = Writer("a", set(), set())
    for dies in (*deaths, "not"):
        assert ours.may_write()
        ours.run(dies)
        assert len(ours.lineage.begun) <= MOST_BEGUN + 2 and len(ours.store) <= 2
    assert ours.may_write() and len(ours.store) == 1
    assert Lineage.of(ours.lineage.body) == ours.lineage


@given(st.lists(st.sampled_from(DIES), max_size=5), st.lists(st.sampled_from(DIES), max_size=40))
def test_of_two_that_nothing_else_tells_apart_the_second_to_write_halts(
    before: list[str], after: list[str]
) -> None:
    first = Writer("a", set(), set())
    for dies in (*before, "not"):
        first.run(dies)
    second = first.clone("b")
    assert first.may_write() and second.may_write()
    for dies in ("not", *after):
        first.run(dies)
        assert not second.may_write()
    assert first.may_write()


@given(st.lists(st.sampled_from(DIES), max_size=5))
def test_a_clone_that_was_made_while_a_step_was_put_halts_once_that_run_went_on(before: list[str]) -> None:
    first, made = Writer("a", set(), set()), list[Writer]()
    for dies in before:
        first.run(dies)
    first.run("not", after_put=lambda: made.append(first.clone("b")))
    (second,) = made
    assert first.may_write() and not second.may_write()


@given(st.integers(1, 5), st.integers(1, 60))
def test_a_store_that_was_rolled_back_is_told(before: int, after: int) -> None:
    ours = Writer("a", set(), set())
    for _ in range(before):
        ours.run("not")
    older = set(ours.store)
    for _ in range(after):
        ours.run("not")
    assert ours.lineage.is_behind(older) and ours.lineage.is_behind(set())


def test_the_first_step_stays_known_however_many_runs_die_after_it() -> None:
    ours = Writer("a", set(), set())
    for dies in ("after put", *["after begun"] * 3 * MOST_BEGUN, "not"):
        assert ours.may_write(), ours
        ours.run(dies)


def test_of_two_that_begin_at_once_one_halts_though_many_of_its_runs_have_died() -> None:
    ours, store = Writer("a", set(), set()), {Step(1, "b1")}
    for _ in range(2 * MOST_BEGUN):
        ours.run("after begun")
    step = Step(99, "a99")
    begun = ours.lineage.begin(step)  # it had listed before the other came
    assert begun.foreign({*store, step}) == [Step(1, "b1")]


def test_a_key_tells_its_step() -> None:
    step = Step(12, "0f" * 16)
    assert step_of("ticks", step_key("ticks", step)) == step
    assert step_of("ticks", "ticks/meta/lineage/notes.txt") is None
