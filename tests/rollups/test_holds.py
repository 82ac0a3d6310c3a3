"""What a hold covers. How it keeps things is tested where they would go."""

from __future__ import annotations

from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from bucketwise.buckets.fields.times import TimeRange, as_ms
from bucketwise.rollups.holds import Hold
from tests.jobs.place import START

HOURS = st.none() | st.integers(-5, 5)
EDGES = st.integers(-6, 6)


@given(since=HOURS, until=HOURS, start=EDGES, length=st.integers(1, 4))
def test_it_touches_a_span_with_an_instant_in_its_range(
    since: int | None, until: int | None, start: int, length: int
) -> None:
    if since is not None and until is not None and since >= until:
        since, until = None, until
    within = TimeRange(at(since), at(until))
    hold = Hold("case-17", {}, within, "a case", START, "ann@db1", False, b"salt")
    begin, end = START + start * timedelta(hours=1), START + (start + length) * timedelta(hours=1)
    instants = [begin + number * timedelta(minutes=30) for number in range(2 * length)]
    expected = any(
        (within.since is None or within.since <= it) and (within.until is None or it < within.until)
        for it in instants
    )
    assert hold.touches(as_ms(begin), as_ms(end)) == expected


def at(hours: int | None) -> datetime | None:
    return None if hours is None else START + hours * timedelta(hours=1)
