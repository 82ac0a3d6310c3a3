"""What a policy makes of a few buckets, against plain Python."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import bson
import pytest
from hypothesis import HealthCheck, given, settings

from bucketwise.buckets.columns import ValueKind
from bucketwise.buckets.sampling.fit import Fit, fields_of, fit_of
from bucketwise.config.models import make_policy
from tests.buckets import oracle
from tests.buckets.bad_documents import NUMBERS, SAMPLES, SAMPLES_MORE, SECONDS, SLOTS_MORE, TIMESERIES
from tests.buckets.batches import batch_of
from tests.buckets.oracle import EPOCH, Bucket
from tests.buckets.strategies import Case, cases
from tests.examples import examples


def fit(options: dict[str, Any], *documents: dict[str, Any]) -> Fit:
    found = [Bucket(bson.encode({"_id": i, **it})) for i, it in enumerate(documents)]
    return fit_of(batch_of(found), make_policy(**options))


@settings(max_examples=examples(40), suppress_health_check=list(HealthCheck))
@given(cases())
def test_counts_what_a_plain_loop_finds(case: Case) -> None:
    policy, buckets = case
    found, read = fit_of(batch_of(buckets), policy), [oracle.readings(policy, it) for it in buckets]
    readings = [reading for some in read for reading in some]
    assert (found.sampled, found.buckets, found.quarantined) == (len(buckets), len(buckets), [])
    assert found.readings == len(readings)
    for i, name in enumerate(policy.value_names):
        held = [reading.values[i][0] for reading in readings]
        assert found.held[name] == {kind: held.count(kind.name) for kind in ValueKind}
        share = found.finite[name]
        assert share == (held.count("FINITE") / len(held) if held else None)
    times = [reading.time for reading in readings]
    assert found.span == ((min(times), max(times)) if times else None)
    assert [it.time for it in found.examples][:1] == [
        reading.time for bucket in oracle.in_order(buckets) for reading in oracle.readings(policy, bucket)
    ][:1]


def test_what_has_to_hold_numbers_and_does_not() -> None:
    document = {"symbol": "x", "d": EPOCH, "p": "56.5", "q": {"bid": math.nan}}
    options = {**NUMBERS, "value_fields": ("p", "q.bid", "r")}
    assert fit(options, document).empty_fields(make_policy(**options)) == ["p", "q.bid", "r"]
    some = {**options, "nonnumeric_ok": ("p", "r")}
    assert fit(some, document).empty_fields(make_policy(**some)) == ["q.bid"]
    assert fit(options, document, {**document, "r": 1}).empty_fields(make_policy(**options)) == ["p", "q.bid"]
    assert fit(options).empty_fields(make_policy(**options)) == []


@pytest.mark.parametrize(
    ("held", "is_hollow"),
    [
        ({}, True),
        ({"v": {"0": {"t": 1}}}, True),
        ({"p": {}}, False),
        ({"p": {"0": None}}, False),
        ({"p": {"0": 1}}, False),
        ({"p": []}, False),
    ],
)
def test_slots_that_wait_for_readings_are_no_misreading(held: dict[str, Any], is_hollow: bool) -> None:
    assert fit(SECONDS, {"symbol": "x", "d": EPOCH, **held}).is_hollow is is_hollow


def test_an_empty_array_is_no_misreading() -> None:
    empty = {"symbol": "x", "n": 0, "sum": 0, "first": 0, "last": 0, "samples": []}
    assert not fit(SAMPLES, empty).is_hollow


_IN = {"symbol": "x", "d": EPOCH}


@pytest.mark.parametrize(
    ("options", "document", "unused"),
    [
        (NUMBERS, {**_IN, "p": 1, "value": 3, "meta": {"a": 1}}, ["value", "meta"]),
        (TIMESERIES, {**_IN, "p": 1}, []),
        (
            {**NUMBERS, "value_fields": ("q.bid",)},
            {**_IN, "q": {"bid": 1, "ask": 2}, "z": None},
            ["q.ask", "z"],
        ),
        (SECONDS, {**_IN, "p": {"0": 1, "59": {"x": 1}}, "v": {"0": 1}}, ["v"]),
        (
            {**SECONDS, "value_fields": ("v.t",)},
            {**_IN, "v": {"0": {"p": 1}, "unit": "K"}},
            ["v.*.p", "v.unit"],
        ),
        ({**SECONDS, "value_fields": ("v.*.p",)}, {**_IN, "v": {"7": {"p": 1, "t": 2}}}, ["v.*.t"]),
        (
            {**SECONDS, "value_fields": ("v.*.p",), "slot_levels": ("minute", "second")},
            {**_IN, "v": {"7": {"0": {"p": 1, "t": 2}}}},
            ["v.*.*.t"],
        ),
        (
            SAMPLES,
            {
                "symbol": "x",
                "n": 1,
                "sum": 0,
                "first": 0,
                "last": 0,
                "samples": [{"time": 0, "val": 1}],
                "day": 1,
            },
            ["samples.*.val", "day"],
        ),
        ({**SAMPLES, "samples_as": "pairs"}, {"samples": [[1, 2]], "sum": 1, "more": 2}, ["more"]),
        (SLOTS_MORE, {**_IN, "p": {}, "has_more": False, "more": 1}, ["more"]),
        (
            {**NUMBERS, "attributes_field": "attrs", "local_offset_field": "tz"},
            {**_IN, "attrs": [{"k": "p", "v": 1}], "tz": 0, "p": 1},
            ["p"],
        ),
        (NUMBERS, {"_id": {"a": 1}, **_IN, "p": 1}, []),
    ],
)
def test_tells_the_fields_that_nobody_uses(
    options: dict[str, Any], document: dict[str, Any], unused: list[str]
) -> None:
    assert list(fields_of([bson.encode(document)], make_policy(**options)).unused) == unused


def test_an_array_on_the_way_is_told() -> None:
    options = {**NUMBERS, "value_fields": ("fields.v",)}
    found = fields_of([bson.encode({**_IN, "fields": [{"k": "a", "v": 1}]})], make_policy(**options))
    assert found.arrays == {"fields"}
    assert list(found.unused) == ["fields.*.k", "fields.*.v"]


def test_what_is_told_is_bounded() -> None:
    many = {f"f{i}": {f"g{j}": 1 for j in range(500)} for i in range(500)}
    found = fields_of([bson.encode(many)], make_policy(**SAMPLES_MORE))
    assert (len(found.unused), len(found.within)) == (100, 100)


def test_the_names_of_attributes_are_told() -> None:
    options = {**NUMBERS, "attributes_field": "attrs", "attribute_key": "of.name"}
    held = [{"of": {"name": "p"}}, {"of": {"name": "volume"}}, {"of": 1}, 3]
    found = fields_of(
        [bson.encode({**_IN, "attrs": held}), bson.encode({"attrs": 1})], make_policy(**options)
    )
    assert list(found.within) == ["volume"]


def test_a_field_that_never_falls_may_be_a_counter() -> None:
    at = [{"d": EPOCH + timedelta(minutes=i), "s": 1, "v": i % 60, "w": i % 7} for i in range(180)]
    fields = {"time_field": "d", "series_fields": ("s",), "value_fields": ("v", "w")}
    policy = {"name": "it", "collection": "it", "model": "reading", **fields}
    assert {path: keys for path, (keys, _) in fit(policy, *at).kinds.items()} == {"v": {"kind": "counter"}}
    assert fit({**policy, "values": {"v": {"kind": "counter"}}}, *at).kinds == {}
