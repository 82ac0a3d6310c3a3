"""Which windows are due, and in which slices; pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import accumulate, pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bucketwise.config.models import make_policy
from bucketwise.config.policies import Retain, Rollup
from bucketwise.rollups.calendar.due import Calendar, Spans, widened
from bucketwise.rollups.calendar.windows import HOUR, to_ms
from tests.rollups.samples import POLICY

DAY = 24 * HOUR
NOW = datetime(2020, 3, 10, 12, 5, tzinfo=UTC)
numbers = st.integers(0, 40)
some = st.lists(st.tuples(numbers, numbers), max_size=6)


def at(*parts: int) -> int:
    return to_ms(datetime(2020, 3, *parts, tzinfo=UTC))  # type: ignore[misc,arg-type]


def calendar(now: datetime = NOW, retain: Retain | None = None, **rollup: Any) -> Calendar:
    made = Rollup(**{"hourly": "h", "daily": "d", **rollup})
    return Calendar(make_policy(**{**POLICY.model_dump(), "rollup": made, "retain": retain}), made, now)


def due(of: Calendar, piece: tuple[int, int], *spans: tuple[int, int]) -> dict[str, list[tuple[int, int]]]:
    return {level.name: of.windows(level, piece, Spans(spans)) for level in of.levels}


@given(some, numbers, numbers)
def test_spans_touch_what_shares_an_instant_with_them(
    parts: list[tuple[int, int]], one: int, other: int
) -> None:
    start, end = min(one, other), max(one, other) + 1
    covered = {instant for low, high in parts for instant in range(low, high)}
    spans = Spans(parts)
    assert spans.touch(start, end) == bool(covered & set(range(start, end)))
    assert {instant for low, high in spans.spans for instant in range(low, high)} == covered
    flat = [edge for span in spans.spans for edge in span]
    assert flat == sorted(set(flat))


@given(some, st.integers(1, 5))
def test_spans_are_together_whose_gap_is_short(parts: list[tuple[int, int]], distance: int) -> None:
    spans = Spans(parts)
    groups = list(spans.near(distance))
    assert [span for group in groups for span in group] == list(spans.spans)
    lengths = [len(group) for group in groups]
    apart = [after[0] - before[1] >= distance for before, after in pairwise(spans.spans)]
    assert list(accumulate(lengths))[:-1] == [i for i, it in enumerate(apart, 1) if it]


def test_a_window_is_due_once_it_is_over_for_settle() -> None:
    piece, span = (at(10), at(11)), (at(1), at(31))
    hours = due(calendar(settle=timedelta(minutes=5)), piece, span)
    assert hours["hourly"][-1] == (at(10, 11), at(10, 12)) and hours["daily"] == []
    assert due(calendar(settle=timedelta(minutes=6)), piece, span)["hourly"][-1] == (at(10, 10), at(10, 11))
    assert due(calendar(NOW + timedelta(days=1)), piece, span)["daily"] == [(at(10), at(11))]


def test_only_windows_that_the_span_touches_are_due() -> None:
    found = due(calendar(), (at(5), at(6)), (at(5, 3), at(5, 4) + 1))
    assert found == {"hourly": [(at(5, 3), at(5, 4)), (at(5, 4), at(5, 5))], "daily": [(at(5), at(6))]}


def test_windows_past_retention_are_not_due() -> None:
    retain = Retain(hourly=timedelta(days=2), daily=None)
    found = due(calendar(retain=retain), (at(8), at(9)), (at(1), at(31)))
    assert found["hourly"][0] == (at(8, 12), at(8, 13))  # ended less than two days ago
    assert found["daily"] == [(at(8), at(9))]


def test_hours_that_reach_over_midnight_belong_to_the_day_that_they_start_in() -> None:
    of = calendar(timezone="Asia/Kolkata")
    piece = (at(4, 18, 30), at(5, 18, 30))
    found = due(of, piece, (at(1), at(31)))
    assert found["daily"] == [piece]
    assert (found["hourly"][0], found["hourly"][-1]) == ((at(4, 19), at(4, 20)), (at(5, 18), at(5, 19)))
    # 18:40 lies in the next day, but its hour belongs to this one.
    assert of.slice_at(at(5, 18, 40), 0) == piece
    assert of.slice_at(at(5, 18, 40), piece[1]) == (at(5, 18, 30), at(6, 18, 30))
    assert widened(of.levels, [(at(5, 18, 40), at(5, 18, 41))]).spans == [(at(5, 18), at(6, 18, 30))]


def test_without_daily_summaries_slices_are_utc_days() -> None:
    of = calendar(daily=None, timezone="Asia/Kolkata")
    assert of.slice_at(at(5, 18, 40), 0) == (at(5), at(6))
