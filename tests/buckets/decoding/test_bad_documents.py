"""Bad documents are set apart with field and reason; sound ones beside them go on."""

from __future__ import annotations

import struct
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bucketwise.buckets.decoding.decode import BucketSet, decode
from bucketwise.buckets.packing import Readings, pack, unpack
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Policy
from tests.buckets import handmade as bson_of
from tests.buckets import oracle
from tests.buckets.bad_documents import (
    BAD_DOCUMENTS,
    BAD_ID,
    READING,
    SAMPLES,
    SECONDS,
    BadDocument,
    reading,
    sample,
    samples,
    slots,
    sound_of,
)
from tests.buckets.batches import batch_of
from tests.buckets.irregular import POLICIES, Writer
from tests.buckets.oracle import Bucket
from tests.buckets.strategies import Case, anything, cases
from tests.examples import examples

pytestmark = pytest.mark.filterwarnings("error")


@pytest.mark.parametrize("bad", BAD_DOCUMENTS, ids=lambda bad: bad.id)
def test_is_quarantined_with_field_and_reason_and_the_others_go_on(bad: BadDocument) -> None:
    sound = sound_of(bad)
    found = [sound[0], bad.bucket, *sound[1:]]
    decoded = decode(batch_of(found), bad.policy)
    (quarantined,) = decoded.quarantined
    assert quarantined.id == bad.told
    assert quarantined.field == bad.field
    assert bad.reason in quarantined.reason
    assert [found[unit] for unit in decoded.units] == sound
    expected = [reading for bucket in sound for reading in oracle.readings(bad.policy, bucket)]
    assert decoded.columns.time.tolist() == [reading.time for reading in expected]
    assert decoded.columns.values["p"].tolist() == [reading.values[0][1] for reading in expected]


@pytest.mark.parametrize("bad", BAD_DOCUMENTS, ids=lambda bad: bad.id)
def test_alone_it_leaves_nothing(bad: BadDocument) -> None:
    decoded = decode(batch_of([bad.bucket]), bad.policy)
    assert len(decoded.quarantined) == 1
    assert len(decoded.columns.time) == len(decoded.units) == 0


def test_of_many_alike_those_with_a_reading_outside_their_own_bounds_are_told() -> None:
    documents = []
    for i in range(20):
        first, last = 1_535_530_000 + 100 * i, 1_535_530_020 + 100 * i
        readings = first - (i == 5), last + (i in (11, 13))
        held = [sample(bson_of.int32(at), p=bson_of.double(25.75)) for at in readings]
        bounds = {"first": bson_of.int32(first), "last": bson_of.int32(last)}
        documents.append(samples(_id=bson_of.int32(i), **bounds, samples=bson_of.array(*held)))
    decoded = decode(batch_of([Bucket(document) for document in documents]), make_policy(**SAMPLES))
    assert [(it.id, it.field, it.reason[15:39], it.reason[-52:]) for it in decoded.quarantined] == [
        (
            5,
            "samples.0.time",
            "2018-08-29T08:14:59.000Z",
            "2018-08-29T08:15:00.000Z to 2018-08-29T08:15:20.999Z",
        ),
        (
            11,
            "samples.1.time",
            "2018-08-29T08:25:21.000Z",
            "2018-08-29T08:25:00.000Z to 2018-08-29T08:25:20.999Z",
        ),
        (
            13,
            "samples.1.time",
            "2018-08-29T08:28:41.000Z",
            "2018-08-29T08:28:20.000Z to 2018-08-29T08:28:40.999Z",
        ),
    ]
    assert decoded.units.tolist() == [i for i in range(20) if i not in (5, 11, 13)]


def test_names_are_told_apart() -> None:
    names = [bad.id for bad in BAD_DOCUMENTS]
    assert len(set(names)) == len(names)


def test_what_people_read_is_unicode() -> None:
    """A field's name that is not UTF-8 must not break a report."""
    document = bson_of.document(("_id", BAD_ID), ("symbol", bson_of.text("x")), ("d", bson_of.date(0)))
    held = b"\x03p\0" + bson_of.document(("X", bson_of.int32(1))).replace(b"X", b"\xff") + b"\0"
    document = (len(document) - 1 + len(held)).to_bytes(4, "little") + document[4:-1] + held
    slots = next(bad for bad in BAD_DOCUMENTS if bad.id == 'slots: slot "60"')
    (quarantined,) = decode(batch_of([Bucket(document)]), slots.policy).quarantined
    assert quarantined.field == "p.\\xff" and (quarantined.field + quarantined.reason).encode()


