"""Summaries equal plain Python's, and merge to the same bytes however the readings were split."""

from __future__ import annotations

from functools import reduce
from itertools import groupby
from typing import Any
from unittest.mock import patch

import bson
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketwise.rollups.statistics import moments
from bucketwise.rollups.summaries import documents, summary
from bucketwise.rollups.summaries.summary import State, aggregate
from tests.rollups.samples import (
    HOUR,
    POLICY,
    STATISTICS,
    Reading,
    columns_of,
    day_summary,
    hour_summary,
    merge,
    plain_deviation,
    plain_summary,
)
from tests.rollups.samples import readings as readings_in_any_order

HOURS = np.arange(4, dtype=np.int64) * HOUR
DAY = np.array([0, 3 * HOUR], dtype=np.int64)


def states(found: list[Reading], edges: Any = HOURS) -> dict[tuple[int, int], State]:
    return {
        (series, window): state for series, window, state in aggregate(columns_of(found), edges, STATISTICS)
    }


def to_bytes(state: State) -> bytes:
    return day_summary(POLICY, ("MDB", 1), 0, 3 * HOUR, "UTC", state)


def in_buckets(found: list[Reading]) -> list[Reading]:
    """With times that ascend in each bucket: then buckets need not be sorted into each other."""
    return sorted(found, key=lambda one: one.time)


readings = st.one_of(readings_in_any_order, readings_in_any_order.map(in_buckets))


@given(readings, st.sampled_from([1, 3, 1 << 15]), st.sampled_from([0, 2, 99]))
def test_summaries_equal_plain_python(found: list[Reading], at_once: int, long: int) -> None:
    inside = [one for one in found if one.time < 3 * HOUR]
    keyed = sorted(inside, key=lambda one: (one.series, one.time // HOUR))
    expected = {key: list(group) for key, group in groupby(keyed, lambda one: (one.series, one.time // HOUR))}
    with patch.object(moments, "AT_ONCE", at_once), patch.object(summary, "LONG", long):
        aggregated = states(found)
    assert list(aggregated) == list(expected)
    for key, group in expected.items():
        document = documents.filled(POLICY, bson.decode(hour_summary(POLICY, ("MDB", 1), 0, aggregated[key])))
        assert document["count"] == len(group)
        for at, part in enumerate((document["p"], document["q"]["r"])):
            plain = plain_summary(group, at)
            assert {name: part[name] for name in plain} == plain


@given(readings)
def test_buckets_where_they_lie_give_what_sorted_readings_give(found: list[Reading]) -> None:
    with patch.object(summary, "LONG", 0):
        where_they_lie = states(found)
    with patch.object(summary, "LONG", 99):
        assert states(found) == where_they_lie


def test_a_bucket_lies_in_several_windows_and_beyond() -> None:
    """From an hour before the first window to an hour after the last, beside one of another series."""
    found = [Reading(0, 0, minute * 60_000, (float(minute), None)) for minute in range(-60, 240)]
    found += [Reading(1, 1, minute * 60_000, (1.0, None)) for minute in range(70, 100)]
    columns = columns_of(found)
    assert summary._by_buckets(columns, HOURS) is not None  # nothing is sorted
    told = {
        key: (state.count, *(document["p"][name] for name in ("first", "last")))
        for key, state in states(found).items()
        if (document := bson.decode(to_bytes(state)))
    }
    assert told == {
        (0, 0): (60, 0.0, 59.0), (0, 1): (60, 60.0, 119.0), (0, 2): (60, 120.0, 179.0), (1, 1): (30, 1.0, 1.0)
    }  # fmt: skip


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40))
def test_deviation_and_percentiles_equal_plain_python(values: list[float]) -> None:
    found = [Reading(0, 0, at * 1000, (value, None)) for at, value in enumerate(values)]
    part = bson.decode(to_bytes(states(found, DAY)[0, 0]))["p"]
    assert part["stddev"] == pytest.approx(plain_deviation(values), rel=1e-12, abs=1e-300)
    median = sorted(values)[(len(values) - 1) // 2]
    assert abs(part["p50"] - median) <= abs(median) * 0.01
    assert abs(part["p99_9"] - max(values)) <= abs(max(values)) * 0.01


@given(readings)
def test_a_day_from_its_hours_equals_the_day_from_its_readings(found: list[Reading]) -> None:
    hours = states(found)
    for (series, _), day in states(found, DAY).items():
        merged = reduce(merge, [state for (of, _), state in hours.items() if of == series])
        assert to_bytes(merged) == to_bytes(day)


@given(readings, st.lists(st.integers(0, 2), min_size=10, max_size=10), st.permutations(range(3)))
def test_any_split_by_buckets_merges_to_the_same_bytes(
    found: list[Reading], chunk_of: list[int], order: list[int]
) -> None:
    chunks = [[one for one in found if chunk_of[one.bucket] == chunk] for chunk in range(3)]
    parts = [states(chunks[chunk], DAY) for chunk in order]
    for key, whole in states(found, DAY).items():
        merged = reduce(merge, [part[key] for part in parts if key in part])
        assert to_bytes(merged) == to_bytes(whole)


@given(readings, readings, readings)
def test_merging_is_associative_and_commutative(
    one: list[Reading], two: list[Reading], three: list[Reading]
) -> None:
    found = [states([Reading(0, 0, 0, (None, None)), *some], DAY)[0, 0] for some in (one, two, three)]
    a, b, c = found
    assert to_bytes(merge(a, b)) == to_bytes(merge(b, a))
    assert to_bytes(merge(merge(a, b), c)) == to_bytes(merge(a, merge(b, c)))


def test_where_times_tie_the_lower_id_comes_first_then_the_place_in_the_bucket() -> None:
    found = [
        Reading(6, 0, 5, (1.0, None)),
        Reading(3, 0, 5, (2.0, None)),
        Reading(3, 0, 5, (3.0, None)),
        Reading(0, 0, 5, ("text", None)),
        Reading(6, 0, 5, (4.0, None)),
    ]
    part = bson.decode(to_bytes(states(found)[0, 0]))["p"]
    assert (part["first"], part["last"]) == (2.0, 4.0)


def test_minus_zero_stays_in_first_and_last_only() -> None:
    part = bson.decode(to_bytes(states([Reading(0, 0, 0, (-0.0, None))])[0, 0]))["p"]
    assert {key: str(part[key]) for key in ("first", "last", "min", "max", "sum", "avg", "p50")} == {
        "first": "-0.0", "last": "-0.0", "min": "0.0", "max": "0.0", "sum": "0.0", "avg": "0.0", "p50": "0.0",
    }  # fmt: skip


def test_no_readings_give_no_states() -> None:
    assert states([]) == {}
    assert states([Reading(0, 0, 3 * HOUR, (1.0, 1.0)), Reading(0, 0, -1, (1.0, 1.0))]) == {}
