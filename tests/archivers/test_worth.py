"""How much a month adds, and how large indexes would be, against plain sums."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from bucketwise.archivers.worth import CollectionSize, index_before, monthly
from tests.examples import examples

DAY = 86_400_000
spans = st.lists(
    st.tuples(st.integers(-500, 500), st.integers(0, 200), st.integers(0, 10**12)).map(
        lambda it: (it[0] * DAY, (it[0] + it[1]) * DAY, it[2])
    ),
    max_size=6,
)


def by_day(found: list[tuple[int, int, int]]) -> dict[int, Fraction]:
    """The bytes of each day, each span cut into its days."""
    days: dict[int, Fraction] = {}
    for start, end, size in found:
        count = (end - start) // DAY
        for number in range(count):
            at = start // DAY + number
            days[at] = days.get(at, Fraction(0)) + Fraction(size, count)
    return days


@settings(max_examples=examples(100))
@given(found=spans.map(lambda them: [it for it in them if it[1] > it[0]]))
def test_a_month_adds_what_thirty_of_the_last_days_hold(found: list[tuple[int, int, int]]) -> None:
    days = by_day(found)
    if not days:
        assert monthly(found) is None
        return
    first = max(min(start for start, _, _ in found), max(end for _, end, _ in found) - 90 * DAY) // DAY
    last = max(end for _, end, _ in found) // DAY
    recent = sum((size for day, size in days.items() if first <= day < last), Fraction(0))
    told = monthly(found)
    assert told is not None
    assert abs(told - recent * 30 / (last - first)) <= 1 + recent / 10**12


def test_what_was_before_the_last_ninety_days_does_not_count() -> None:
    old, new = (0, 100 * DAY, 10**9), (100 * DAY, 190 * DAY, 9_000)
    assert monthly([old, new]) == 3_000


@given(at=st.integers(0, 10**12), size=st.integers(0, 10**12))
def test_an_instant_tells_no_growth(at: int, size: int) -> None:
    assert monthly([(at, at, size)]) is None


@given(
    data=st.integers(0, 10**10),
    indexes=st.integers(0, 10**9),
    free=st.integers(0, 10**9),
    removed=st.integers(0, 10**11),
)
def test_indexes_were_as_large_as_they_are_at_least(data: int, indexes: int, free: int, removed: int) -> None:
    live = CollectionSize(data, indexes, free, 2)
    told = index_before(live, removed)
    assert told >= indexes
    if data:
        assert told <= indexes + max(0, indexes - 2 * 20_480) * removed / data
        assert index_before(live, 0) == indexes
