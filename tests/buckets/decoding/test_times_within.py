"""Samples whose time counts within their bucket, and samples in arrays side by side."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketwise.buckets.bson.raw import Batch, Docs
from bucketwise.buckets.decoding.decode import BucketSet, decode
from bucketwise.buckets.packing import Readings, pack, unpack
from bucketwise.config.models import make_policy

Document = dict[str, Any]
START = datetime(2025, 1, 14, 6, 17, tzinfo=UTC)
_BERLIN = ZoneInfo("Europe/Berlin")
_COMMON: Document = {"name": "it", "collection": "it", "model": "samples", "series_fields": ("dev",)}
_COMMON |= {"start_field": "at", "value_fields": ("p",)}
SAMPLES: Document = {**_COMMON, "samples_field": "s", "sample_time_field": "t"}
CLOCK: Document = {**SAMPLES, "sample_time_field": ["m", "s"], "sample_time_unit": ["m", "s"]}
DAY: Document = {**CLOCK, "sample_time_field": ["h", "m"], "sample_time_unit": ["h", "m"]}
DAY |= {"timezone": "Europe/Berlin"}
ARRAYS: Document = {**_COMMON, "samples_as": "arrays", "sample_time_field": "ts", "start_field": None}
_STEPS = {"+ms": "milliseconds", "+s": "seconds", "+m": "minutes", "+h": "hours"}


def batch_of(documents: list[Document]) -> Batch:
    return Batch.of(Docs.of([bson.encode({"_id": i, "dev": 1, **it}) for i, it in enumerate(documents)]))


def times(keys: Document, documents: list[Document]) -> list[datetime]:
    """The times that are read. What is packed gives the same documents back."""
    policy, batch = make_policy(**keys), batch_of(documents)
    decoded = decode(batch, policy)
    assert decoded.quarantined == []
    packed = pack(BucketSet(batch, policy))
    again = unpack(Readings(packed.rows.time, list(packed.rows.values.values())), packed.groups, batch.size)
    assert list(again.main) == list(batch.main)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return [epoch + timedelta(milliseconds=ms) for ms in decoded.columns.time.tolist()]


def fault(keys: Document, document: Document) -> tuple[str, str]:
    (found,) = decode(batch_of([document]), make_policy(**keys)).quarantined
    return found.field, found.reason


numbers = st.one_of(st.integers(0, 5000), st.integers(0, 5000).map(float), st.integers(0, 9).map(bson.Int64))


@given(st.sampled_from(list(_STEPS)), st.lists(st.lists(numbers, max_size=5), min_size=1, max_size=12))
def test_numbers_count_from_the_start(unit: str, counted: list[list[Any]]) -> None:
    documents = [{"at": START, "s": [{"t": it, "p": 1} for it in row]} for row in counted]
    expected = [START + timedelta(**{_STEPS[unit]: int(it)}) for row in counted for it in row]
    assert times({**SAMPLES, "sample_time_unit": unit}, documents) == expected


def test_numbers_of_several_fields_are_added_or_what_a_clock_shows() -> None:
    sample = {"m": 20, "s": 5.5, "p": 1}
    added = {**CLOCK, "sample_time_unit": ["+m", "+s"]}
    assert times(added, [{"at": START, "s": [sample]}]) == [datetime(2025, 1, 14, 6, 37, 5, 500_000, UTC)]
    assert times(CLOCK, [{"at": START, "s": [sample]}]) == [datetime(2025, 1, 14, 6, 20, 5, 500_000, UTC)]


@pytest.mark.parametrize("day", [datetime(2025, 10, 26), datetime(2025, 7, 1)])  # noqa: DTZ001
def test_hours_are_those_of_a_local_clock(day: datetime) -> None:
    start = day.replace(tzinfo=_BERLIN)
    samples = [{"h": hour, "m": 30, "p": hour} for hour in range(24)]
    expected = [start.replace(hour=hour, minute=30).astimezone(UTC) for hour in range(24)]
    assert times(DAY, [{"at": start, "s": samples}]) == expected


@pytest.mark.parametrize(
    ("sample", "where", "reason"),
    [
        ({"m": 60, "s": 0}, "s.0.m", "clocks show m from 0 to 59"),
        ({"m": 20.5, "s": 0}, "s.0.m", "clocks show m from 0 to 59"),
        ({"m": 16, "s": 0}, "s.0.m", "is outside the bucket's bounds"),
        ({"m": 20}, "s.0.s", "the field is missing or null"),
        ({"m": None, "s": 1}, "s.0.m", "the field is missing or null"),
        ({"m": "20", "s": 1}, "s.0.m", "a string stands where"),
        ({"m": 20, "s": START}, "s.0.s", "a date stands where"),
    ],
)
def test_what_no_clock_shows_breaks_the_bucket(sample: Document, where: str, reason: str) -> None:
    field, found = fault(CLOCK, {"at": START, "s": [{**sample, "p": 1}]})
    assert field == where
    assert reason in found


def test_an_hour_that_was_skipped_breaks_the_bucket() -> None:
    start = datetime(2025, 3, 30, tzinfo=_BERLIN)
    _, reason = fault(DAY, {"at": start, "s": [{"h": 2, "m": 30, "p": 1}]})
    assert "no hour that they skip" in reason


@given(
    st.lists(st.lists(st.sampled_from([1, 2.5, None, "x"]), min_size=1, max_size=40), min_size=1, max_size=20)
)
def test_arrays_side_by_side(values: list[list[Any]]) -> None:
    documents = [
        {"ts": [START + timedelta(seconds=60 * i + j) for j in range(len(it))], "p": it}
        for i, it in enumerate(values)
    ]
    assert times(ARRAYS, documents) == [it for document in documents for it in document["ts"]]
    columns = decode(batch_of(documents), make_policy(**ARRAYS)).columns
    read = [it if isinstance(it, int | float) else None for row in values for it in row]
    finite = zip(columns.values["p"].tolist(), read, strict=True)
    assert all(found == it for found, it in finite if it is not None)


@pytest.mark.parametrize("others", [0, 20])
def test_unlike_arrays_break_the_bucket(others: int) -> None:
    """Also among buckets of many lengths, which are read together."""

    def document(times: int, values: int) -> Document:
        return {"ts": [START + timedelta(seconds=i) for i in range(times)], "p": [0.5] * values}

    documents = [document(it + 1, it + 1) for it in range(others)]
    documents += [document(3, 2), document(2, 3), document(0, 0), {"ts": [None], "p": [1]}]
    decoded = decode(batch_of(documents), make_policy(**ARRAYS))
    assert decoded.units.tolist() == list(range(others))
    assert [(it.field, it.reason) for it in decoded.quarantined] == [
        ("p", "the array holds 2 values, and ts holds 3 times"),
        ("p", "the array holds 3 values, and ts holds 2 times"),
        ("ts", "no time: it holds no samples, and no field tells when the bucket starts"),
        ("ts.0", "no time: the field is missing or null"),
    ]
