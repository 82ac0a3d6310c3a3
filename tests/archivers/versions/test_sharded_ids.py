"""Two documents with one `_id`, as two shards may have them: a view that takes documents apart shows such to
every read, on a server that keeps `_id` unique. Nothing that goes by `_id` takes one for the other."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pymongo.database import Database

from bucketwise.archivers.restoring.put import existing_in
from bucketwise.archivers.writes import guarded_delete
from bucketwise.buckets.bson.cursor import is_sharded, keeps_ids_unique, shard_key
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.source import Source
from bucketwise.config.errors import HaltedError
from bucketwise.config.models import make_policy

Db = Database[dict[str, Any]]
AT = datetime(2018, 6, 30, tzinfo=UTC)
POLICY = make_policy(
    name="ticks",
    collection="ticks",
    model="reading",
    time_field="at",
    series_fields=("s",),
    value_fields=("v",),
)


ONE, OTHER = ({"s": name, "at": AT, "v": 1.5} for name in "ab")


@pytest.fixture
def shards(database: Db) -> Db:
    """`ticks` shows of each element of an array a document; `one` has the first of each."""
    held = {0: [ONE], 1: [ONE], 2: [ONE, OTHER], 3: [OTHER]}
    database.arrays.insert_many({"_id": number, "each": each} for number, each in held.items())
    apart = {"$replaceRoot": {"newRoot": {"$mergeObjects": [{"_id": "$_id"}, "$each"]}}}
    database.create_collection("ticks", viewOn="arrays", pipeline=[{"$unwind": "$each"}, apart])
    database.one.insert_many({"_id": number} | each[0] for number, each in held.items())
    return database


def read(database: Db, *ids: int) -> Batch:
    policy = POLICY.model_copy(update={"collection": "one"})
    return Batch.concat(list(Source(database, policy).by_ids(ids)))


def test_a_guarded_delete_halts(shards: Db) -> None:
    verified = read(shards, 1, 2)

    with pytest.raises(HaltedError, match="ticks: two documents have the _id 2, on different shards"):
        guarded_delete(shards, POLICY, verified, lambda _: None, lambda _session, _outcome: None)


def test_those_with_an_id_of_their_own_are_found(shards: Db) -> None:
    (found,) = Source(shards, POLICY).by_raw_ids(read(shards, 0, 1).main.raw_ids)
    assert len(found) == 2


def test_a_restore_sees_that_another_shard_has_the_id(shards: Db) -> None:
    with pytest.raises(HaltedError, match="_id 2"):
        existing_in(shards, "ticks", read(shards, 2).main)


def test_measurements_may_share_an_id(shards: Db) -> None:
    native = POLICY.model_copy(update={"model": "timeseries"})
    found = Source(shards, native).by_raw_ids(read(shards, 2).main.raw_ids)
    assert sum(map(len, found)) == 2


@pytest.mark.parametrize(
    ("key", "is_kept"),
    [
        ({"_id": 1}, True),
        ({"_id": "hashed"}, True),
        ({"_id.symbol": 1, "_id.day": 1}, True),
        ({"_id": 1, "symbol": 1}, False),
        ({"symbol": 1, "_id": 1}, False),
        ({"symbol": 1}, False),
        ({"_ids": 1}, False),
    ],
)
def test_which_keys_keep_ids_unique(key: dict[str, Any], is_kept: bool) -> None:
    assert keeps_ids_unique(key) == is_kept


def test_a_replica_set_is_none(database: Db) -> None:
    database.command("ping")
    assert not is_sharded(database)
    assert shard_key(database, "ticks") is None
