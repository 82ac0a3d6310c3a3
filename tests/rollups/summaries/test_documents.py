"""Summary documents: their shape, and the state read back from them."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from typing import Any
from uuid import UUID

import bson
import numpy as np
import pytest
from bson.codec_options import CodecOptions
from bson.objectid import ObjectId
from hypothesis import given
from hypothesis import strategies as st

from bucketwise.config.models import make_policy
from bucketwise.config.policies import percentile_key
from bucketwise.rollups.statistics import statistics_of
from bucketwise.rollups.statistics.base import VarintReader, VarintWriter
from bucketwise.rollups.summaries import documents
from bucketwise.rollups.summaries.summary import State, aggregate
from tests.rollups.samples import (
    HOUR,
    POLICY,
    STATISTICS,
    Reading,
    columns_of,
    day_summary,
    hour_summary,
    readings,
)

AWARE: CodecOptions[dict[str, Any]] = CodecOptions(tz_aware=True)


def only_state(found: list[Reading]) -> State:
    ((_, _, state),) = aggregate(columns_of(found), np.array([0, HOUR]), STATISTICS)
    return state


def test_an_hours_document_in_full() -> None:
    state = only_state(
        [Reading(3, 0, 0, (1.0, None)), Reading(3, 0, 1000, (3.0, "x")), Reading(6, 0, 9, (2.0, None))]
    )
    document = bson.decode(hour_summary(POLICY, ("MDB", 7), 0, state), AWARE)
    start, end = datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, 1, tzinfo=UTC)
    p, q = document["p"], document["q"]["r"]
    assert list(document) == ["_id", "symbol", "meta", "start", "end", "count", "p", "q"]
    assert document["_id"] == {"series": {"symbol": "MDB", "meta": {"unit": 7}}, "start": start}
    assert (document["symbol"], document["meta"]) == ("MDB", {"unit": 7})
    assert (document["start"], document["end"], document["count"]) == (start, end, 3)
    assert isinstance(p.pop("state"), bytes) and isinstance(q.pop("state"), bytes)
    assert p.pop("p50") == pytest.approx(2.0, rel=0.01)
    assert p == {
        "count": 3, "sum": 6.0, "min": 1.0, "max": 3.0, "avg": 2.0, "stddev": (2 / 3) ** 0.5,
        "first": 1.0, "first_at": start, "last": 3.0, "last_at": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        "p99_9": 3.0,
    }  # fmt: skip
    assert q == {"count": 0, "sum": 0.0, "nonnumeric": 1}
    told = documents.filled(POLICY, bson.decode(hour_summary(POLICY, ("MDB", 7), 0, state)))
    p, q = told["p"], told["q"]["r"]
    nothing = ("min", "max", "avg", "stddev", "first", "first_at", "last", "last_at", "p50", "p99_9")
    del q["state"]
    assert q == {"count": 0, "sum": 0.0, **dict.fromkeys(nothing), "nonfinite": 0, "nonnumeric": 1}
    assert list(q) == list(p)[:-1]
    assert (p["nonfinite"], p["nonnumeric"]) == (0, 0)


@pytest.mark.parametrize(("hours", "kind"), [(23, int), (24.5, float)])
def test_a_days_document_tells_its_zone_and_length(hours: float, kind: type) -> None:
    state = only_state([Reading(0, 0, 0, (1.0, 1.0))])
    encoded = day_summary(POLICY, ("MDB", 7), 0, int(hours * HOUR), "Australia/Lord_Howe", state)
    document = bson.decode(encoded)
    assert list(document)[3:8] == ["start", "end", "timezone", "hours", "count"]
    assert (document["timezone"], document["hours"]) == ("Australia/Lord_Howe", hours)
    assert type(document["hours"]) is kind


@pytest.mark.parametrize(
    ("percent", "key"),
    [(50.0, "p50"), (99.9, "p99_9"), (99.99999, "p99_99999"), (100.0, "p100"), (0.5, "p0_5")],
)
def test_percentile_keys_have_no_dot(percent: float, key: str) -> None:
    assert percentile_key(percent) == key


@given(readings.filter(lambda found: any(one.time < HOUR for one in found)), st.booleans())
def test_the_state_reads_back_to_the_same_bytes(found: list[Reading], aware: bool) -> None:
    state = aggregate(columns_of(found), np.array([0, HOUR]), STATISTICS)[0][2]
    encoded = hour_summary(POLICY, ("MDB", 7), 0, state)
    read = documents.state_of(bson.decode(encoded, CodecOptions(tz_aware=aware)), POLICY)
    assert hour_summary(POLICY, ("MDB", 7), 0, read) == encoded
    assert read == state


@pytest.mark.parametrize(
    "value",
    [
        "text",
        5,
        2**40,
        -1.5,
        True,
        ObjectId(),
        UUID(int=5),
        {"a": 1, "b": "x"},
        datetime(2020, 1, 1, tzinfo=UTC),
        b"x",
    ],
)
def test_series_values_of_every_type(value: Any) -> None:
    policy = make_policy(**{**POLICY.model_dump(), "series_fields": ("meta",)})
    state = only_state([Reading(0, 0, 0, (1.0, 1.0))])
    document = bson.decode(hour_summary(policy, (value,), 0, state), documents.OPTIONS)
    assert document["meta"] == document["_id"]["series"]["meta"] == value
    assert bson.encode(document["_id"], codec_options=documents.OPTIONS) == documents.identity(
        policy, (value,), 0
    )


@pytest.mark.parametrize(
    ("state", "says"),
    [
        (None, "no state for 'p'"),
        (b"\x09", "version 9"),
        (b"\x01\x00", "version 1"),
        (b"\x02\x00", "end too early"),
        (b"", "end too early"),
    ],
)
def test_a_broken_state_is_told(state: bytes | None, says: str) -> None:
    document = bson.decode(hour_summary(POLICY, ("MDB", 7), 0, only_state([Reading(0, 0, 0, (1.0, 1.0))])))
    document["p"]["state"] = state
    with pytest.raises(ValueError, match=says):
        documents.state_of(document, POLICY)


@given(st.lists(st.integers()), st.lists(st.integers(0, 2**70)), st.binary())
def test_packed_numbers_read_back(signed: list[int], unsigned: list[int], text: bytes) -> None:
    writer = VarintWriter()
    for value in signed:
        writer.signed(value)
        writer.wide(value << 1000)
    for value in unsigned:
        writer.number(value)
    writer.string(text)
    reader = VarintReader(bytes(writer.data))
    assert [(reader.signed(), reader.wide() >> 1000) for _ in signed] == [(value, value) for value in signed]
    assert [reader.number() for _ in unsigned] == unsigned
    assert reader.string() == text
    reader.finish()


def test_bytes_too_many_are_told() -> None:
    with pytest.raises(ValueError, match="1 bytes too many"):
        VarintReader(b"\x00").finish()


def test_percentiles_take_a_few_bytes_a_bin() -> None:
    """As docs/summaries.md has it: of an hour of seconds, what `state` has more with percentiles."""
    chance = Random(1)
    hours = {
        "prices from 50 to 57": ([50 + second % 60 / 8 for second in range(3600)], 30),
        "noise over a factor of ten": ([chance.uniform(4, 40) for _ in range(3600)], 300),
        "anything": ([chance.choice((-1, 1)) * 10 ** chance.uniform(-300, 300) for _ in range(3600)], 10_000),
    }
    for name, (values, most) in hours.items():
        found = [Reading(0, 0, second * 1000, (value, None)) for second, value in enumerate(values)]
        sizes = []
        for policy in (POLICY.model_copy(update={"rollup": None}), POLICY):
            ((_, _, state),) = aggregate(columns_of(found), np.array([0, HOUR]), statistics_of(policy))
            sizes.append(len(bson.decode(hour_summary(policy, ("MDB", 7), 0, state))["p"]["state"]))
        assert 0 < sizes[1] - sizes[0] <= most, (name, sizes)
