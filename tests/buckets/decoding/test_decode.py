"""Decoding against plain Python: the same readings, in the promised order."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import bson
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from bucketwise.buckets.bson.raw import Batch, Docs
from bucketwise.buckets.columns import Columns, ValueKind
from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.models.series import series_key
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Policy
from tests.buckets import handmade as bson_of
from tests.buckets import oracle
from tests.buckets.batches import batch_of
from tests.buckets.oracle import Bucket
from tests.buckets.strategies import Case, cases
from tests.examples import examples

pytestmark = pytest.mark.filterwarnings("error")
quick = settings(max_examples=examples(50), suppress_health_check=list(HealthCheck))


def typed(series: tuple[Any, ...]) -> list[tuple[str, Any]]:
    """True is not 1 here."""
    return [(type(value).__name__, value) for value in series]


def same(number: float, expected: float | None) -> bool:
    """To the sign of zero; a NaN is a NaN."""
    if expected is None or math.isnan(expected):
        return math.isnan(number)
    return number == expected and math.copysign(1, number) == math.copysign(1, expected)


def check_values(columns: Columns, policy: Policy, row: int, expected: oracle.Reading) -> None:
    assert columns.time[row] == expected.time
    for name, (kind, number) in zip(policy.value_names, expected.values, strict=True):
        assert ValueKind(columns.kinds[name][row]).name == kind
        assert same(float(columns.values[name][row]), number)


@quick
@given(cases())
def test_decodes_what_a_plain_loop_finds(case: Case) -> None:
    policy, found = case
    decoded = decode(batch_of(found), policy)
    columns = decoded.columns
    assert decoded.quarantined == []
    ordered = oracle.in_order(found)
    assert [found[unit].main for unit in decoded.units] == [bucket.main for bucket in ordered]
    expected = [(i, reading) for i, b in enumerate(ordered) for reading in oracle.readings(policy, b)]
    assert columns.bucket.tolist() == [i for i, _ in expected]
    for row, (_, reading) in enumerate(expected):
        check_values(columns, policy, row, reading)
    told = [series for bucket in ordered for series in oracle.series_of_readings(policy, bucket)]
    assert [typed(columns.series[i]) for i in columns.series_of_readings] == [typed(it) for it in told]
    for i, bucket in enumerate(ordered if not policy.sample_series else []):
        held = columns.series[columns.bucket_series[i]]
        assert typed(held) == typed(oracle.series(policy, bucket))
    distinct = [typed(series) for series in columns.series]
    assert all(distinct.count(series) == 1 for series in distinct)
    assert decoded.last.tolist() == [oracle.last(policy, bucket) for bucket in ordered]
    keys = [bytes(key) for key in columns.bucket_order]
    assert keys == sorted(keys) and len(set(keys)) == len(keys)


READING = make_policy(
    name="it", collection="it", model="reading", time_field="d", series_fields=("s",), value_fields=("p",)
)


def reading(identity: int, *fields: bson_of.Field) -> Bucket:
    return Bucket(bson_of.document(("_id", bson_of.int32(identity)), *fields))


def test_whole_numbers_of_any_type_are_one_series() -> None:
    ones = [bson_of.int32(1), bson_of.int64(1), bson_of.double(1)]
    others = [bson_of.boolean(True), bson_of.text("1"), bson_of.double(1.5)]
    found = [reading(i, ("s", series), ("d", bson_of.date(0))) for i, series in enumerate([*ones, *others])]
    columns = decode(batch_of(found), READING).columns
    held = [columns.series[i][0] for i in columns.bucket_series]
    assert typed(tuple(held)) == [("int", 1)] * 3 + [("bool", True), ("str", "1"), ("float", 1.5)]
    assert len(columns.series) == 4
    assert len({series_key(series) for series in columns.series}) == 4


def test_whole_numbers_inside_a_series_document_are_one_too() -> None:
    found = [
        reading(i, ("s", bson_of.sub(("n", bson_of.array(number)))), ("d", bson_of.date(0)))
        for i, number in enumerate([bson_of.int32(1), bson_of.int64(1), bson_of.double(1)])
    ]
    assert decode(batch_of(found), READING).columns.series == [({"n": [1]},)]


def test_series_that_end_in_zero_bytes_stay_apart() -> None:
    texts = [b"a", b"a\0", b"a\0\0", b"b"]
    found = [reading(i, ("s", bson_of.text(s)), ("d", bson_of.date(0))) for i, s in enumerate(texts)]
    found += [
        reading(10 + i, ("s", bson_of.binary(s, 5)), ("d", bson_of.date(0))) for i, s in enumerate(texts)
    ]
    columns = decode(batch_of(found), READING).columns
    assert len(columns.series) == 8
    assert [columns.series[i][0] for i in columns.bucket_series[:4]] == ["a", "a\0", "a\0\0", "b"]


def test_equal_lengths_of_different_bytes_stay_apart() -> None:
    """Of one layout, so that they are compared as numpy's byte strings."""
    series = [b"a\0", b"\0a", b"\0\0"]
    found = [reading(i, ("s", bson_of.binary(s)), ("d", bson_of.date(0))) for i, s in enumerate(series)]
    columns = decode(batch_of(found), READING).columns
    assert [columns.series[i][0] for i in columns.bucket_series] == series


