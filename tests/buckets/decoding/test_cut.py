"""Long buckets that are cut up are read as whole ones are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import bson
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from bucketwise.buckets.bson.raw import Batch, Docs
from bucketwise.buckets.decoding.cut import LONG
from bucketwise.buckets.decoding.decode import BucketSet, Decoded, decode
from bucketwise.buckets.decoding.soundness import Plausible
from bucketwise.buckets.packing import pack, unpack
from bucketwise.config.models import make_policy
from tests.buckets.batches import batch_of
from tests.buckets.decoding.test_pack import readings_of
from tests.buckets.strategies import Case, cases
from tests.examples import examples

START = datetime(2025, 3, 3, tzinfo=UTC)
HEAD = {
    "name": "p",
    "collection": "c",
    "model": "samples",
    "series_fields": ("m",),
    "value_fields": ("v",),
}
DOCUMENTS = {"samples_field": "s", "sample_time_field": "t"}
#: How samples lie, and bounds.
SHAPES: dict[str, dict[str, Any]] = {
    "documents": {**DOCUMENTS, "sample_time_unit": "date"},
    "documents with a start": {**DOCUMENTS, "start_field": "st", "time_unit": "date"},
    "from the start on": {**DOCUMENTS, "sample_time_unit": "+s", "start_field": "st", "time_unit": "date"},
    "pairs": {"samples_field": "s", "samples_as": "pairs", "start_field": "st", "time_unit": "date"},
    "arrays": {"samples_as": "arrays", "sample_time_field": "t", "sample_time_unit": "date"},
}


def _bucket(shape: str, count: int, *, broken: int | None = None) -> bytes:
    """A bucket whose samples have several shapes; at one place there may be none."""
    counted = SHAPES[shape].get("sample_time_unit") == "+s"
    times: list[Any] = [i if counted else START + timedelta(seconds=i) for i in range(count)]
    values: list[Any] = [(i / 2, i, None, "x" * (i % 5))[i % 4] for i in range(count)]
    if broken is not None:
        times[broken] = "never"
    document: dict[str, Any] = {"_id": 1, "m": "a", "st": START, "more": [1, {"x": 2}]}
    if shape == "arrays":
        document |= {"t": times, "v": values}
    elif shape == "pairs":
        document["s"] = [[*it] for it in zip(times, values, strict=True)]
    else:
        document["s"] = [
            {"t": t, "q": i % 3, "v": v} for i, (t, v) in enumerate(zip(times, values, strict=True))
        ]
    return bson.encode(document)


def _equal(one: Decoded, other: Decoded) -> None:
    assert one.units.tolist() == other.units.tolist()
    assert one.last.tolist() == other.last.tolist()
    assert [repr(it) for it in one.quarantined] == [repr(it) for it in other.quarantined]
    a, b = one.columns, other.columns
    assert a.bucket_order.tolist() == b.bucket_order.tolist()
    assert a.starts.tolist() == b.starts.tolist()
    assert a.time.tolist() == b.time.tolist()
    assert [a.series[i] for i in a.series_of_readings] == [b.series[i] for i in b.series_of_readings]
    for name, values in a.values.items():
        assert values.tobytes() == b.values[name].tobytes()
        assert a.kinds[name].tolist() == b.kinds[name].tolist()


@pytest.mark.proof
@settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
@given(cases("samples"))
def test_buckets_are_read_as_whole_ones_are(case: Case) -> None:
    policy, buckets = case
    _equal(decode(batch_of(buckets), policy, cut_from=0), decode(batch_of(buckets), policy, cut_from=None))


@pytest.mark.parametrize("shape", SHAPES)
def test_no_structure_of_a_long_bucket_is_read_as_a_whole(shape: str) -> None:
    policy, batch = make_policy(**HEAD, **SHAPES[shape]), Batch.of(Docs.of([_bucket(shape, 12_000)]))
    assert batch.size > LONG
    decoded = decode(batch, policy)
    assert decoded.quarantined == []
    assert sum(len(it.group.layout.elements) for it in decoded.pieces) < 200
    columns = decoded.columns
    assert columns.time.tolist() == [int(START.timestamp() * 1000) + 1000 * i for i in range(12_000)]
    expected = [(i / 2, float(i), np.nan, np.nan)[i % 4] for i in range(12_000)]
    assert np.array_equal(columns.values["v"], expected, equal_nan=True)
    early = Plausible.of(policy, START + timedelta(seconds=5), has_earlier=False)
    assert decode(batch, policy, plausible=early).quarantined == []


@pytest.mark.parametrize("shape", SHAPES)
def test_a_broken_sample_is_named_by_its_place(shape: str) -> None:
    policy = make_policy(**HEAD, **SHAPES[shape])
    batch = Batch.of(Docs.of([_bucket(shape, 40, broken=17)]))
    cut, whole = decode(batch, policy, cut_from=0), decode(batch, policy, cut_from=None)
    assert [it.reason for it in whole.quarantined] != []
    _equal(cut, whole)
    assert ".17" in whole.quarantined[0].field


def test_a_long_bucket_is_packed_in_one_piece() -> None:
    policy = make_policy(**HEAD, **SHAPES["documents"])
    document = _bucket("documents", 8_000)
    buckets = BucketSet(Batch.of(Docs.of([document])), policy)
    assert any(it.places is not None for it in buckets.decoded.pieces)
    packed = pack(buckets)
    assert all(it.places is None for it in buckets.decoded.pieces)
    assert list(unpack(readings_of(packed), packed.groups, buckets.batch.size).main) == [document]
