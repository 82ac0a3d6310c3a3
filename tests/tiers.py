"""Which of three tiers tries a case: `make test`, the proofs, or the runs of hours."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import pytest


def tier(*, is_first: bool, is_proof: bool) -> list[pytest.MarkDecorator]:
    """Returns the marks of a case. `is_first`: `make test` tries it."""
    if is_first:
        return []
    return [pytest.mark.proof if is_proof else pytest.mark.soak]


def take_turns(items: Iterable[pytest.Item]) -> None:
    """Of each test marked `in_turn(count)`, leaves so many cases to `make test`, and makes the others proofs.
    Which ones changes from test to test of a file, so that each kind of archive or model has its turn there.
    """
    files: dict[str, dict[str, list[pytest.Item]]] = defaultdict(lambda: defaultdict(list))
    for item in items:
        if item.get_closest_marker("in_turn") and not any(map(item.get_closest_marker, ("proof", "soak"))):
            files[item.nodeid.partition("::")[0]][item.nodeid.partition("[")[0]].append(item)
    for tests in files.values():
        for turn, cases in enumerate(tests.values()):
            marker = cases[0].get_closest_marker("in_turn")
            assert marker is not None
            tried = turn_of(len(cases), marker.args[0], turn)
            for at, case in enumerate(cases):
                if at not in tried:
                    case.add_marker("proof")


def turn_of(cases: int, count: int, turn: int) -> set[int]:
    """Returns the places of those cases that are tried, which lie far apart."""
    if cases <= count:
        return set(range(cases))
    return {(turn + number * cases // count) % cases for number in range(count)}