def test_documents_of_one_layout_are_put_in_id_order() -> None:
    found = [
        reading(i, ("s", bson_of.text("x")), ("d", bson_of.date(i)), ("p", bson_of.double(i)))
        for i in (1, 4, 2, 3)
    ]
    columns = decode(batch_of(found), READING).columns
    assert columns.time.tolist() == columns.values["p"].tolist() == [1, 2, 3, 4]


def test_a_broken_document_in_front_leaves_no_reading() -> None:
    """As many readings as its layout has documents: the last is of another one."""
    series = [bson_of.double(math.nan), bson_of.double(1.5), bson_of.double(1.5), bson_of.text("x")]
    found = [
        reading(i, ("s", held), ("d", bson_of.date(i)), ("p", bson_of.double(i)))
        for i, held in enumerate(series)
    ]
    decoded = decode(batch_of(found), READING)
    assert [bucket.id for bucket in decoded.quarantined] == [0]
    assert decoded.columns.time.tolist() == decoded.columns.values["p"].tolist() == [1, 2, 3]


def test_a_batch_of_nothing() -> None:
    decoded = decode(batch_of([]), READING)
    assert len(decoded.columns.time) == 0 and decoded.columns.series == [] and decoded.quarantined == []


@pytest.mark.parametrize(("hours", "series"), [(23, 8), (24, 1), (25, 8)])
def test_the_structure_of_long_days_is_read_once(hours: int, series: int) -> None:
    """Of slots of five seconds there are 18,000 on the longest day."""
    policy = make_policy(
        name="it", collection="it", model="slots", time_field="d", series_fields=("s",), value_fields=("p",),
        slot="5s", span="day", timezone="Europe/Berlin",
    )  # fmt: skip
    month, day = {23: (3, 30), 24: (6, 1), 25: (10, 26)}[hours]
    start = datetime(2025, month, day, tzinfo=ZoneInfo("Europe/Berlin"))
    held = {"d": start.astimezone(UTC), "p": [1.5] * (hours * 720)}
    batch = Batch.of(Docs.of([bson.encode({"_id": i, "s": i, **held}) for i in range(series)]))
    first, second, third = (decode(batch, policy) for _ in range(3))
    assert first.quarantined == []
    assert third.pieces[0].group.layout is second.pieces[0].group.layout


def test_thousands_of_layouts_of_one_length() -> None:
    """Slots missing here and there: nearly every document is a layout of its own."""
    random = np.random.default_rng(1)
    policy = make_policy(**{**READING.model_dump(exclude_unset=True), "model": "slots", "slot": "second"})
    found, expected = [], []
    for i in range(1500):
        slots = np.sort(random.permutation(np.arange(10, 60))[:25]).tolist()
        held = bson_of.sub(*((str(slot), bson_of.double(slot + i)) for slot in slots))
        found.append(reading(i, ("s", bson_of.int32(1)), ("d", bson_of.date(i * 60_000)), ("p", held)))
        expected += [(i * 60_000 + slot * 1000, float(slot + i)) for slot in slots]
    columns = decode(batch_of(found), policy).columns
    assert list(zip(columns.time.tolist(), columns.values["p"].tolist(), strict=True)) == expected
