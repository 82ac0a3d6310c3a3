"""Packing and unpacking: the same bytes of every document, and sorted rows that hold every number."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any
from unittest.mock import patch

import bson
import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bucketwise.buckets.bson.raw import Batch, Docs
from bucketwise.buckets.decoding.decode import BucketSet
from bucketwise.buckets.layouts import layout
from bucketwise.buckets.packing import (
    ByteSource,
    MalformedError,
    Packed,
    PackedGroup,
    Readings,
    ids_of,
    pack,
    unpack,
    unpacks_to,
)
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Overflow, Policy
from tests.buckets import handmade as bson_of
from tests.buckets import oracle
from tests.buckets.batches import batch_of
from tests.buckets.decoding.test_decode import READING, reading, same, typed
from tests.buckets.irregular import eager
from tests.buckets.oracle import Bucket
from tests.buckets.strategies import Case, cases
from tests.examples import examples

pytestmark = pytest.mark.filterwarnings("error")
_NONE = np.zeros(0, dtype=np.int64)
quick = settings(max_examples=examples(25), suppress_health_check=list(HealthCheck))


SLOTS = make_policy(**{**READING.model_dump(exclude_unset=True), "model": "slots", "slot": "second"})


def minute(number: int, series: str, start: int, slots: int = 60) -> Bucket:
    held = bson_of.sub(*((str(slot), bson_of.double(start + slot / 8)) for slot in range(slots)))
    return reading(number, ("s", bson_of.text(series)), ("d", bson_of.date(start * 60_000)), ("p", held))


def readings_of(packed: Packed) -> Readings:
    return Readings(packed.rows.time, list(packed.rows.values.values()))


def check_round_trip(policy: Policy, found: list[Bucket]) -> Packed:
    batch = batch_of(found)
    packed = pack(BucketSet(batch, policy))
    for group in packed.groups:
        group.check(len(packed.rows.time), len(packed.rows.values))
    again = unpack(readings_of(packed), packed.groups, batch.size)
    assert unpacks_to(readings_of(packed), packed.groups, batch)
    ids = ids_of(packed.groups, len(packed.rows.time), len(packed.rows.values), batch.size)
    assert ids in (None, batch.main.raw_ids)
    assert list(again.main) == [bucket.main for bucket in found]
    assert list(again.extra) == [extra for bucket in found for extra in bucket.extras]
    assert again.owner.tolist() == [i for i, bucket in enumerate(found) for _ in bucket.extras]
    return packed


@quick
@given(cases())
def test_gives_the_same_bytes_back(case: Case) -> None:
    check_round_trip(case.policy, case.buckets)


@pytest.mark.parametrize("field", ["d", "_id.d"])
def test_ids_are_told_without_the_rows_unless_these_carry_them(field: str) -> None:
    policy = make_policy(**{**READING.model_dump(exclude_unset=True), "time_field": field})
    day = datetime(2018, 6, 30, tzinfo=UTC)
    found = [{"_id": {"d": day + timedelta(hours=n), "n": n}, "s": "x", "d": day, "p": 1.0} for n in range(3)]
    batch = Batch.of(Docs.of([bson.encode(it) for it in found]))
    packed = pack(BucketSet(batch, policy))
    ids = ids_of(packed.groups, 3, len(packed.rows.values), batch.size)
    assert ids == (batch.main.raw_ids if field == "d" else None)


slabs = st.sampled_from([1, 1 << 9, 1 << 21])


@st.composite
def alike(draw: st.DrawFn) -> Case:
    """Minutes, most of one layout: many documents of one group."""
    missing = st.sets(st.integers(0, 7), max_size=draw(st.integers(0, 2)))
    return minutes_without(draw(st.lists(missing, min_size=2, max_size=20)))


@st.composite
def of_a_union(draw: st.DrawFn) -> Case:
    """Minutes of which some lack some slots: for an `eager` union."""
    return minutes_without([set(), {3}, *draw(st.lists(st.sets(st.integers(0, 7), max_size=2), max_size=8))])


def minutes_without(without: list[set[int]]) -> Case:
    found = []
    for i, gone in enumerate(without):
        held = bson_of.sub(*((str(slot), bson_of.double(slot)) for slot in range(8) if slot not in gone))
        start = bson_of.date(i * 60_000)
        found.append(reading(i, ("s", bson_of.text("x")), ("d", start), ("p", held)))
    return Case(SLOTS, found)


@quick
@given(cases() | alike() | of_a_union(), slabs, st.data())
def test_gives_no_other_batch(case: Case, slab: int, data: st.DataObject) -> None:
    batch = batch_of(case.buckets)
    with eager() if data.draw(st.booleans()) else nullcontext():
        packed = pack(BucketSet(batch, case.policy))
    other = data.draw(st.sampled_from(others(batch)))(data)
    event(f"another batch: {other is not None}")
    if other is not None:
        with patch.object(layout, "SLAB", slab):
            assert not unpacks_to(readings_of(packed), packed.groups, other)


def others(batch: Batch) -> list[Callable[[st.DataObject], Batch | None]]:
    def bit(docs: Docs, data: st.DataObject) -> Docs:
        """One of all that are not part of a document's length."""
        number = data.draw(st.integers(0, len(docs) - 1))
        start, end = docs.offsets[number], docs.offsets[number + 1]
        at, which = data.draw(st.integers(int(start) + 4, int(end) - 1)), data.draw(st.integers(0, 7))
        changed = bytes([docs.data[at] ^ 1 << which])
        return Docs(docs.data[:at] + changed + docs.data[at + 1 :], docs.offsets)

    def flipped(data: st.DataObject) -> Batch:
        return replace(batch, main=bit(batch.main, data))

    def flipped_in_overflow(data: st.DataObject) -> Batch | None:
        return replace(batch, extra=bit(batch.extra, data)) if len(batch.extra) else None

    def of_another_order(data: st.DataObject) -> Batch | None:
        order = np.array(data.draw(st.permutations(range(len(batch)))))
        found = batch.take(order)
        return None if found.equals(batch) else found

    def without_one(data: st.DataObject) -> Batch:
        return batch.take(np.delete(np.arange(len(batch)), data.draw(st.integers(0, len(batch) - 1))))

    def with_one_twice(data: st.DataObject) -> Batch:
        some = batch.slice(0, data.draw(st.integers(1, len(batch))))
        return Batch.concat([batch, some])

    def of_another_order_of_overflow(data: st.DataObject) -> Batch | None:
        order = np.array(data.draw(st.permutations(range(len(batch.extra)))), dtype=np.int64)
        order = order[np.argsort(batch.owner[order], kind="stable")]  # of each bucket's own
        found = replace(batch, extra=batch.extra.take(order))
        return None if found.equals(batch) else found

    def cut_elsewhere(data: st.DataObject) -> Batch | None:
        """The same bytes, of which one document has a few more, and the next as many fewer."""
        docs = batch.main
        if len(docs) == 1:
            return None
        between = data.draw(st.integers(1, len(docs) - 1))
        offsets = docs.offsets.copy()
        low, high = int(offsets[between - 1]), int(offsets[between + 1])
        offsets[between] = data.draw(st.integers(low + 1, high - 1).filter(lambda at: at != offsets[between]))
        return replace(batch, main=Docs(docs.data, offsets))

    return [
        flipped,
        flipped_in_overflow,
        of_another_order,
        of_another_order_of_overflow,
        cut_elsewhere,
        without_one,
        with_one_twice,
    ]


