"""Versions of a bucket made one, held against plain Python; types and bits stay."""

from __future__ import annotations

import math
import struct
from datetime import UTC, datetime, timedelta
from typing import Any

import bson
import numpy as np
import pytest
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from hypothesis import given
from hypothesis import strategies as st

from bucketwise.buckets.bson.raw import Batch, Docs
from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.versions.merge import Merged, merge
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Overflow, Policy
from tests.archivers.builders import CODEC, encode

Document = dict[str, Any]
HOUR = datetime(2026, 1, 5, 10, tzinfo=UTC)
#: NaNs with payloads, and zeros of both signs.
BITS = st.sampled_from([0x7FF8000000000001, 0xFFF8000000000000, 0x8000000000000000, 0x3FF8000000000000])
VALUES = st.one_of(
    BITS.map(lambda it: struct.unpack("<d", struct.pack("<Q", it))[0]),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**62), 2**62).map(Int64),
    st.sampled_from(["n/a", None, Decimal128("1.10"), Decimal128("1.1"), True]),
)


def policy(**changes: Any) -> Policy:
    slots = {"time_field": "d", "slot": "minute"} if changes.get("model", "slots") == "slots" else {}
    common = {"name": "p", "collection": "c", "series_fields": ("dev",), "value_fields": ("p",)}
    return make_policy(**{**common, "model": "slots", **slots, **changes})


def samples(**changes: Any) -> Policy:
    keys = {
        "model": "samples", "samples_field": "samples", "value_fields": ("v",),
        "sample_time_field": "t", "start_field": "first", "end_field": "last",
    }  # fmt: skip
    return policy(**{**keys, **changes})


def one(documents: list[Document], extra: list[Document] = []) -> Batch:  # noqa: B006
    owner = np.zeros(len(extra), dtype=np.int32)
    return Batch(Docs.of([encode(it) for it in documents]), Docs.of([encode(it) for it in extra]), owner)


def merged(under: Policy, older: Document, newer: Document) -> bytes:
    """Of two versions; what comes of it is sound."""
    found = merge(under, one([older]), one([newer]))
    assert found.faults == {}
    assert decode(found.batch, under).quarantined == []
    return found.batch.main[0]


def fault(under: Policy, older: Document, newer: Document) -> str:
    found = merge(under, one([older]), one([newer]))
    assert found.batch.main[0] == encode(newer)
    return found.faults[0]


def over(older: Any, newer: Any) -> Any:
    """Slots over slots."""
    if newer is None:
        return older
    if not isinstance(older, dict) or not isinstance(newer, dict):
        return newer
    return {
        **{key: over(value, newer.get(key)) for key, value in older.items()},
        **{key: value for key, value in newer.items() if key not in older},
    }


SLOTS = st.dictionaries(st.integers(0, 59).map(str), VALUES, max_size=8)


@given(SLOTS, SLOTS)
def test_slots(older: Document, newer: Document) -> None:
    base = {"_id": "x", "dev": 7, "d": HOUR}
    found = merged(policy(), {**base, "p": older, "a": 1}, {**base, "b": 2, "p": newer})
    assert found == encode({**base, "p": over(older, newer), "a": 1, "b": 2})


@given(*[st.dictionaries(st.integers(0, 59).map(str), SLOTS, max_size=4)] * 2)
def test_slots_inside_slots(older: Document, newer: Document) -> None:
    base = {"_id": "x", "dev": 7, "d": HOUR}
    nested = policy(slot=None, slot_levels=("minute", "second"))
    found = merged(nested, {**base, "in": {}, "p": older}, {**base, "p": newer})
    assert found == encode({**base, "in": {}, "p": over(older, newer)})


@given(*[st.lists(st.floats(0, 9) | st.none(), max_size=60)] * 2)
def test_slots_by_place(older: list[float | None], newer: list[float | None]) -> None:
    base = {"_id": "x", "dev": 7, "d": HOUR}
    longer = max(len(older), len(newer))
    both = [*zip(older + [None] * longer, newer + [None] * longer, strict=False)][:longer]
    found = merged(policy(), {**base, "p": older}, {**base, "p": newer})
    assert found == encode({**base, "p": [old if new is None else new for old, new in both]})


