"""The search through all schedules: what it leaves out makes no difference, and its schedules fail again."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.explore.breadth import Search, exhaustive
from tests.explore.explorer import Scope
from tests.explore.put_back import put_back
from tests.explore.world import HOUR, Frozen

#: How often what may happen.
FEW = {"start": 2, "kill": 1, "late": 1, "tick": 1, "write": 1, "elsewhere": 0}
SOME = {**FEW, "write": 2}
FOR_GOOD = 40


def scope_of(most: Mapping[str, int], *others: str, kind: str = "offline") -> Scope:
    return Scope(("archive", *others), (0,), (1,), holds=False, is_faulty=False, kind=kind, most=Frozen(most))


def ends(scope: Scope, grace: int, *, reduces: bool) -> set[int]:
    """Whatever is left once nobody is at work."""
    search = Search(scope, grace, reduces=reduces, size=22)
    search.ends = set()
    *_, last = exhaustive(search, FOR_GOOD)
    assert last.failure is None
    assert last.number < FOR_GOOD
    return search.ends


@pytest.mark.parametrize("grace", [0, HOUR])
@pytest.mark.parametrize(
    "most",
    [
        pytest.param({**FEW, "tick": 0}, id="few"),
        pytest.param(FEW, marks=pytest.mark.proof, id="an hour"),
        pytest.param({**SOME, "tick": 0}, marks=pytest.mark.proof, id="some"),
    ],
)
def test_what_commutes_makes_no_difference_in_the_end(most: Mapping[str, int], grace: int) -> None:
    scope = scope_of(most)
    whole = ends(scope, grace, reduces=False)
    assert len(whole) > 10
    assert ends(scope, grace, reduces=True) == whole


@pytest.mark.parametrize(
    ("name", "grace"),
    [("deletes-by-id", HOUR), ("later-one-hides", 0), ("not-kept", HOUR), ("not-rolled-up", 0)],
)
def test_what_commutes_hides_no_fault(name: str, grace: int) -> None:
    """Each search finds it by as many turns, and its schedule fails when it is repeated."""
    scope, depths = scope_of({**SOME, "write": 3}), []
    for reduces in (False, True):
        with put_back(name):
            *_, last = exhaustive(Search(scope, grace, reduces=reduces), 4)
        assert last.failure is not None
        depths.append(last.number)
    assert depths == [4, 4]


@pytest.mark.process
def test_processes_find_what_one_finds() -> None:
    scope = scope_of(SOME)
    one, two = (list(exhaustive(Search(scope), 4, processes)) for processes in (1, 2))
    assert [it.states for it in one] == [it.states for it in two]
    assert one[-1].failure is None