#: To a group as a whole, to the rows, to what a group has.
DAMAGES = [
    *("dropped", "doubled", "overflow", "time", "values", "readings", "skeleton", "residue", "present"),
    *("units", "order", "rows", "held", "hole", "width", "source", "reading", "field", "flag"),
]
OF_A_UNION = {"flag", "present", "held"}


@pytest.mark.parametrize("what", DAMAGES)
@settings(quick, max_examples=examples(12))
@given(slab=slabs, data=st.data())
def test_what_is_damaged_gives_the_batch_only_where_it_unpacks_to_it(
    what: str, slab: int, data: st.DataObject
) -> None:
    """Whatever the damage: it is told of by one way to look as by the other."""
    case = data.draw(of_a_union() if what in OF_A_UNION else cases() | alike())
    batch = batch_of(case.buckets)
    with eager() if what in OF_A_UNION else nullcontext():
        packed = pack(BucketSet(batch, case.policy))
    readings, groups = damaged(what, readings_of(packed), packed.groups, data)

    def unpacks_to_it() -> bool:
        try:
            found = unpack(readings, groups, batch.size)
        except MalformedError:
            return False
        sides = [(found.main, batch.main), (found.extra, batch.extra)]
        alike = [
            one.data == other.data and one.offsets.tolist() == other.offsets.tolist() for one, other in sides
        ]
        return all(alike) and found.owner.tolist() == batch.owner.tolist()

    with patch.object(layout, "SLAB", slab):
        is_same = holds(unpacks_to_it)
        event(f"still the same: {is_same}")
        assert holds(lambda: unpacks_to(readings, groups, batch)) == (
            is_same and are_numbered(groups, len(batch))
        )


