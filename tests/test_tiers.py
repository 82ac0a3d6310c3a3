"""Which cases of a test `make test` tries, and which the proofs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tiers import take_turns, turn_of


class _Case(pytest.Item):
    def runtest(self) -> None:
        """Nothing."""


@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 100))
def test_as_many_are_tried_as_was_said(cases: int, count: int, turn: int) -> None:
    tried = turn_of(cases, count, turn)
    assert len(tried) == min(cases, count)
    assert tried <= set(range(cases))


@given(st.integers(1, 60), st.integers(1, 60))
def test_every_case_has_its_turn(cases: int, count: int) -> None:
    assert set.union(*(turn_of(cases, count, turn) for turn in range(cases))) == set(range(cases))


def test_the_others_are_proofs(request: pytest.FixtureRequest) -> None:
    def case(name: str, *marks: pytest.MarkDecorator) -> pytest.Item:
        made: pytest.Item = _Case.from_parent(request.session, name=name, nodeid=f"tests/test_it.py::{name}")
        for mark in marks:
            made.add_marker(mark)
        return made

    turn = pytest.mark.in_turn(1)
    cases = [case(f"test_{name}[{kind}]", turn) for name in ("first", "second") for kind in "ab"]
    cases += [
        case("test_second[c]", turn, pytest.mark.proof),
        case("test_of_each[a]"),
        case("test_of_each[b]"),
    ]
    take_turns(cases)
    tried = [it.name for it in cases if not it.get_closest_marker("proof")]
    assert tried == ["test_first[a]", "test_second[b]", "test_of_each[a]", "test_of_each[b]"]
