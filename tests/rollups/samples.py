"""Readings for the tests: made as plain records, laid out as columns, summed up in plain Python."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
from hypothesis import strategies as st

from bucketwise.buckets.columns import Columns, Series, ValueKind
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Policy, Rollup
from bucketwise.rollups.calendar.levels import Level
from bucketwise.rollups.statistics import statistics_of
from bucketwise.rollups.summaries import documents, summary
from bucketwise.rollups.summaries.summary import State

HOUR = 3_600_000
FIELDS = ("p", "q.r")
POLICY = make_policy(
    name="ticks",
    collection="ticks",
    model="reading",
    time_field="d",
    series_fields=("symbol", "meta.unit"),
    value_fields=FIELDS,
    rollup=Rollup(hourly="h", daily="d", percentiles=(50, 99.9)),
)
#: Of the value fields.
STATISTICS = statistics_of(POLICY)
merge = partial(summary.merge, STATISTICS)


def hour_summary(policy: Policy, series: Series, start_ms: int, state: State) -> bytes:
    level = Level("hourly", "h", ZoneInfo("UTC"), None)
    return documents.summary(policy, level, series, (start_ms, start_ms + HOUR), state)


def day_summary(policy: Policy, series: Series, start_ms: int, end_ms: int, zone: str, state: State) -> bytes:
    level = Level("daily", "d", ZoneInfo(zone), None)
    return documents.summary(policy, level, series, (start_ms, end_ms), state)


@dataclass(frozen=True)
class Reading:
    bucket: int  # its `_id`
    series: int
    time: int
    values: tuple[Any, ...]  # a field each: a float, "text" for no number, None for missing


fields = st.one_of(
    st.floats(-1e3, 1e3), st.floats(), st.sampled_from([None, "text", 0.0, -0.0, math.nan, math.inf, 1e308])
)
readings = st.lists(
    st.builds(
        Reading,
        bucket=st.integers(0, 9),
        series=st.just(0),
        time=st.integers(0, 30).map(lambda step: step * HOUR // 10),
        values=st.tuples(fields, fields),
    ),
    max_size=30,
).map(lambda found: [Reading(one.bucket, one.bucket % 3, one.time, one.values) for one in found])


def kind_of(value: Any) -> ValueKind:
    if value is None:
        return ValueKind.MISSING
    if isinstance(value, str):
        return ValueKind.NONNUMERIC
    return ValueKind.FINITE if math.isfinite(value) else ValueKind.NONFINITE


def columns_of(found: Sequence[Reading]) -> Columns:
    """As decoding lays them out: buckets by `_id`, readings as they lie in their bucket."""
    ids = sorted({one.bucket for one in found})
    laid = sorted(found, key=lambda one: one.bucket)
    raw = {name: [one.values[at] for one in laid] for at, name in enumerate(FIELDS)}
    return Columns(
        series=[("MDB", 1), ("ACME", 2), ("MDB", True)],
        bucket_series=np.array([number % 3 for number in ids], dtype=np.int32),
        bucket_order=np.array([b"%02d" % number for number in ids], dtype="S2"),
        starts=np.array([sum(one.bucket < number for one in laid) for number in ids] + [len(laid)]),
        time=np.array([one.time for one in laid], dtype=np.int64),
        values={
            name: np.array(
                [value if isinstance(value, float) else math.nan for value in column], dtype=np.float64
            )
            for name, column in raw.items()
        },
        kinds={
            name: np.array([kind_of(value) for value in column], dtype=np.uint8)
            for name, column in raw.items()
        },
    )


def plain_summary(found: Sequence[Reading], at: int) -> dict[str, Any]:
    """What one value field's sub-document must hold, from readings of one series and window."""
    kinds = [kind_of(one.values[at]) for one in found]
    finite = [one for one in found if kind_of(one.values[at]) is ValueKind.FINITE]
    ordered = sorted(finite, key=lambda one: (one.time, one.bucket))
    numbers = [one.values[at] for one in ordered]
    counts = {
        "count": len(numbers),
        "nonfinite": kinds.count(ValueKind.NONFINITE),
        "nonnumeric": kinds.count(ValueKind.NONNUMERIC),
    }
    if not numbers:
        return {**counts, "sum": 0.0, **dict.fromkeys(("min", "max", "avg", "first", "last"))}
    whole = sum(map(Fraction, numbers), Fraction(0))
    return {
        **counts,
        "sum": as_double(whole),
        "min": min(numbers),
        "max": max(numbers),
        "avg": float(whole / len(numbers)),
        "first": numbers[0],
        "last": numbers[-1],
    }


def as_double(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def plain_deviation(numbers: Sequence[float]) -> float:
    return statistics.pstdev(numbers)
