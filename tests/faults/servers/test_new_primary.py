"""A node that does not know yet what a majority holds, as each new primary: reads wait until it does."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from bson.timestamp import Timestamp
from pydantic import SecretStr
from pymongo import MongoClient, WriteConcern
from pymongo.database import Database
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern

from bucketwise.archivers.context import Connections
from bucketwise.buckets.bson.cursor import find_raw
from bucketwise.config.policies import Settings
from bucketwise.config.tables import MongoDB
from bucketwise.jobs.core.connect import connect, seen_by
from bucketwise.jobs.core.workers import ProcessExecutor, WorkerSettings
from tests.faults.mongods import Servers, servers, stale

pytestmark = [pytest.mark.process, pytest.mark.proof]

Document = dict[str, Any]
Mongo = Database[Document]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with servers(tmp_path_factory.mktemp("new"), 3) as it:
        yield it


def by_find(database: Mongo, _uri: str = "") -> list[int]:
    return [it["_id"] for it in database["c"].find()]


def by_aggregate(database: Mongo, _uri: str) -> list[int]:
    return [it["_id"] for it in database["c"].aggregate([{"$match": {}}])]


def by_snapshot(database: Mongo, _uri: str) -> list[int]:
    """At one instant, twice."""
    with database.client.start_session(snapshot=True) as session:
        found = [[it["_id"] for it in database["c"].find(session=session)] for _ in range(2)]
    assert found[0] == found[1]
    return found[0]


def by_worker(database: Mongo, uri: str) -> list[int]:
    """In another process, which has read nothing yet."""
    mongodb = MongoDB(uri=SecretStr(uri), database="it")
    where = WorkerSettings.of(Settings(mongodb=mongodb, policies={}, path=Path("it.toml")))
    with closing(ProcessExecutor(1, 0, where, database)) as executor:
        return executor.submit(_ids).result()


def _ids(connections: Connections) -> list[int]:
    return by_find(connections.database)


@pytest.mark.parametrize("read", [by_find, by_aggregate, by_snapshot, by_worker])
def test_a_read_waits_for_what_was_seen(three: Servers, read: Callable[[Mongo, str], list[int]]) -> None:
    settings, found = MongoDB(uri=SecretStr(three.uri), database="it"), list[list[int]]()
    with connect(settings) as client, MongoClient[Document](three.uri) as other:
        database = client["it"]
        database["c"].drop()
        database["c"].insert_one({"_id": 1})
        assert read(database, three.uri) == [1]
        with ExitStack() as held:
            for node in three.secondaries:
                held.enter_context(stale(node))
            with other.start_session() as session:
                alone = other["it"].get_collection("c", write_concern=WriteConcern(1))
                alone.insert_one({"_id": 2}, session=session)
                written, other_time = session.operation_time, session.cluster_time
            majority = other["it"].get_collection("c", read_concern=ReadConcern("majority"))
            assert [it["_id"] for it in majority.find()] == [1], "no majority has it"
            seen_by(database).advance(written, other_time)
            reading = threading.Thread(target=lambda: found.append(read(database, three.uri)))
            reading.start()
            reading.join(1)
            assert reading.is_alive()
        reading.join(30)
        assert found == [[1, 2]]


def test_what_a_worker_saw_is_seen(three: Servers) -> None:
    settings = MongoDB(uri=SecretStr(three.uri), database="it")
    with connect(settings) as client, connect(settings) as other:
        other["it"]["c"].insert_one({})
        where = WorkerSettings.of(Settings(mongodb=settings, policies={}, path=Path("it.toml")))
        with closing(ProcessExecutor(1, 0, where, client["it"])) as executor:
            written = executor.submit(_write).result()
        assert (seen := seen_by(client["it"]).time) is not None
        assert seen >= written


def _write(connections: Connections) -> Timestamp:
    connections.database["d"].insert_one({})
    time = seen_by(connections.database).time
    assert time is not None
    return time


def test_what_a_majority_answered_is_seen(three: Servers) -> None:
    settings = MongoDB(uri=SecretStr(three.uri), database="it")
    with connect(settings) as client, connect(settings) as other:
        database, collection = client["it"], client["it"]["d"]

        def noise() -> None:
            other["it"]["noise"].insert_one({})

        def looked(at: Callable[[], object]) -> bool:
            """Whether something later is seen by it, though others have written meanwhile."""
            before = seen_by(database).time
            noise()
            at()
            return seen_by(database).time != before

        assert looked(lambda: collection.insert_many([{"v": number} for number in range(200)]))
        with client.start_session() as session, session.start_transaction():
            one = partial(collection.update_one, {"v": 1}, {"$set": {"w": 1}}, session=session)
            assert not looked(one), "one node alone knows of it"
            assert not looked(lambda: collection.find(session=session).batch_size(9).to_list())
            assert looked(session.commit_transaction)
        assert not looked(collection.index_information)
        assert looked(collection.find_one)
        assert looked(partial(collection.count_documents, {}))
        assert looked(lambda: list(find_raw(collection, {})))
        assert pickle.loads(pickle.dumps(seen_by(database))).time == seen_by(database).time
        with client.start_session(snapshot=True, causal_consistency=False) as session:
            assert looked(partial(collection.find_one, session=session))
            again = collection.find(session=session).batch_size(9).to_list
            assert not looked(again), "it is of the same instant"
        with collection.watch(max_await_time_ms=1) as stream:
            assert looked(stream.try_next)


def test_what_no_majority_took_is_not_seen(three: Servers) -> None:
    """A read would wait for it."""
    settings = MongoDB(uri=SecretStr(f"{three.uri}&wTimeoutMS=100"), database="it")
    with connect(settings) as client:
        collection = client["it"]["e"]
        collection.insert_many([{"_id": 1}, {"_id": 4}])
        with ExitStack() as held:
            for node in three.secondaries:
                held.enter_context(stale(node))
            for documents in ([{"_id": 2}], [{"_id": 1}, {"_id": 3}]):
                with pytest.raises(PyMongoError):
                    collection.insert_many(documents, ordered=False)
            with client.start_session(snapshot=True) as session:
                read = collection.find(session=session, max_time_ms=5_000).batch_size(1)
                assert [it["_id"] for it in read] == [1, 4]
            local = collection.with_options(read_concern=ReadConcern("local"))
            assert len(local.find().batch_size(1).to_list()) == 4
            assert [it["_id"] for it in collection.find(max_time_ms=5_000)] == [1, 4]
