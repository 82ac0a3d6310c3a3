"""The `reading` model: one document a reading, {symbol: "MDB", d: ISODate(…), p: 56.58}."""

from __future__ import annotations

from typing import Any

from buckets.bsontypes import DATE
from buckets.layout import Layout
from buckets.shape import Shape, find_all, need_all, split
from buckets.times import as_date
from config.policies import Policy


def shape(layout: Layout, policy: Policy) -> Shape:
    time = need_all(layout, (), split(policy.time_field or ""), (DATE,), "time")
    return Shape(
        times=[time], values={name: [find_all(layout, split(path))] for name, path in policy.named_values}
    )


def holding(policy: Policy, start_ms: int, end_ms: int) -> dict[str, Any]:
    """A query for every bucket that may hold a reading in [start, end)."""
    return {str(policy.time_field): {"$gte": as_date(start_ms), "$lte": as_date(end_ms - 1)}}
