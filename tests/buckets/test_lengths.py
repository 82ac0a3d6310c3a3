"""Ranges of sample buckets, found by how long these are: the same buckets, and no others looked at."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import DatetimeMS, Decimal128, Int64
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pymongo.database import Database

from bucketwise.buckets import lengths
from bucketwise.buckets.source import Source
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Policy
from tests.examples import examples

Mongo = Database[dict[str, Any]]
HOUR, DAY = 3_600_000, 86_400_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def policy_of(unit: str = "s") -> Policy:
    return make_policy(
        name="p",
        collection="c",
        model="samples",
        start_field="at.first",
        end_field="last",
        time_unit=unit,
        sample_time_field="t",
        samples_field="samples",
        value_fields=("v",),
        series_fields=("s",),
    )


def ids(source: Source, start: int, end: int) -> list[int]:
    return sorted(batch.main.decode_id(i) for batch in source.batches(start, end) for i in range(len(batch)))


#: Hours, some with a fraction; and what is no time, or none that counts.
hours = st.integers(-400, 400) | st.integers(-9600, 9600).map(lambda it: it / 24)
PER_HOUR = {"s": 3600, "ms": HOUR, "us": HOUR * 1000, "ns": HOUR * 1_000_000}
odd: st.SearchStrategy[Any] = st.sampled_from(
    [
        *(None, "2020-01-01", float("nan"), float("inf"), DatetimeMS(-(2**63)), DatetimeMS(2**63 - 1)),
        *(2**63 - 1, -(2**63), [], [1, 5], {"t": 1}, True, Decimal128("3600")),
    ]
)


def times(unit: str) -> st.SearchStrategy[Any]:
    number = hours.map(lambda it: it * PER_HOUR[unit])
    return (
        hours.map(lambda it: EPOCH + timedelta(hours=it))
        | number
        | number.map(lambda it: Int64(round(it)))
        | odd
    )


@pytest.mark.hypothesis
@settings(max_examples=examples(40), suppress_health_check=list(HealthCheck))
@given(data=st.data(), unit=st.sampled_from(list(PER_HOUR)))
def test_the_same_are_found(database: Mongo, data: st.DataObject, unit: str) -> None:
    policy, collection = policy_of(unit), database["c"]
    spans = data.draw(st.lists(st.tuples(times(unit), times(unit)), min_size=1, max_size=12))
    for length in data.draw(st.lists(st.integers(0, 300), max_size=8)):  # most are sound, and as long
        start = data.draw(hours) * PER_HOUR[unit]
        spans.append((start, start + length * PER_HOUR[unit] / 24))
    collection.delete_many({})
    for field in ("at.first", "last"):
        collection.create_index(field)
    collection.insert_many(
        [{"_id": i, "at": {"first": first}, "last": last} for i, (first, last) in enumerate(spans)]
    )
    known = Source(database, policy)
    low, high = sorted(data.draw(st.tuples(st.integers(-450, 400), st.integers(-400, 450))))
    plain, ranges = Source(database, policy), list[tuple[int, int]]()
    for _ in range(4):
        start = data.draw(st.integers((low - 9) * HOUR, (high + 9) * HOUR))
        ranges.append((start, start + data.draw(st.integers(1, (high + 20) * HOUR - start))))
    known.look_at_lengths(low * HOUR, (high + 1) * HOUR)
    before = [{*ids(plain, *it)} for it in ranges]
    more = data.draw(st.lists(st.tuples(st.integers(0, len(spans) - 1), times(unit)), max_size=4))
    for i, last in more:  # some are filled meanwhile
        collection.update_one({"_id": i}, {"$set": {"last": last}})
    for (start, end), held in zip(ranges, before, strict=True):
        now, found = {*ids(plain, start, end)}, {*ids(known, start, end)}
        arrays = _of_arrays(collection)
        assert (now & held if more else now) - arrays <= found
        assert found - arrays <= now


def _of_arrays(collection: Any) -> set[int]:
    """Buckets of which a time is an array: the server looks inside, and they break their model."""
    arrays = {"$or": [{it: {"$type": "array"}} for it in ("at.first", "last")]}
    return {it["_id"] for it in collection.find(arrays, {"_id": 1})}


@pytest.mark.parametrize("indexed", ["at.first", "last"])
def test_an_index_on_the_first_time_is_needed(database: Mongo, indexed: str) -> None:
    database["c"].create_index(indexed)
    source = Source(database, policy_of())
    source.look_at_lengths(0, DAY)
    assert (source.looked.lengths is not None) == (indexed == "at.first")


def test_too_many_are_long(database: Mongo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lengths, "MOST_LONGER", 5)
    collection = database["c"]
    collection.create_index("at.first")
    collection.insert_many({"at": {"first": i * DAY}, "last": (i + 9) * DAY} for i in range(6))
    source = Source(database, policy_of("ms"))
    source.look_at_lengths(0, 99 * DAY)
    assert source.looked.lengths is None
    collection.delete_one({"at.first": 0})
    source.look_at_lengths(0, 99 * DAY)
    assert source.looked.lengths is not None and len(source.looked.lengths.longer) == 5
    collection.update_one({}, {"$set": {"at": [{"first": 0}]}})  # no query by its value finds it
    source.look_at_lengths(0, 99 * DAY)
    assert source.looked.lengths is None


@pytest.mark.parametrize("at", [(-1, 1), (0, 10), (5, 6), (19, 21), (25, 26)])
def test_what_was_not_looked_at_is_found_as_ever(database: Mongo, at: tuple[int, int]) -> None:
    collection = database["c"]
    collection.create_index("at.first")
    spans = [(start * DAY, (start + 7) * DAY) for start in (-1, 3, 18, 20)]
    collection.insert_many({"_id": i, "at": {"first": it[0]}, "last": it[1]} for i, it in enumerate(spans))
    source = Source(database, policy_of("ms"))
    source.look_at_lengths(10 * DAY, 20 * DAY)
    assert source.looked.lengths is not None
    start, end = (it * DAY for it in at)
    found = [i for i, (first, last) in enumerate(spans) if first < end and last >= start]
    assert ids(source, start, end) == found


@pytest.mark.parametrize("ms", [0, 1, 500, 999])
@pytest.mark.parametrize("last", [6 * 3600 - 1, 6 * 3600])
def test_a_whole_second_counts_to_its_end(database: Mongo, last: int, ms: int) -> None:
    """Of the last time, which is a number of seconds. A range may begin in its middle."""
    database["c"].create_index("at.first")
    database["c"].insert_one({"_id": 1, "at": {"first": 0}, "last": last})
    source = Source(database, policy_of())
    source.look_at_lengths(-DAY, DAY)
    assert source.looked.lengths is not None and source.looked.lengths.longer == [0] * (last == 6 * 3600)
    assert ids(source, last * 1000 + ms, 7 * HOUR) == [1]


@pytest.mark.parametrize("of_dates", [True, False])
def test_a_day_in_the_middle_looks_at_no_others(database: Mongo, of_dates: bool) -> None:
    """Ten buckets an hour for 60 days, and one as long as all."""

    def time(ms: int) -> Any:
        return EPOCH + timedelta(milliseconds=ms) if of_dates else ms / 1000

    collection = database["c"]
    spans = [(hour * HOUR + i, hour * HOUR + HOUR - 10 * i) for hour in range(60 * 24) for i in range(10)]
    collection.insert_many(
        {"_id": i, "at": {"first": time(first)}, "last": time(last)}
        for i, (first, last) in enumerate([*spans, (HOUR, 60 * DAY)])
    )
    for field in ("at.first", "last"):
        collection.create_index(field)
    source = Source(database, policy_of())
    source.look_at_lengths(0, 60 * DAY)
    found = source.looked.lengths
    assert found is not None and found.longer == [time(HOUR)]
    for day in (3, 30, 57):
        start, end = day * DAY, (day + 1) * DAY
        assert len(ids(source, start, end)) == 240 + 1 + 1  # one ends as it begins
        query = found.range_query(source.model.own_form, start, end)
        told = database.command("explain", {"find": "c", "filter": query}, verbosity="executionStats")
        assert told["executionStats"]["totalDocsExamined"] <= 240 * 1.5 + 10