def are_numbered(groups: list[PackedGroup], n: int) -> bool:
    """Buckets are 0, 1, 2 …: `unpack` would be content with others that ascend."""
    return sorted(unit for it in groups if not it.overflow for unit in it.units.tolist()) == list(range(n))


def holds(claim: Callable[[], bool]) -> bool:
    """Not where it can't be told: no copy is taken for good that fails so."""
    with suppress(ValueError, IndexError):
        return claim()
    return False


def damaged(
    what: str, readings: Readings, groups: list[PackedGroup], data: st.DataObject
) -> tuple[Readings, list[PackedGroup]]:
    at = data.draw(st.integers(0, len(groups) - 1))
    group = groups[at]
    assert what not in OF_A_UNION or len(group.flag)
    if what == "dropped":
        return readings, groups[:at] + groups[at + 1 :]
    if what == "doubled":
        return readings, [*groups, group]
    if what == "time":
        return readings._replace(time=changed(readings.time, data)), groups
    if what == "values":
        return readings._replace(values=[changed(column, data) for column in readings.values]), groups
    before = getattr(group, what)
    if isinstance(before, bytes):
        after: Any = changed(np.frombuffer(before, np.uint8), data).tobytes()
    else:
        after = changed(before, data) if isinstance(before, np.ndarray) else int(before) ^ 1
    return readings, [*groups[:at], replace(group, **{what: after}), *groups[at + 1 :]]


def changed(held: NDArray[Any], data: st.DataObject) -> NDArray[Any]:
    """One number another, or two in each other's place."""
    found = held.copy()
    if not found.size:
        return found
    flat = found.reshape(-1)
    one, other = (data.draw(st.integers(0, len(flat) - 1)) for _ in range(2))
    if data.draw(st.booleans()):
        flat[[one, other]] = flat[[other, one]]
    elif found.dtype.kind == "f":
        flat[one] = -flat[one]
    else:
        flat[one] ^= 1 << data.draw(st.integers(0, 2))
    return found


@quick
@given(cases())
def test_rows_are_sorted_and_hold_every_number(case: Case) -> None:
    check_rows(case.policy, case.buckets, pack(BucketSet(batch_of(case.buckets), case.policy)))


