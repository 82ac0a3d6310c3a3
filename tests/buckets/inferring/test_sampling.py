"""A sample takes as many commands, and looks at as much, whatever the size of the collection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo import ASCENDING
from pymongo.database import Database

from bucketwise.buckets.sampling.sample import sample
from bucketwise.buckets.source import Source
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Overflow, Policy

Db = Database[dict[str, Any]]
START, MINUTE = datetime(2018, 6, 30, tzinfo=UTC), timedelta(minutes=1)
FEW, MANY = 1_000, 20_000
_COMMON: dict[str, Any] = {"name": "it", "collection": "it", "series_fields": (), "value_fields": ("p",)}
READING = make_policy(**_COMMON, model="reading", time_field="d")
SAMPLES = make_policy(
    **_COMMON, model="samples", samples_field="s", sample_time_field="t", start_field="a", end_field="d"
)
TIMESERIES = READING.model_copy(update={"model": "timeseries"})


def load(database: Db, count: int, index: bool, **more: Any) -> None:
    for at in range(0, count, 50_000):
        found = range(at, min(count, at + 50_000))
        database["it"].insert_many({"_id": i, "d": START + i * MINUTE, "p": 1.5, **more} for i in found)
    if index:
        database["it"].create_index("d")


@contextmanager
def profiled(database: Db) -> Iterator[Counter[str]]:
    """Counts the commands, and the documents that they looked at, as MongoDB has it."""
    found: Counter[str] = Counter()
    database.command("profile", 2)
    try:
        yield found
    finally:
        database.command("profile", 0)
    for it in database["system.profile"].find({"ns": {"$ne": f"{database.name}.system.profile"}}):
        if "profile" not in it.get("command", {}):
            found[it["op"] if it["op"] != "command" else next(iter(it["command"]))] += 1
            found["documents"] += it.get("docsExamined", 0)
    database["system.profile"].drop()


def sampled(database: Db, policy: Policy) -> tuple[Counter[str], list[Any]]:
    with profiled(database) as found:
        batch = sample(Source(database, policy))
    return found, [batch.main.decode_id(i) for i in range(len(batch))]


@pytest.mark.parametrize("index", [True, False], ids=["index", "no index"])
@pytest.mark.parametrize("policy", [READING, SAMPLES], ids=["reading", "samples"])
def test_costs_the_same_however_large_the_collection_is(database: Db, policy: Policy, index: bool) -> None:
    load(database, FEW, index)
    few, _ = sampled(database, policy)
    database["it"].drop()
    load(database, MANY, index)
    many, ids = sampled(database, policy)
    assert few == many
    assert few["query"] + few["getmore"] <= 7
    assert 0 < few["documents"] <= 1000
    middle = range(MANY // 2, MANY // 2 + 250) if index else ()
    assert sorted(ids) == [*range(250), *middle, *range(MANY - 250, MANY)]


def test_a_small_collection_is_read_whole(database: Db) -> None:
    load(database, 300, index=True)
    _, ids = sampled(database, READING)
    assert sorted(ids) == list(range(300))
    database["it"].drop()
    assert sampled(database, READING)[1] == []


def test_large_buckets_are_few(database: Db) -> None:
    load(database, 40, index=True, blob=b"x" * 1_000_000)
    _, ids = sampled(database, READING)
    assert {0, 39} < set(ids)
    assert len(ids) <= 16


def test_what_has_no_time_is_seen_as_well(database: Db) -> None:
    database["it"].insert_many({"_id": i} for i in range(400))
    database["it"].create_index("d")
    assert len(sampled(database, READING)[1]) == 250


def test_a_view_has_neither_index_nor_order(database: Db) -> None:
    database["beneath"].insert_many({"_id": i, "d": START} for i in range(300))
    database.command("create", "it", viewOn="beneath", pipeline=[])
    assert len(sampled(database, READING)[1]) == 250


def test_a_native_time_series_collection(database: Db) -> None:
    database.create_collection("it", timeseries={"timeField": "d"})
    load(database, 3000, index=False)
    _, ids = sampled(database, TIMESERIES)
    assert {0, 2999} < set(ids)
    assert 500 < len(ids) <= 1000


def test_few_of_those_that_have_overflow(database: Db) -> None:
    overflow = Overflow(flag_field="more", collection="it_more", ref_field="of", samples_field="s")
    load(database, 100, index=True, more=True)
    database["it_more"].insert_many({"of": i, "s": []} for i in range(100))
    database["it_more"].create_index([("of", ASCENDING)])
    policy = SAMPLES.model_copy(update={"overflow": overflow})
    batch = sample(Source(database, policy))
    assert len(batch) == len(batch.extra) == 10
