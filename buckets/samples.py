"""The `samples` model: an array of samples, closed by size or by time, with a first and a last time."""

from __future__ import annotations

from typing import Any

from buckets.bsontypes import ARRAY, DOCUMENT, TYPE_NAMES
from buckets.layout import Cells, Layout, Path
from buckets.shape import EPOCH_TYPES, TIME_TYPES, Breach, Shape, find_all, need, need_all, split
from buckets.times import as_date, as_seconds
from buckets.values import NUMBERS
from config.policies import Policy


def shape(layout: Layout, policy: Policy) -> Shape:
    first = need(layout, split(policy.start_field or ""), TIME_TYPES, "time")
    last = need(layout, split(policy.end_field or ""), TIME_TYPES, "time")
    inner = sampled(
        layout, split(policy.samples_field or ""), split(policy.sample_time_field or ""), policy, TIME_TYPES
    )
    count = None
    if policy.count_field:
        count = need(layout, split(policy.count_field), EPOCH_TYPES, "count")
    sums = {
        name: need(layout, split(sum_field), NUMBERS, "sum") for name, sum_field in policy.sum_fields.items()
    }
    return Shape(values=inner.values, times=inner.times, bounds=(first, last), count=count, sums=sums)


def overflow_shape(layout: Layout, policy: Policy) -> Shape:
    """Of an overflow document: an array of samples like those of its bucket."""
    assert policy.overflow is not None
    path = split(policy.overflow.samples_field)
    return sampled(layout, path, split(policy.sample_time_field or ""), policy, TIME_TYPES)


def sampled(layout: Layout, array: Path, time: Path, policy: Policy, types: tuple[int, ...]) -> Shape:
    """The readings of an array of sub-documents, each with its time."""
    need(layout, array, (ARRAY,), "array of samples")
    times = Cells()
    values = {name: Cells() for name in policy.value_names}
    for sample in layout.children(array):
        if sample.type != DOCUMENT:
            raise Breach(".".join(sample.path), f"{TYPE_NAMES[sample.type]} stands where a sample is needed")
        times.append(need_all(layout, sample.path, time, types, "time"))
        for name, field in policy.named_values:
            values[name].append(find_all(layout, (*sample.path, *split(field))))
    return Shape(values=values, times=times)


def holding(policy: Policy, start_ms: int, end_ms: int) -> dict[str, Any]:
    """A query for every bucket that may hold a reading in [start, end). Bounds may be dates or epoch
    seconds; a bound in whole seconds stands for its whole second."""
    start, end = str(policy.start_field), str(policy.end_field)
    dates = {start: {"$lte": as_date(end_ms - 1)}, end: {"$gte": as_date(start_ms)}}
    least = min(as_seconds(start_ms), start_ms // 1000)
    seconds = {start: {"$lt": as_seconds(end_ms)}, end: {"$gte": least}}
    mixed = [
        {start: dates[start], end: seconds[end]},
        {start: seconds[start], end: dates[end]},
    ]
    return {"$or": [dates, seconds, *mixed]}