def check_rows(policy: Policy, found: list[Bucket], packed: Packed) -> None:
    rows = packed.rows
    named = [typed(series) for series in rows.series]
    expected = [
        (held.time // oracle.DAY, named.index(typed(series)), held)
        for bucket in oracle.in_order(found)
        for series, held in zip(
            oracle.series_of_readings(policy, bucket), oracle.readings(policy, bucket), strict=True
        )
    ]
    expected.sort(key=lambda row: (row[0], row[1], row[2].time))
    assert rows.time.tolist() == [held.time for _, _, held in expected]
    assert rows.row_series.tolist() == [series for _, series, _ in expected]
    for i, name in enumerate(policy.value_names):
        for row, (_, _, held) in enumerate(expected):
            kind, number = held.values[i]
            assert rows.present[name][row] == (kind in ("FINITE", "NONFINITE"))
            assert same(float(rows.values[name][row]), number)


@quick
@given(cases())
def test_tells_what_the_buckets_cover(case: Case) -> None:
    packed = pack(BucketSet(batch_of(case.buckets), case.policy))
    times = [r.time for bucket in case.buckets for r in oracle.readings(case.policy, bucket)]
    times += [oracle.last(case.policy, bucket) for bucket in case.buckets]
    assert (packed.first, packed.last) == (min(times), max(times))


SAMPLES = make_policy(
    name="it", collection="it", model="samples", series_fields=("s",), value_fields=("p",),
    samples_field="xs", sample_time_field="t", start_field="first", end_field="last",
    overflow=Overflow(flag_field="more", collection="extra", ref_field="of", samples_field="xs"),
)  # fmt: skip
#: Of each bucket: its series, how many samples it and its overflow documents hold, where it has no value.
one_after_another = st.lists(
    st.tuples(st.sampled_from("ab"), st.lists(st.integers(0, 5), min_size=1, max_size=3), st.integers(0, 9)),
    min_size=1,
    max_size=8,
)


def samples(sizes: list[int], start: int, bare: int) -> list[bson_of.Value]:
    """Arrays of samples, a second apart."""
    found = []
    for size in sizes:
        moments, start = range(start, start + size), start + size
        held = [
            [("t", bson_of.date(1000 * at)), ("p", bson_of.double(at / 8))][: 1 if at == bare else 2]
            for at in moments
        ]
        found.append(bson_of.array(*(bson_of.sub(*fields) for fields in held)))
    return found


@quick
@given(one_after_another, st.permutations(range(8)))
def test_buckets_that_follow_one_another_with_overflow_and_without_readings(
    shapes: list[tuple[str, list[int], int]], identities: list[int]
) -> None:
    """Each bucket goes as a whole; what its documents hold stands in the middle of it."""
    found, at = [], -20  # before 1970, and after
    for (series, sizes, bare), number in zip(shapes, identities, strict=False):
        identity, bounds = bson_of.int32(number), (bson_of.date(1000 * at), bson_of.date(1000 * (at + 60)))
        own, *more = samples(sizes, at, at + bare)
        extras = [
            bson_of.document(("_id", bson_of.text(f"{number}.{i}")), ("of", identity), ("xs", held))
            for i, held in enumerate(more)
        ]
        fields = [("s", bson_of.text(series)), ("first", bounds[0]), ("last", bounds[1]), ("xs", own)]
        fields += [("more", bson_of.boolean(True))] if more else []
        found.append(Bucket(bson_of.document(("_id", identity), *fields), tuple(extras)))
        at += sum(sizes)
    packed = check_round_trip(SAMPLES, found)
    check_rows(SAMPLES, found, packed)
    batch = batch_of(found)
    if len(batch.owner) and batch.owner[-1] > 0:
        another = replace(batch, owner=batch.owner - (batch.owner == batch.owner[-1]))
        assert not unpacks_to(readings_of(packed), packed.groups, another)
    for group in packed.groups:
        event(f"overflow: {group.overflow}, union: {len(group.flag) > 0}, rows: {group.rows.ndim}")


def test_a_union_may_have_room_for_more_readings_than_there_are() -> None:
    found = []
    for number in range(2):
        bounds = bson_of.date(60_000 * number), bson_of.date(60_000 * (number + 1))
        (held,) = samples([3 * number], 60 * number, -1)
        fields = (("s", bson_of.text("x")), ("first", bounds[0]), ("last", bounds[1]), ("xs", held))
        found.append(Bucket(bson_of.document(("_id", bson_of.int32(number)), *fields)))
    with eager():
        packed = check_round_trip(SAMPLES, found)
    (group,) = packed.groups
    assert (len(packed.rows.time), group.rows.shape) == (3, (2,))
    assert group.readings > 3


@pytest.mark.parametrize(
    "planted",
    [
        {"units": _NONE, "order": _NONE, "rows": _NONE, "residue": b"", "held": b"", "present": b""},
        {"readings": 1 << 20, "held": bytes(5 << 20)},
        {"held": bytes(1)},
        {"held": b"\xff" * 5 * 60},
    ],
    ids=["of no documents", "of more readings than bytes", "of other bits", "of rows behind the last"],
)
def test_a_group_that_somebody_planted_is_refused(planted: dict[str, Any]) -> None:
    found = []
    for i in range(40):
        held = bson_of.sub(*((str(it), bson_of.double(it)) for it in range(60) if (i * it) % 11 != 3))
        start = bson_of.date(i * 60_000)
        found.append(reading(i, ("s", bson_of.text("x")), ("d", start), ("p", held)))
    with eager():
        packed = pack(BucketSet(batch_of(found), SLOTS))
    (group,) = packed.groups
    assert len(group.held) == 60 * 5
    group.check(len(packed.rows.time), 1)
    with pytest.raises(MalformedError):
        replace(group, **planted).check(len(packed.rows.time), 1)


def test_a_bucket_that_breaks_its_model_is_refused() -> None:
    with pytest.raises(ValueError, match="can't be packed"):
        pack(BucketSet(batch_of([reading(1, ("s", bson_of.text("x")))]), READING))


ODD = {
    "a NaN with a payload": bson_of.bits(0x7FF8DEADBEEF0001),
    "a signalling NaN": bson_of.bits(0x7FF0000000000001),
    "a negative zero": bson_of.double(-0.0),
    "infinity": bson_of.double(math.inf),
    "a denormal": bson_of.double(5e-324),
    "a long beyond 2**53": bson_of.int64(2**53 + 1),
    "the least long": bson_of.int64(-(2**63)),
    "a decimal": bson_of.decimal("1.000"),
    "a signalling decimal": bson_of.decimal("sNaN"),
    "undefined": bson_of.undefined,
    "text": bson_of.text("56.58"),
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_value_among_plain_ones_comes_back(name: str) -> None:
    plain = bson_of.double(1.5) if ODD[name][0] == 1 else (ODD[name][0], bytes(len(ODD[name][1])))
    values = [bson_of.double(1.5), plain, ODD[name], bson_of.int32(7)]
    if ODD[name][0] == 2:
        values[1] = bson_of.text("57.01")
    found = [
        reading(i, ("s", bson_of.text("x")), ("d", bson_of.date(i)), ("p", value))
        for i, value in enumerate(values)
    ]
    check_round_trip(READING, found)


@pytest.mark.parametrize("name", ["a NaN with a payload", "a negative zero", "a long beyond 2**53"])
def test_bits_that_a_column_may_lose_are_kept_beside_it(name: str) -> None:
    """Parquet's dictionaries and statistics may take one NaN, or one zero, for another."""
    document = reading(1, ("s", bson_of.text("x")), ("d", bson_of.date(0)), ("p", ODD[name]))
    (group,) = check_round_trip(READING, [document]).groups
    assert group.source.tolist() == [ByteSource.KEPT, ByteSource.KEPT, ByteSource.TIME_DATE, ByteSource.KEPT]


def test_each_hole_is_judged_by_what_it_holds() -> None:
    slots = [bson_of.int32(7), bson_of.double(1.5), ODD["a negative zero"], bson_of.double(2.5)]
    held = bson_of.sub(*((str(slot), value) for slot, value in enumerate(slots)))
    bucket = reading(1, ("s", bson_of.text("x")), ("d", bson_of.date(0)), ("p", held))
    (group,) = check_round_trip(SLOTS, [bucket]).groups
    carried = [ByteSource.VALUE_INT32, ByteSource.VALUE_DOUBLE, ByteSource.KEPT, ByteSource.VALUE_DOUBLE]
    assert group.source.tolist() == [*[ByteSource.KEPT] * 3, *carried]


def one_sample(time: bson_of.Value) -> tuple[Policy, list[Bucket]]:
    policy = make_policy(
        name="it", collection="it", model="samples", series_fields=(), value_fields=("p",),
        samples_field="samples", sample_time_field="t", start_field="first", end_field="last",
    )  # fmt: skip
    sample = bson_of.sub(("t", time), ("p", bson_of.double(1.5)))
    document = bson_of.document(
        ("_id", bson_of.int32(1)), ("first", time), ("last", time), ("samples", bson_of.array(sample))
    )
    return policy, [Bucket(document)]


def test_a_negative_zero_as_time_comes_back() -> None:
    check_round_trip(*one_sample(bson_of.double(-0.0)))


@pytest.mark.parametrize(
    ("time", "source"),
    [
        (bson_of.date(1_535_530_412_123), ByteSource.TIME_DATE),
        (bson_of.int32(1_535_530_412), ByteSource.TIME_INT32),
        (bson_of.int64(1_535_530_412), ByteSource.TIME_INT64),
        (bson_of.double(1_535_530_412.123), ByteSource.TIME_DOUBLE),
        (bson_of.double(1_535_530_412.1234), ByteSource.KEPT),
    ],
)
def test_times_of_every_type_are_carried_by_the_rows(time: bson_of.Value, source: ByteSource) -> None:
    (group,) = check_round_trip(*one_sample(time)).groups
    assert group.source.tolist() == [*[ByteSource.KEPT] * 3, source, ByteSource.VALUE_DOUBLE]


def test_plain_numbers_and_times_are_carried_by_the_rows() -> None:
    """What the archive's size rests on."""
    (group,) = check_round_trip(SLOTS, [minute(i, "x", i) for i in range(50)]).groups
    assert np.count_nonzero(group.source == ByteSource.VALUE_DOUBLE) == 60
    kept = group.width[group.source == ByteSource.KEPT]
    assert len(group.residue) == 50 * int(kept.sum()) == 50 * (4 + 1 + 8)  # _id, s, d


@pytest.mark.parametrize("at_once", [1 << 21, 1 << 13, 1])
def test_so_they_are_where_slots_are_missing_here_and_there(
    monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr("bucketwise.buckets.layouts.layout.SLAB", at_once)
    found = []
    for i in range(40):
        held = [(str(slot), bson_of.double(i + slot / 8)) for slot in range(60) if (i * slot) % 11 != 3]
        start = bson_of.date((50 - i) * 60_000)  # the last first
        found.append(reading(i, ("s", bson_of.text("x")), ("d", start), ("p", bson_of.sub(*held))))
    packed = check_round_trip(SLOTS, found)
    check_rows(SLOTS, found, packed)
    (union,) = (group for group in packed.groups if len(group.flag))
    assert np.count_nonzero(union.source == ByteSource.VALUE_DOUBLE) >= 59
    assert union.rows.shape == (len(union.units),)
    assert len(union.held) == 60 * -(-len(union.units) // 8)


def test_where_slots_are_missing_in_buckets_that_mix_each_row_is_kept() -> None:
    found = []
    for i in range(40):  # two of each minute
        held = [(str(slot), bson_of.double(slot)) for slot in range(60) if (i * slot) % 11 != 3]
        start = bson_of.date(i // 2 * 60_000)
        found.append(reading(i, ("s", bson_of.text("x")), ("d", start), ("p", bson_of.sub(*held))))
    packed = check_round_trip(SLOTS, found)
    check_rows(SLOTS, found, packed)
    (union,) = (group for group in packed.groups if len(group.flag))
    assert (union.rows.shape, union.held) == ((len(union.units), 60), b"")


@pytest.mark.parametrize(
    ("is_there", "is_union", "to_compare", "most"),
    [
        (lambda _, __: True, False, 0.5, 1.5),
        (lambda i, __: i % 2, False, 0.5, 2.5),  # put in their order once they are there
        (lambda i, slot: (i + 1) ** 3 * (slot + 1) % 10007 % 10 > 0, True, 0.7, 2.5),
    ],
    ids=["alike", "by turns", "of a union"],
)
def test_documents_are_rebuilt_once_and_not_at_all_to_be_compared(
    is_there: Callable[[int, int], bool], is_union: bool, to_compare: float, most: float
) -> None:
    found = []
    for i in range(10_000):
        held = [(str(slot), bson_of.double(slot)) for slot in range(60) if is_there(i, slot)]
        start = bson_of.date(i * 60_000)
        fields = [("s", bson_of.text("x")), ("d", start), ("p", bson_of.sub(*held))]
        found.append(reading(i, *fields, ("x" * 1000, bson_of.null)))
    batch = batch_of(found)
    packed = pack(BucketSet(batch, SLOTS))
    assert any(len(group.flag) for group in packed.groups) == is_union
    unpack(readings_of(packed), packed.groups, batch.size)  # so that all is imported
    tracemalloc.start()
    try:
        assert unpacks_to(readings_of(packed), packed.groups, batch)
        assert tracemalloc.get_traced_memory()[1] < to_compare * batch.size
        again = unpack(readings_of(packed), packed.groups, batch.size)
        assert tracemalloc.get_traced_memory()[1] < most * again.size
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("at_once", [1 << 21, 1])
def test_of_buckets_that_follow_one_another_the_first_row_is_kept(
    monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr("bucketwise.buckets.layouts.layout.SLAB", at_once)
    found = [minute(2 * i + k, "ba"[k], i) for i in range(5) for k in range(2)]
    (group,) = check_round_trip(SLOTS, found).groups
    assert group.rows.tolist() == [row for i in range(5) for row in (300 + 60 * i, 60 * i)]


@pytest.mark.parametrize("at_once", [1 << 21, 1])
def test_the_same_with_others_in_between(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """Documents of two layouts by turns: those of one group don't follow directly."""
    monkeypatch.setattr("bucketwise.buckets.layouts.layout.SLAB", at_once)
    found = [minute(i, "a", i, 60 - 10 * (i % 3 == 1)) for i in range(9)]
    groups = check_round_trip(SLOTS, found).groups
    rows = {group.readings: group.rows.tolist() for group in groups}
    assert rows == {60: [0, 110, 170, 280, 340, 450], 50: [60, 230, 400]}


def test_of_buckets_that_mix_each_row_is_kept() -> None:
    found = [minute(i, "a", i // 2) for i in range(10)]  # two of each minute
    (group,) = check_round_trip(SLOTS, found).groups
    assert group.rows.shape == (10, 60)
    assert group.rows[:2].tolist() == [list(range(0, 120, 2)), list(range(1, 120, 2))]


def test_a_bucket_over_midnight_lies_in_both_days() -> None:
    policy = make_policy(**{**READING.model_dump(exclude_unset=True), "model": "slots", "slot": "minute"})
    held = bson_of.sub(*((str(slot), bson_of.double(slot)) for slot in (0, 29, 30, 59)))
    start = oracle.DAY - 30 * 60_000
    found = [
        reading(i, ("s", bson_of.text(name)), ("d", bson_of.date(start)), ("p", held))
        for i, name in enumerate("ab")
    ]
    rows = check_round_trip(policy, found).rows
    days = [(day, len(list(rows_of))) for day, rows_of in groupby((rows.time // oracle.DAY).tolist())]
    assert days == [(0, 4), (1, 4)]
