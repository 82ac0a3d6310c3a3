"""The slim form of summaries, and statistics that a policy leaves out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any

import bson
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketwise.config.policies import STATISTIC_NAMES, Policy
from bucketwise.rollups.statistics import statistics_of
from bucketwise.rollups.summaries import documents, summary
from bucketwise.rollups.summaries.summary import State, aggregate
from tests.rollups.samples import HOUR, POLICY, Reading, columns_of, hour_summary, readings

NAMES = [*STATISTIC_NAMES, "p50", "p99_9"]
SERIES = ("MDB", 7)
_SUMS, _PERCENTILES = {"sum", "avg", "stddev"}, {"p50", "p99_9"}
#: Which statistics, if any of them is kept, let two summaries tell one together.
MADE_OF = {
    **dict.fromkeys(("sum", "avg"), _SUMS),
    "stddev": {"stddev"},
    "min": {"min", *_PERCENTILES},
    "max": {"max", *_PERCENTILES},
    **dict.fromkeys(_PERCENTILES, _PERCENTILES),
}
READINGS = [
    Reading(3, 0, 0, (1.5, None)),
    Reading(3, 0, 1000, (3.1, "x")),
    Reading(6, 0, 9, (2.0, None)),
    Reading(6, 0, 1_800_000, (-2.25e9, 7.0)),
    Reading(9, 0, 2_000_000, (math.nan, 7.0)),
]


def policy_with(names: Sequence[str]) -> Policy:
    assert POLICY.rollup is not None
    rollup = POLICY.rollup.model_copy(update={"statistics": tuple(names)})
    return POLICY.model_copy(update={"rollup": rollup})


def state_of(found: list[Reading], policy: Policy = POLICY) -> State:
    return aggregate(columns_of(found), np.array([0, HOUR]), statistics_of(policy))[0][2]


def decoded(document: bytes) -> dict[str, Any]:
    found: dict[str, Any] = bson.decode(document, documents.OPTIONS)
    return found


some = readings.filter(lambda found: any(one.time < HOUR for one in found))
chosen = st.lists(st.sampled_from(NAMES), min_size=1, unique=True)


@given(some, chosen)
def test_what_is_left_out_is_null_and_all_else_as_ever(found: list[Reading], names: list[str]) -> None:
    policy, state = policy_with(names), state_of(found)
    kept, whole = (
        documents.filled(it, decoded(hour_summary(it, SERIES, 0, state))) for it in (policy, POLICY)
    )
    for field, full in ((kept["p"], whole["p"]), (kept["q"]["r"], whole["q"]["r"])):
        for key in [it for it in full if it != "state"]:
            is_told = key == "count" or key.removesuffix("_at") in names
            assert field[key] == (full[key] if is_told else None), key


@given(some, chosen, st.data())
def test_kept_statistics_merge_to_the_same_bytes(
    found: list[Reading], names: list[str], data: st.DataObject
) -> None:
    """However readings are split into summaries, and whatever is stored in between."""
    policy = policy_with(names)
    fields = statistics_of(policy)
    inside = [Reading(3 * at, 0, it.time, it.values) for at, it in enumerate(found) if it.time < HOUR]
    parts = data.draw(st.lists(st.integers(0, 3), min_size=len(inside), max_size=len(inside)))
    whole = hour_summary(policy, SERIES, 0, state_of(inside, policy))
    merged: State | None = None
    for part in data.draw(st.permutations(sorted(set(parts)))):
        some_of = [it for it, at in zip(inside, parts, strict=True) if at == part]
        stored = hour_summary(policy, SERIES, 0, state_of(some_of, policy))
        state = documents.state_of(decoded(stored), policy)
        merged = state if merged is None else summary.merge(fields, merged, state)
    assert merged is not None
    assert hour_summary(policy, SERIES, 0, merged) == whole


@given(some, some, chosen, chosen)
def test_what_one_of_two_summaries_lacks_is_null_in_both_together(
    one: list[Reading], other: list[Reading], names: list[str], further: list[str]
) -> None:
    """A policy has gained or lost statistics between two hours: none of them is told of half the readings."""
    now = policy_with([*names, *further])
    fields = statistics_of(now)
    before = hour_summary(policy_with(names), SERIES, 0, state_of(one))
    after = hour_summary(now, SERIES, 0, state_of(other))
    states = [documents.state_of(decoded(it), now) for it in (before, after)]
    merged = documents.filled(now, decoded(hour_summary(now, SERIES, 0, summary.merge(fields, *states))))
    has_numbers = [decoded(before)["p"]["count"], decoded(before)["q"]["r"]["count"]]
    for name, had_some in zip(("p", "q.r"), has_numbers, strict=True):
        field = documents.value_at(merged, name)
        for key in ("sum", "avg", "stddev", "min", "max", "p50", "p99_9"):
            is_known = not had_some or not MADE_OF[key].isdisjoint(names)
            is_told = key in now.rollup.statistics and (field["count"] or key == "sum")  # type: ignore[union-attr]
            assert (field[key] is not None) == bool(is_told and is_known), key
        for key in ("nonfinite", "nonnumeric"):
            assert (field[key] is not None) == (key in names)


@given(some, chosen)
def test_when_the_first_number_was_read_is_known_whatever_is_told(
    found: list[Reading], names: list[str]
) -> None:
    policy, state = policy_with(names), state_of(found)
    wanted = documents.first_instants(POLICY, decoded(hour_summary(POLICY, SERIES, 0, state)))
    assert documents.first_instants(policy, decoded(hour_summary(policy, SERIES, 0, state))) == wanted


def test_few_statistics_take_little() -> None:
    """As docs/summaries.md has it."""
    found = [Reading(at, 0, at * 300_000, (50 + at % 5 / 8, None)) for at in range(12)]
    sizes = []
    for names in (("count", "avg", "min", "max"), ()):
        document = decoded(hour_summary(policy_with(names), SERIES, 0, state_of(found)))
        sizes.append(len(bson.encode(document["p"], codec_options=documents.OPTIONS)))
    assert sizes[0] < 0.4 * sizes[1], sizes


@pytest.mark.parametrize("cut", range(1, 30, 3))
def test_a_state_that_is_cut_short_is_told(cut: int) -> None:
    document = decoded(hour_summary(POLICY, SERIES, 0, state_of(READINGS)))
    document["p"]["state"] = document["p"]["state"][:-cut]
    with pytest.raises(ValueError, match=r"end too early|bytes too many|other numbers"):
        documents.state_of(document, POLICY)


def test_names_of_statistics_are_keys_of_summaries() -> None:
    document = documents.filled(POLICY, decoded(hour_summary(POLICY, SERIES, 0, state_of(READINGS))))
    keys = {key.removesuffix("_at") for key in chain(document["p"])} - {"state"}
    assert keys == set(NAMES)
