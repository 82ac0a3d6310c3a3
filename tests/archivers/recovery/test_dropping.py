"""Which replaced commits may go, and what stands in their place: decisions apart from IO."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bucketwise.archivers import decisions

NOW, DELAY = datetime(2018, 9, 1, tzinfo=UTC), timedelta(hours=1)


@st.composite
def merges(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Receipts of replaced commits, each by a later one, or by none."""
    count = draw(st.integers(1, 8))
    return [
        {
            "_id": {"name": f"c{at}"},
            "sequence": at,
            "replaced_by": draw(st.sampled_from([None, *(f"c{by}" for by in range(at + 1, count + 3))])),
            **(
                {"replaced_at": NOW - draw(st.sampled_from([DELAY, DELAY / 2]))}
                if draw(st.booleans())
                else {}
            ),
        }
        for at in range(count)
    ]


@given(merges(), st.sets(st.integers(0, 7).map("c{}".format)))
def test_what_a_commit_was_merged_from_stays_at_most_as_long(
    replaced: list[dict[str, Any]], held: set[str]
) -> None:
    going = [it["_id"]["name"] for it in decisions.droppable(replaced[::-1], NOW, DELAY, held)]
    by = {it["_id"]["name"]: it["replaced_by"] for it in replaced}
    staying = by.keys() - set(going)
    assert not held & set(going) and going == sorted(going)
    assert {by[it] for it in staying} & set(going) == set()
    read = {it["_id"]["name"] for it in replaced if it.get("replaced_at", NOW - DELAY) > NOW - DELAY}
    stays = held & by.keys() | read
    assert stays <= staying
    while more := {by[it] for it in stays} & by.keys() - stays:
        stays |= more
    assert staying == stays  # and none for any other reason


@given(merges())
def test_the_last_of_those_that_took_over_stands(replaced: list[dict[str, Any]]) -> None:
    by = {it["_id"]["name"]: it["replaced_by"] for it in replaced}
    for name in by:
        found = decisions.successors(name, by)
        assert found[0] == by[name] and found[-1] not in by
        assert all(by[one] == after for one, after in itertools.pairwise(found) if one)


def test_commits_that_are_said_to_have_replaced_each_other_come_to_an_end() -> None:
    assert decisions.successors("a", {"a": "b", "b": "c", "c": "b"}) == ["b", "c", "b"]
    assert decisions.successors("a", {"a": "a"}) == ["a"]
