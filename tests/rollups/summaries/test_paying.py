"""Which summaries are larger than what they stand for, against all of the summaries made in plain sums."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import bson
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bucketwise.buckets.bson.raw import Batch, Docs
from bucketwise.buckets.decoding.decode import decode
from bucketwise.config.models import recorded_policy
from bucketwise.config.policies import Policy
from bucketwise.rollups.calendar.levels import levels_of
from bucketwise.rollups.statistics import statistics_of
from bucketwise.rollups.summaries import documents
from bucketwise.rollups.summaries.paying import Whole, paying
from bucketwise.rollups.summaries.summary import aggregate
from tests.examples import examples

HOUR = timedelta(hours=1)
START = datetime(2018, 6, 30, tzinfo=UTC)
SAID: dict[str, Any] = {
    **{"name": "ticks", "collection": "ticks", "series_fields": ["s"]},
    "rollup": {"hourly": "h", "daily": "d", "percentiles": [50.0, 95.0]},
}


def policy_of(model: str) -> Policy:
    keys: dict[str, dict[str, Any]] = {
        "reading": {"time_field": "d", "value_fields": ["p"]},
        "samples": {
            **{"samples_field": "x", "sample_time_field": "t", "value_fields": ["p"]},
            **{"start_field": "d", "end_field": "e"},
        },
    }
    return recorded_policy({**SAID, "model": model, **keys[model]})


def buckets(readings: int, hours: int, padding: int, policy: Policy) -> list[dict[str, Any]]:
    """A document an hour, or a reading, of one series."""
    chance, found = np.random.default_rng(readings), []
    for hour in range(hours):
        times = [START + hour * HOUR + HOUR / readings * number for number in range(readings)]
        values = np.round(50 + np.cumsum(chance.normal(0, 1, readings)), 2).tolist()
        pairs = list(zip(times, values, strict=True))
        if policy.model == "reading":
            found += [{"s": "A", "note": "x" * padding, "d": at, "p": value} for at, value in pairs]
        else:
            samples = [{"t": at, "p": value} for at, value in pairs]
            found.append({"s": "A", "note": "x" * padding, "d": times[0], "e": times[-1], "x": samples})
    return [{"_id": number, **it} for number, it in enumerate(found)]


def batch_of(found: list[dict[str, Any]]) -> Batch:
    return Batch.of(Docs.of([bson.encode(it) for it in found]))


def sums(policy: Policy, found: list[dict[str, Any]]) -> dict[str, float]:
    """How many times as large as all documents the summaries of each level are."""
    columns = decode(batch_of(found), policy).columns
    first, last = int(columns.time.min()), int(columns.time.max())
    total = sum(len(bson.encode(it)) for it in found)
    ratios: dict[str, float] = {}
    for level in levels_of(policy):
        edges = level.edges(first, last + 1)
        made = aggregate(columns, np.array(edges, dtype=np.int64), statistics_of(policy))
        spans = [(edges[window], edges[window + 1]) for _, window, _ in made]
        sizes = (
            len(documents.summary(policy, level, columns.series[series], span, state))
            for (series, _, state), span in zip(made, spans, strict=True)
        )
        ratios[level.name] = sum(sizes) / total
    return ratios


@pytest.mark.proof
@settings(max_examples=examples(40))
@given(
    readings=st.integers(2, 200), padding=st.integers(0, 600), model=st.sampled_from(["reading", "samples"])
)
def test_what_is_larger_is_told(readings: int, padding: int, model: str) -> None:
    policy = policy_of(model)
    found = buckets(readings, 48, padding, policy)
    ratios = sums(policy, found)
    span = 48 * 3_600_000
    told = paying(policy, batch_of(found), Whole(len(found), span))
    larger = {it.level for it in told.larger}
    for name, ratio in ratios.items():
        if ratio > 1.3:
            assert name in larger, (name, ratio)
        if ratio < 0.5:
            assert name not in larger, (name, ratio)


@pytest.mark.proof
@settings(max_examples=examples(20))
@given(readings=st.integers(1, 8))
def test_the_best_level_is_smaller(readings: int) -> None:
    policy = policy_of("samples")
    told = paying(policy, batch_of(buckets(readings, 48, 0, policy)))
    assume(told.larger)
    assert told.best is None or not told.best.is_larger
    assert told.best is None or told.best.level not in {it.level for it in told.larger}


def test_a_hundred_readings_a_second_pay() -> None:
    policy = policy_of("samples")
    assert paying(policy, batch_of(buckets(3600, 2, 0, policy))).larger == []


def test_twelve_readings_an_hour_do_not_pay_by_the_hour() -> None:
    slots = {"model": "slots", "time_field": "d", "value_fields": ["p"], "slot": "minute"}
    policy = recorded_policy({**SAID, **slots})
    found = [
        {"_id": hour, "s": "A", "d": START + hour * HOUR, "p": {str(5 * it): 50 + it / 8 for it in range(12)}}
        for hour in range(48)
    ]
    told = paying(policy, batch_of(found))
    (hourly,) = told.larger
    assert (hourly.level, round(hourly.readings)) == ("hourly", 12)
    assert told.best is not None and told.best.level == "daily"


def test_single_readings_tell_nothing_by_themselves() -> None:
    policy = policy_of("reading")
    assert paying(policy, batch_of(buckets(2, 48, 0, policy))).larger == []
