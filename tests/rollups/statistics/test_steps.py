"""Steps between readings: the states of windows merge in any order. `rolling/test_linking.py` holds what they
tell against plain Python."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from functools import partial, reduce
from itertools import pairwise
from typing import Any

import bson
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketwise.buckets.columns import NO_STATE, StateColumn
from bucketwise.config.policies import ValueField
from bucketwise.rollups.statistics import registered, statistics_of
from bucketwise.rollups.statistics.moments import products
from bucketwise.rollups.statistics.steps import Steps
from bucketwise.rollups.summaries import documents, summary
from bucketwise.rollups.summaries.summary import State, aggregate, closed
from tests.rollups.samples import POLICY, Reading, columns_of, hour_summary

MINUTE, HOUR = 60_000, 3_600_000
GAP = timedelta(minutes=50)
FIELDS = {
    "p": ValueField(kind="counter", time_weighted="linear", max_gap=GAP),
    "q.r": ValueField(kind="state", time_weighted="previous", max_gap=GAP),
}
STEPPED = POLICY.model_copy(update={"values": FIELDS})
STATISTICS = statistics_of(STEPPED)
merge = partial(summary.merge, STATISTICS)
values = st.sampled_from([0.0, 1.0, 2.5, -0.0, 1e15, 1e-300, 5e-324, -3.0]) | st.floats(-1e9, 1e9)
readings = st.lists(
    st.builds(
        Reading,
        bucket=st.sampled_from([0, 3, 6, 9]),
        series=st.just(0),
        time=st.integers(0, 6 * 60).map(lambda minute: minute * MINUTE),
        values=st.tuples(values, values | st.none()),
    ),
    min_size=1,
    max_size=30,
)


def states_of(found: list[Reading], edges: list[int]) -> dict[int, State]:
    bounds = np.array(edges, dtype=np.int64)
    return {window: state for _, window, state in aggregate(columns_of(found), bounds, STATISTICS)}


def shown(state: State, window: tuple[int, int]) -> Any:
    return documents.statistics(closed(STATISTICS, state, window), STATISTICS, None)


@given(readings, st.lists(st.integers(1, 24), max_size=8), st.randoms(use_true_random=False))
def test_any_cut_merged_in_any_order_gives_the_same(
    found: list[Reading], cuts: list[int], source: random.Random
) -> None:
    window = 0, 7 * HOUR
    (whole,) = states_of(found, [*window]).values()
    parts = list(states_of(found, sorted({0, 7 * HOUR, *(cut * HOUR // 4 for cut in cuts)})).values())
    source.shuffle(parts)
    merged = reduce(merge, parts)
    assert shown(merged, window) == shown(whole, window)
    assert merged == whole


@given(readings)
def test_a_summary_keeps_all_that_merging_needs(found: list[Reading]) -> None:
    for window, state in states_of(found, [it * HOUR for it in range(8)]).items():
        document = bson.decode(hour_summary(STEPPED, ("MDB", 1), window * HOUR, state), documents.OPTIONS)
        assert documents.state_of(document, STEPPED) == state


def test_settings_that_have_changed_are_told() -> None:
    (state,) = states_of([Reading(0, 0, 0, (1.0, 1.0)), Reading(0, 0, 1, (1.0, 1.0))], [0, HOUR]).values()
    document = bson.decode(hour_summary(STEPPED, ("MDB", 1), 0, state), documents.OPTIONS)
    wider = FIELDS["p"].model_copy(update={"max_gap": 2 * GAP})
    for values_ in ({**FIELDS, "p": wider}, {**FIELDS, "q.r": ValueField(kind="counter")}, {}):
        with pytest.raises(ValueError, match=r"have changed since|bytes too many|too early"):
            documents.state_of(document, POLICY.model_copy(update={"values": values_}))
    plain = bson.decode(hour_summary(POLICY, ("MDB", 1), 0, first_two(state)), documents.OPTIONS)
    with pytest.raises(ValueError, match="end too early"):
        documents.state_of(plain, STEPPED)


WORDED = STEPPED.model_copy(
    update={
        "values": {**FIELDS, "q.r": ValueField(kind="state", max_gap=GAP)},
        "nonnumeric_ok": ("q.r",),
    }
)
WORDED_STATISTICS = statistics_of(WORDED)


def worded(found: list[Reading], edges: list[int], words: dict[float, str]) -> dict[int, State]:
    """The states, where the numbers of the second field are read as texts."""
    columns = columns_of([replace(it, values=(it.values[0], None)) for it in found])
    told = [words.get(it.values[1]) for it in sorted(found, key=lambda one: one.bucket)]
    names = sorted({it for it in told if it is not None}, reverse=True)
    codes = [NO_STATE if it is None else names.index(it) for it in told]
    columns.states["q.r"] = StateColumn(np.array(codes, dtype=np.int32), names)
    found_states = aggregate(columns, np.array(edges, dtype=np.int64), WORDED_STATISTICS)
    return {window: state for _, window, state in found_states}


@given(
    readings,
    st.lists(st.integers(1, 24), max_size=8),
    st.sampled_from([{}, {0.0: "off", 1.0: "on", 2.5: "", 1e15: "a.b", -3.0: "é\0"}]),
    st.randoms(use_true_random=False),
)
def test_texts_as_states_merge_and_are_kept_as_numbers_are(
    found: list[Reading], cuts: list[int], words: dict[float, str], source: random.Random
) -> None:
    window = 0, 7 * HOUR
    (whole,) = worded(found, [*window], words).values()
    parts = worded(found, sorted({0, 7 * HOUR, *(cut * HOUR // 4 for cut in cuts)}), words)
    stored = []
    for state in parts.values():
        document = bson.decode(hour_summary(WORDED, ("MDB", 1), 0, state), documents.OPTIONS)
        assert documents.state_of(document, WORDED) == state
        held = state.values["q.r"][-1]
        assert documents.first_instants(WORDED, document).get("q.r") == (held[1][0] if held else None)
        stored.append(documents.state_of(document, WORDED))
    source.shuffle(stored)
    assert reduce(partial(summary.merge, WORDED_STATISTICS), stored) == whole


def first_two(state: State) -> State:
    """The state without what steps add."""
    return State(state.count, {name: it[:4] for name, it in state.values.items()})


def test_without_steps_a_summary_has_the_bytes_of_before() -> None:
    (state,) = states_of([Reading(0, 0, 0, (1.0, 1.0)), Reading(0, 0, 1, (7.0, 2.0))], [0, HOUR]).values()
    plain = hour_summary(POLICY, ("MDB", 1), 0, first_two(state))
    gauges = POLICY.model_copy(update={"values": {"p": ValueField(kind="gauge")}})
    assert hour_summary(gauges, ("MDB", 1), 0, first_two(state)) == plain
    assert not any(isinstance(it, Steps) for it in registered((50,)))


@pytest.mark.parametrize("count", [64, 65])
def test_more_than_64_states_are_none(count: int) -> None:
    found = [Reading(0, 0, it * MINUTE, (1.0, float(it))) for it in range(count + 1)]
    window = 0, 4 * HOUR
    parts = states_of(found, [it * HOUR for it in range(5)]).values()
    told = shown(reduce(merge, parts), window)["values"]["q.r"]
    assert told["changes"] == count
    assert told["states_over"] is (count > 64)
    assert told["seconds"] == (None if count > 64 else {str(it): 60.0 for it in range(count)})


@given(
    st.lists(st.tuples(st.floats(-1e300, 1e300), st.integers(0, 2**36 - 1)), min_size=1, max_size=40),
    st.lists(st.integers(1, 12), min_size=1, max_size=6),
    st.integers(1, 12),
)
def test_weighted_sums_are_exact_also_where_weights_are_alike(
    found: list[tuple[float, int]], lengths: list[int], alike: int
) -> None:
    """Each of the values comes several times with its weight, so that few weights change."""
    found = [it for it in found for _ in range(alike)]
    starts = [0, *(at for at in np.cumsum(lengths).tolist() if at < len(found))]
    values, weights = (np.array(column) for column in zip(*found, strict=True))
    told = products(values.astype(np.float64), weights.astype(np.int64), np.array(starts))
    wanted = [
        sum((Fraction(value) * weight for value, weight in found[low:high]), Fraction(0)) * 2**1074
        for low, high in pairwise([*starts, len(found)])
    ]
    assert told == wanted
