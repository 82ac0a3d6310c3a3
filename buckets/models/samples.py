"""The `samples` model: an array of samples, closed by size or by time, with a first and mostly a last time.

A sample is a sub-document with its time, or a pair: an array of its time and its values.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

from bucketwise.buckets.bson.types import ARRAY, DOCUMENT, TYPE_NAMES
from bucketwise.buckets.fields.timeforms import TimeForm, any_of, own_form, sample_form
from bucketwise.buckets.fields.times import FIRST_MS, LAST_MS
from bucketwise.buckets.fields.values import NUMBERS
from bucketwise.buckets.layouts.layout import Layout, Path, ReadingCells
from bucketwise.buckets.models.series import SERIES_TYPES_IN_SAMPLE
from bucketwise.buckets.models.shape import (
    COUNT_TYPES,
    Breach,
    Shape,
    find_all,
    need,
    need_all,
    split,
    take_all,
)
from bucketwise.config.policies import Policy

Document = dict[str, Any]
#: Where a pair has its time.
PAIR_TIME = "0"


def shape(layout: Layout, policy: Policy) -> Shape:
    """Returns where times, values, bounds, count and sums lie in a layout. Raises Breach where one is
    missing."""
    own = own_form(policy)
    first = need(layout, split(policy.start_field or ""), own.types, "time")
    last = need(layout, split(policy.end_field), own.types, "time") if policy.end_field else None
    inner = sampled(layout, split(policy.samples_field or ""), time_in_sample(policy), policy)
    count = None
    if policy.count_field:
        count = need(layout, split(policy.count_field), COUNT_TYPES, "count")
    sums = {
        name: need(layout, split(sum_field), NUMBERS, "sum") for name, sum_field in policy.named_sums.items()
    }
    return replace(inner, bounds=(first, last), own_form=own, count=count, sums=sums)


def overflow_shape(layout: Layout, policy: Policy) -> Shape:
    """Returns the shape of an overflow document: an array of samples like those of its bucket. Raises
    Breach."""
    assert policy.overflow is not None
    return sampled(layout, split(policy.overflow.samples_field), time_in_sample(policy), policy)


def time_in_sample(policy: Policy) -> Path:
    """Returns the path of a sample's time within the sample."""
    return (PAIR_TIME,) if policy.samples_as == "pairs" else split(policy.sample_time_field or "")


def sampled(layout: Layout, array: Path, time: Path, policy: Policy, form: TimeForm | None = None) -> Shape:
    """Returns the readings of an array of samples, each with its time, in the samples' form or in `form`."""
    need(layout, array, (ARRAY,), "array of samples")
    form = form or sample_form(policy)
    times = ReadingCells()
    values = {name: ReadingCells() for name in policy.value_names}
    series = {name: ReadingCells() for name in policy.sample_series}
    kind = ARRAY if policy.samples_as == "pairs" else DOCUMENT
    for sample in layout.children(array):
        if sample.type != kind:
            raise Breach(".".join(sample.path), f"{TYPE_NAMES[sample.type]} stands where a sample is needed")
        times.append(need_all(layout, sample.path, time, form.types, "time"))
        for name, path in zip(values, values_in_sample(policy), strict=True):
            values[name].append(find_all(layout, (*sample.path, *path)))
        for name, cells in series.items():
            path = split(policy.sample_series[name])
            take = take_all if name in policy.default_series else need_all
            cells.append(take(layout, sample.path, path, SERIES_TYPES_IN_SAMPLE, "series"))
    return Shape(values=values, times=times, form=form, series=series)


def values_in_sample(policy: Policy) -> list[Path]:
    """Returns where a sample has the values of the value fields."""
    if policy.samples_as == "pairs":
        return [(str(place),) for place in range(1, 1 + len(policy.value_fields))]
    return [split(path) for path in policy.value_fields]


def range_query(policy: Policy, form: TimeForm, start_ms: int, end_ms: int) -> Document:
    """Returns a query for every bucket that may hold a reading in [start, end)."""
    starts = form.ranges(str(policy.start_field), FIRST_MS, end_ms - 1)
    if policy.end_field:
        ends = form.ranges(policy.end_field, start_ms, LAST_MS, is_end=True)
    else:  # one without any sample is where it starts
        ends = [_sampled_in(policy, start_ms, end_ms - 1)]
        ends += form.ranges(str(policy.start_field), start_ms, end_ms - 1)
    return any_of([{"$and": list(both)} for both in itertools.product(starts, ends)])


def running_query(policy: Policy, form: TimeForm, at_ms: int) -> Document:
    """Returns a query for every bucket that starts before the instant and may hold a reading at or
    after it."""
    if policy.end_field:
        return range_query(policy, form, at_ms, at_ms + 1)
    starts = any_of(form.ranges(str(policy.start_field), FIRST_MS, at_ms))
    return {"$and": [starts, _sampled_in(policy, at_ms, LAST_MS)]}


def _sampled_in(policy: Policy, first_ms: int, last_ms: int) -> Document:
    """Returns a query for buckets with a sample from first to last. MongoDB has indexes on fields of samples,
    and none on what is in pairs."""
    form, array = sample_form(policy), str(policy.samples_field)
    if policy.samples_as == "documents":
        time = str(policy.sample_time_field)
        return {array: {"$elemMatch": any_of(form.roughly(time, first_ms, last_ms))}}
    held: Document = {"$cond": [{"$isArray": f"${array}"}, f"${array}", []]}
    time_of: Document = {"$cond": [{"$isArray": "$$this"}, {"$arrayElemAt": ["$$this", 0]}, None]}
    inside = {"$let": {"vars": {"time": time_of}, "in": form.is_roughly("$$time", first_ms, last_ms)}}
    return {"$expr": {"$anyElementTrue": [{"$map": {"input": held, "in": inside}}]}}