def test_a_compound_id_is_reported_as_a_document() -> None:
    document = samples(
        _id=bson_of.sub(("a", bson_of.int32(1)), ("b", bson_of.text(b"\xff"))), n=bson_of.int32(9)
    )
    (quarantined,) = decode(batch_of([Bucket(document)]), make_policy(**SAMPLES)).quarantined
    assert repr(quarantined.id) == repr({"a": 1, "b": "\\xff"})


@pytest.mark.parametrize(
    ("name", "total", "values"),
    [
        ("a decimal", bson_of.decimal("51.5"), None),
        ("rounding", bson_of.double(51.5 * (1 + 2e-16)), None),
        ("NaN poisons the sum", bson_of.double(float("nan")), bson_of.double(float("nan"))),
        ("NaN is left out", bson_of.double(1.5), bson_of.double(float("nan"))),
        ("infinity", bson_of.double(float("inf")), bson_of.double(float("inf"))),
        ("infinity is left out", bson_of.double(1.5), bson_of.double(float("inf"))),
        ("a string counts for nothing", bson_of.double(1.5), bson_of.text("50")),
        ("null counts for nothing", bson_of.double(1.5), bson_of.null),
        ("a decimal value", bson_of.double(2.75), bson_of.decimal("1.25")),
    ],
)
def test_these_sums_are_right(name: str, total: bson_of.Value, values: bson_of.Value | None) -> None:
    document = samples(sum=total)
    if values is not None:
        first, last = bson_of.int32(1535530412), bson_of.int32(1535530432)
        array = bson_of.array(
            bson_of.sub(("time", first), ("p", values)),
            bson_of.sub(("time", last), ("p", bson_of.double(1.5))),
        )
        document = samples(sum=total, samples=array)
    assert decode(batch_of([Bucket(document)]), make_policy(**SAMPLES)).quarantined == [], name


@settings(max_examples=examples(50))
@given(st.data())
def test_anything_is_packed_bit_for_bit_or_quarantined(data: st.DataObject) -> None:
    options = data.draw(st.sampled_from([READING, SECONDS, SAMPLES]))
    names = ["_id", "symbol", "d", "p", "samples", "first", "last", "n", "sum", "", "a.b"]
    drawn = data.draw(st.lists(st.lists(st.tuples(st.sampled_from(names), anything), max_size=8), max_size=4))
    sound = {str(READING): reading, str(SECONDS): slots, str(SAMPLES): samples}[str(options)]()
    documents = [bson_of.document(("_id", bson_of.int32(i)), *fields) for i, fields in enumerate(drawn)]
    documents += [struct.pack("<i", len(it) + len(sound) - 5) + sound[4:-1] + it[4:] for it in documents]
    policy = make_policy(**options)
    batch = batch_of([Bucket(document) for document in documents])
    decoded = decode(batch, policy)
    assert len(decoded.units) + len(decoded.quarantined) == len(documents)
    assert all(it.reason and (it.field + it.reason).encode() for it in decoded.quarantined)
    if len(decoded.units):
        going = batch.take(np.sort(decoded.units))
        packed = pack(BucketSet(going, policy))
        back = unpack(
            Readings(packed.rows.time, list(packed.rows.values.values())), packed.groups, going.size
        )
        assert sorted(back.main) == sorted(going.main)


def _check_containers(policy: Policy, found: list[Bucket]) -> None:
    """What holds a sub-document or an array as a value is quarantined, and nothing else is."""
    decoded = decode(batch_of(found), policy.model_copy(update={"nonnumeric_ok": ()}))
    broken = [oracle.holds_container(policy, bucket) for bucket in found]
    assert sorted(decoded.units.tolist()) == [i for i, it in enumerate(broken) if not it]
    assert len(decoded.quarantined) == sum(broken)
    assert all("stands where a number is needed" in it.reason for it in decoded.quarantined)


@settings(max_examples=examples(50), suppress_health_check=list(HealthCheck))
@given(cases())
def test_a_container_is_no_number(case: Case) -> None:
    _check_containers(case.policy, case.buckets)


@settings(max_examples=examples(30))
@given(st.integers(0, 2**32), st.sampled_from(POLICIES))
def test_a_container_is_no_number_in_a_union(seed: int, policy: Policy) -> None:
    writer = Writer(Random(seed), policy)
    writer.odd = 0.01
    _check_containers(policy, writer.buckets(40))