def test_a_slot_is_the_same_however_its_key_is_written() -> None:
    base = {"_id": "x", "dev": 7, "d": HOUR}
    under = policy(value_fields=("v.*.kwh", "v.*.amp"))
    older = {**base, "v": {"07": {"kwh": 1.5, "amp": 1}, "8": {"kwh": 1.0}}}
    newer = {**base, "v": {"7": {"kwh": 2, "note": "x"}, "08": None}}
    wanted = {**base, "v": {"07": {"kwh": 2, "amp": 1, "note": "x"}, "8": {"kwh": 1.0}}}
    assert merged(under, older, newer) == encode(wanted)


def test_an_array_and_a_document_of_slots() -> None:
    base = {"_id": "x", "dev": 7, "d": HOUR}
    found = merged(policy(), {**base, "p": [1.0, None, 3.0]}, {**base, "p": {"1": 2.0, "50": 9}})
    assert found == encode({**base, "p": {"0": 1.0, "1": 2.0, "2": 3.0, "50": 9}})


TIMES = st.integers(0, 20)
SAMPLES = st.lists(st.tuples(TIMES, st.integers(-9, 9) | st.floats(-9, 9)), min_size=1, max_size=8)


def test_slots_that_are_called_otherwise() -> None:
    """By a clock, from 1 on, or counting on: the later version's slots have the earlier's names."""
    base = {"_id": 1, "dev": "x", "d": HOUR.replace(hour=0)}
    clock = policy(slot="30m", span="day", slot_keys="clock")
    found = merged(clock, {**base, "p": {"07:30": 1, "08:00": 2}}, {**base, "p": {"0730": 3, "0830": 4}})
    assert found == encode({**base, "p": {"07:30": 3, "08:00": 2, "0830": 4}})
    counted = policy(slot="30m", span="day", first_slot=1)
    found = merged(counted, {**base, "p": [1, 2]}, {**base, "p": {"02": 3, "4": 4}})
    assert found == encode({**base, "p": {"1": 1, "2": 3, "4": 4}})
    running = policy(slot=None, slot_levels=("hour", "minute"), slot_keys="running")
    found = merged(running, {**base, "p": {"1": {"60": 1}}}, {**base, "p": {"01": [2, 3]}})
    assert found == encode({**base, "p": {"1": {"60": 2, "61": 3}}})


def in_order(found: list[tuple[int, Any]]) -> bool:
    return [time for time, _ in found] == sorted(time for time, _ in found)


