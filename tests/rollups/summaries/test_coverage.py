"""What is missing from a window: told exactly, merged in any order, kept in little space."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from itertools import groupby
from typing import Any

import bson
import numpy as np
import pytest
from bson.codec_options import CodecOptions
from hypothesis import given
from hypothesis import strategies as st

from bucketwise.rollups.summaries import coverage, documents
from bucketwise.rollups.summaries.summary import State, aggregate
from tests.rollups.samples import POLICY, STATISTICS, Reading, columns_of, day_summary, hour_summary, merge

AWARE: CodecOptions[Mapping[str, Any]] = CodecOptions(tz_aware=True)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE, HOUR = 60_000, 3_600_000
MINUTELY = POLICY.model_copy(update={"expected_interval": timedelta(minutes=1)})
#: Often side by side, sometimes far apart, before the epoch as well; each with a time inside its minute.
minutes = st.lists(st.integers(0, 30) | st.integers(0, 179), max_size=60)
times = st.lists(st.tuples(st.integers(-90, 89), st.integers(0, MINUTE - 1)), max_size=60).map(
    lambda found: [minute * MINUTE + inside for minute, inside in found]
)


def runs_of(occupied: set[int]) -> coverage.Runs:
    """In plain Python."""
    runs: list[int] = []
    for _, group in groupby(enumerate(sorted(occupied)), key=lambda pair: pair[1] - pair[0]):
        members = [index for _, index in group]
        runs += [members[0], members[-1] + 1]
    return tuple(runs)


def states(found: list[int], edges: list[int]) -> dict[int, State]:
    """One series, by window."""
    columns = columns_of([Reading(0, 0, time, (1.0, None)) for time in found])
    bounds = np.array(edges, dtype=np.int64)
    return {window: state for _, window, state in aggregate(columns, bounds, STATISTICS, interval=MINUTE)}


def told(state: State, start: int, end: int) -> Mapping[str, Any]:
    return bson.decode(day_summary(MINUTELY, ("MDB", 1), start, end, "UTC", state), AWARE)


def plain(found: list[int], start: int, end: int) -> dict[str, Any]:
    """What the summary has to tell of a window of whole minutes, minute by minute."""
    heard = {time // MINUTE for time in found}
    longest, since, best_at = 0, start, None
    for minute in range(start // MINUTE, end // MINUTE):
        if minute in heard:
            since = (minute + 1) * MINUTE
        elif (minute + 1) * MINUTE - since > longest:
            longest, best_at = (minute + 1) * MINUTE - since, since
    return {
        "expected": (end - start) // MINUTE,
        "missing": sum(minute not in heard for minute in range(start // MINUTE, end // MINUTE)),
        "longest_hole": longest / 1000,
        "longest_hole_at": None if best_at is None else EPOCH + timedelta(milliseconds=best_at),
    }


@given(times)
def test_summaries_tell_what_plain_python_counts(found: list[int]) -> None:
    edges = [-90 * MINUTE, -60 * MINUTE, 0, 60 * MINUTE, 90 * MINUTE]
    for window, state in states(found, edges).items():
        start, end = edges[window : window + 2]
        inside = [time for time in found if start <= time < end]
        document = told(state, start, end)
        expected = plain(inside, start, end)
        assert {key: document[key] for key in expected} == expected
        assert state.occupied == runs_of({time // MINUTE for time in inside})


@given(minutes, minutes, minutes)
def test_union_is_that_of_sets_in_any_order(one: list[int], two: list[int], three: list[int]) -> None:
    a, b, c = (runs_of(set(found)) for found in (one, two, three))
    everything = runs_of({*one, *two, *three})
    assert coverage.union(a, b) == coverage.union(b, a) == runs_of({*one, *two})
    assert coverage.union(coverage.union(a, b), c) == coverage.union(a, coverage.union(b, c)) == everything


@given(times, st.lists(st.integers(0, 2), min_size=60, max_size=60))
def test_a_day_from_parts_of_its_hours_equals_the_day_from_its_readings(
    found: list[int], part_of: list[int]
) -> None:
    hours, day = [-120 * MINUTE, -60 * MINUTE, 0, 60 * MINUTE, 120 * MINUTE], [-120 * MINUTE, 120 * MINUTE]
    parts = [[time for time, of in zip(found, part_of, strict=False) if of == part] for part in range(3)]
    pieces = [state for part in parts for state in states(part, hours).values()]
    for state in states(found, day).values():
        merged = reduce(merge, pieces)
        whole = day_summary(MINUTELY, ("MDB", 1), day[0], day[1], "UTC", state)
        assert day_summary(MINUTELY, ("MDB", 1), day[0], day[1], "UTC", merged) == whole
        assert documents.state_of(bson.decode(whole, AWARE), MINUTELY) == state


@given(st.lists(st.integers(0, 7_199), max_size=40), st.integers(0, 1799), st.integers(1, 5400))
def test_an_interval_that_the_rim_cuts_counts_and_the_hole_ends_at_the_rim(
    seconds: list[int], start: int, length: int
) -> None:
    end = min(start + length, 7200)
    inside = [second for second in seconds if start <= second < end]
    found = coverage.measure(runs_of({second // 60 for second in inside}), start * 1000, end * 1000, MINUTE)
    touched = {second // 60 for second in range(start, end)}
    heard = {second // 60 for second in inside}
    silent = [second // 60 not in heard for second in range(start, end)]
    longest = max((len(list(run)) for quiet, run in groupby(silent) if quiet), default=0)
    assert (found.expected, found.missing) == (len(touched), len(touched - heard))
    assert found.hole_ms == longest * 1000
    if longest:
        first = (found.hole_at // 1000) - start
        assert all(silent[first : first + longest]) and (first == 0 or not silent[first - 1])


def test_a_full_hour_of_seconds_takes_seven_bytes() -> None:
    start = 450_000 * HOUR
    full = runs_of(set(range(start // 1000, start // 1000 + 3600)))
    assert len(coverage.pack(full, start, 1000)) == 7
    every_other = runs_of(set(range(start // 1000, start // 1000 + 3600, 2)))
    assert len(coverage.pack(every_other, start, 1000)) < 3700


def test_where_nothing_is_expected_nothing_is_told() -> None:
    columns = columns_of([Reading(0, 0, 0, (1.0, None))])
    ((_, _, state),) = aggregate(columns, np.array([0, HOUR]), STATISTICS)
    document = bson.decode(hour_summary(POLICY, ("MDB", 1), 0, state))
    assert not {"expected", "missing", "longest_hole", "longest_hole_at", "coverage"} & document.keys()
    with pytest.raises(ValueError, match="no coverage"):
        documents.state_of(document, MINUTELY)


def test_a_whole_hour_has_no_hole_and_keys_stand_in_order() -> None:
    document = told(states([minute * MINUTE for minute in range(60)], [0, HOUR])[0], 0, HOUR)
    assert list(document)[3:] == [
        "start", "end", "timezone", "hours", "count",
        "expected", "missing", "longest_hole", "longest_hole_at", "p", "q", "coverage",
    ]  # fmt: skip
    assert [document[key] for key in ("expected", "missing", "longest_hole", "longest_hole_at")] == [
        60, 0, 0, None,
    ]  # fmt: skip


def test_coverage_of_another_interval_is_told() -> None:
    packed = coverage.pack((0, 5), 0, 1000)
    with pytest.raises(ValueError, match=r"intervals of 1000 ms; .* is 60000 ms"):
        coverage.unpack(packed, 0, MINUTE)
    with pytest.raises(ValueError, match="too early"):
        coverage.unpack(packed[:-1], 0, 1000)


@given(
    st.lists(
        st.tuples(st.integers(0, 200), st.sampled_from([0, 60, -61, 300]), st.integers(0, 2)),
        min_size=1,
        max_size=40,
    )
)
def test_windows_of_own_clocks_merge_to_the_same_bytes(found: list[tuple[int, int, int]]) -> None:
    edges = [-10 * HOUR, -2 * HOUR, 0, HOUR, 10 * HOUR]

    def of(some: list[tuple[int, int, int]]) -> dict[int, State]:
        columns = columns_of([Reading(part, 0, at * MINUTE, (float(at), None)) for at, _, part in some])
        order = sorted(range(len(some)), key=lambda number: some[number][2])
        own = [(some[number][0] - some[number][1]) * MINUTE for number in order]
        columns = replace(
            columns, local=np.array(own, dtype=np.int64), bucket_series=columns.bucket_series * 0
        )
        bounds = np.array(edges, dtype=np.int64)
        found = aggregate(columns, bounds, STATISTICS, interval=MINUTE, local=True)
        return {window: state for _, window, state in found}

    parts = [of([one for one in found if one[2] == part]) for part in {part for *_, part in found}]
    for window, state in of(found).items():
        low, high = edges[window : window + 2]
        inside = [one for one in found if low <= (one[0] - one[1]) * MINUTE < high]
        assert state.count == len(inside)
        assert state.occupied == runs_of({at - offset for at, offset, _ in inside})
        ordered = sorted((at, part) for at, _, part in inside)
        shown = documents.statistics(state, STATISTICS, None)["values"]["p"]
        assert [shown[key].timestamp() for key in ("first_at", "last_at")] == [
            ordered[0][0] * 60,
            ordered[-1][0] * 60,
        ]
        assert reduce(merge, [part[window] for part in parts if window in part]) == state