def laid(older: list[tuple[int, Any]], newer: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
    later = {time for time, _ in newer}
    joined = [it for it in older if it[0] not in later] + newer
    return sorted(joined, key=lambda it: it[0]) if in_order(older) and in_order(newer) else joined


@given(SAMPLES, SAMPLES, st.booleans())
def test_samples(older: list[tuple[int, Any]], newer: list[tuple[int, Any]], by_date: bool) -> None:
    """With the count, the sum and the bounds that the writer keeps."""

    def told(second: int) -> Any:
        return HOUR + timedelta(seconds=second) if by_date else int(HOUR.timestamp()) + second

    def bucket(held: list[tuple[int, Any]], total: float | int) -> Document:
        times = [time for time, _ in held]
        inner = [{"v": value, "t": told(time), "q": time} for time, value in held]
        bounds = {"first": told(min(times)), "last": told(max(times))}
        return {"_id": 1, "dev": 7, "n": Int64(len(held)), **bounds, "sum": total, "samples": inner}

    under = samples(count_field="n", sum_fields={"v": "sum"})
    wanted = laid(older, newer)
    first, second = (bucket(held, math.fsum(value for _, value in held)) for held in (older, newer))
    found = bson.decode(merged(under, first, second), CODEC)
    assert found.pop("sum") == pytest.approx(math.fsum(value for _, value in wanted), abs=1e-9)
    expected = bucket(wanted, 0.0)
    del expected["sum"]
    assert encode(found) == encode(expected)


def test_samples_that_sum_to_more_than_a_double() -> None:
    under = samples(sum_fields={"v": "sum"})

    def bucket(seconds: range, total: float) -> Document:
        inner = [{"v": 1.7e308, "t": HOUR + timedelta(seconds=at)} for at in seconds]
        return {
            "_id": 1,
            "dev": 7,
            "first": inner[0]["t"],
            "last": inner[-1]["t"],
            "sum": total,
            "samples": inner,
        }

    found = merged(under, bucket(range(1), 1.7e308), bucket(range(1, 3), math.inf))
    assert found == encode(bucket(range(3), math.inf))


def test_pairs_and_times_in_milliseconds() -> None:
    at = int(HOUR.timestamp() * 1000)
    under = samples(samples_as="pairs", sample_time_field=None, sample_time_unit="ms", end_field=None)
    base = {"_id": 1, "dev": 7}
    older = {**base, "first": HOUR, "samples": [[Int64(at), 1.0], [Int64(at + 5), 2.0]]}
    newer = {**base, "first": HOUR - timedelta(seconds=1), "samples": [[float(at + 5), 3, "x"]]}
    wanted = {
        **base,
        "first": HOUR - timedelta(seconds=1),
        "samples": [[Int64(at), 1.0], [float(at + 5), 3, "x"]],
    }
    assert merged(under, older, newer) == encode(wanted)


def test_samples_of_several_series() -> None:
    """At one time each series has its own."""
    under = samples(series_fields=("gw", "samples.*.dev"))
    base = {"_id": 1, "gw": 3, "first": HOUR, "last": HOUR}
    older = {**base, "samples": [{"dev": dev, "v": 1, "t": HOUR} for dev in "ab"]}
    newer = {**base, "samples": [{"dev": "b", "v": 2, "t": HOUR}]}
    wanted = {**base, "samples": [{"dev": "a", "v": 1, "t": HOUR}, {"dev": "b", "v": 2, "t": HOUR}]}
    assert merged(under, older, newer) == encode(wanted)
    assert "does not hold the readings" in fault(under, older, {**newer, "gw": 4})


def test_bounds_keep_the_type_of_the_later_version() -> None:
    second = int(HOUR.timestamp())
    older = {
        "_id": 1,
        "dev": 7,
        "first": HOUR,
        "last": HOUR + timedelta(seconds=9),
        "samples": [{"v": 1, "t": HOUR}],
    }
    newer = {
        "_id": 1,
        "dev": 7,
        "first": second + 3,
        "last": float(second + 5),
        "samples": [{"v": 1, "t": second + 3}],
    }
    found = bson.decode(merged(samples(), older, newer), CODEC)
    assert (found["first"], found["last"]) == (second, second + 9.0)
    assert isinstance(found["last"], float)
    back = bson.decode(merged(samples(), newer, older), CODEC)
    assert (back["first"], back["last"]) == (HOUR, HOUR + timedelta(seconds=9))


def test_overflow_of_both() -> None:
    """By their own `_id`s, and with the flag; the count is over what it was taken over before."""
    overflow = Overflow(flag_field="meta.more", collection="x", ref_field="of", samples_field="extra")
    under = samples(overflow=overflow, count_field="n")

    def bucket(second: int, count: int, more: bool) -> Document:
        at = HOUR + timedelta(seconds=second)
        inner = [{"v": second, "t": at}]
        return {
            "_id": 1,
            "dev": 7,
            "n": count,
            "first": HOUR,
            "last": at,
            "meta": {"more": more},
            "samples": inner,
        }

    def extra(identity: Any, value: int) -> Document:
        return {"_id": identity, "of": 1, "extra": [{"v": value, "t": HOUR}]}

    older = one([bucket(1, 3, True)], [extra("a", 1), extra("b", 2)])
    found = merge(under, older, one([bucket(2, 1, False)]))
    assert found.faults == {}
    assert found.batch.unit(0) == b"".join(map(encode, [_two(bucket, 4), extra("a", 1), extra("b", 2)]))
    newer = one([bucket(2, 3, True)], [extra("b", 7), extra("c", 3)])
    found = merge(under, older, newer)
    assert found.batch.unit(0) == b"".join(
        map(encode, [_two(bucket, 5), extra("a", 1), extra("b", 7), extra("c", 3)])
    )


def _two(bucket: Any, count: int) -> Document:
    return {
        **bucket(2, count, True),
        "samples": bucket(1, 0, True)["samples"] + bucket(2, 0, True)["samples"],
    }


def test_what_can_not_be_merged() -> None:
    base = {"_id": "x", "dev": 7, "d": HOUR, "p": {"1": 1.0}}
    assert "different series" in fault(policy(), base, {**base, "dev": 8})
    assert "a version breaks its model: p.60" in fault(policy(), base, {**base, "p": {"60": 1.0}})
    later = {**base, "d": HOUR + timedelta(hours=1)}
    assert "does not hold the readings" in fault(policy(), base, later)


def test_each_bucket_for_itself() -> None:
    base = {"dev": 7, "d": HOUR}
    older = [{"_id": i, **base, "p": {str(i): 1.0}} for i in range(5)]
    newer = [{"_id": i, **base, "dev": 7 + (i == 3), "p": {"2": 2.0}} for i in range(5)]
    found: Merged = merge(policy(), one(older), one(newer))
    assert list(found.faults) == [3]
    assert found.hides.tolist() == [False, False, True, False, False]
    assert found.batch.main[1] == encode({"_id": 1, **base, "p": {"1": 1.0, "2": 2.0}})
    assert found.batch.main[3] == encode(newer[3])


def test_of_a_reading_the_later_version_stands() -> None:
    under = policy(model="reading", time_field="d")
    base = {"_id": "x", "dev": 7, "d": HOUR}
    assert merged(under, {**base, "p": 1.0, "q": 2}, {**base, "p": 3}) == encode({**base, "p": 3})


@pytest.mark.parametrize(
    ("unit", "times", "later"),
    [
        ("us", [Int64(1_767_607_200_000_100), Int64(1_767_607_200_000_200)], Int64(1_767_607_200_000_300)),
        ("ns", [Int64(1_767_607_200_000_000_001), Int64(1_767_607_200_000_000_002)],
         Int64(1_767_607_200_000_000_003)),
        ("iso", ["2026-01-05T10:00:00.000100Z", "2026-01-05T10:00:00.000200Z"], "2026-01-05T10:00:00.0003Z"),
        ("s", [1_767_607_200.0001, 1_767_607_200.0002], 1_767_607_200.0003),
    ],
)  # fmt: skip
def test_samples_closer_than_a_millisecond_are_apart(unit: Any, times: list[Any], later: Any) -> None:
    under = samples(sample_time_unit=unit)

    def bucket(*held: Any) -> Document:
        return {"_id": 1, "dev": 1, "first": HOUR, "last": HOUR + timedelta(hours=1),
                "samples": [{"t": time, "v": place} for place, time in enumerate(held)]}  # fmt: skip

    found = bson.decode(merged(under, bucket(*times), bucket(later)))
    assert [it["t"] for it in found["samples"]] == [*times, later]
    again = bson.decode(merged(under, bucket(*times), bucket(times[1])))
    assert [(it["t"], it["v"]) for it in again["samples"]] == [(times[0], 0), (times[1], 0)]


def test_the_later_array_wins_whole_where_it_is_a_value() -> None:
    under = policy(nonnumeric_ok=("p",))
    documents = [{"_id": 1, "dev": 1, "d": HOUR, "p": {"5": held}} for held in ([1, 2, 3], [9])]
    assert bson.decode(merged(under, *documents))["p"] == {"5": [9]}
