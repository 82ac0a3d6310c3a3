"""A node that does not know yet what a majority holds, as each new primary: reads wait until it does."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from bson.timestamp import Timestamp
from pydantic import SecretStr
from pymongo import MongoClient, WriteConcern
from pymongo.database import Database
from pymongo.read_concern import ReadConcern

from bucketwise.archivers.context import Connections
from bucketwise.config.policies import Settings
from bucketwise.config.tables import MongoDB
from bucketwise.jobs.core.connect import connect, seen_by
from bucketwise.jobs.core.workers import WorkerSettings, do
from tests.faults.mongods import Node, Servers, servers

pytestmark = [pytest.mark.process, pytest.mark.proof]

Document = dict[str, Any]
Mongo = Database[Document]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with servers(tmp_path_factory.mktemp("new"), 3) as it:
        yield it


@contextmanager
def held_back(node: Node) -> Iterator[None]:
    """The node fetches nothing from the primary."""
    with node.client() as client:
        client.admin.command({"configureFailPoint": "stopReplProducer", "mode": "alwaysOn"})
        try:
            yield
        finally:
            client.admin.command({"configureFailPoint": "stopReplProducer", "mode": "off"})


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
    where = WorkerSettings.of(Settings(mongodb=mongodb, policies={}, path=Path("it.toml")), database)
    return do(pickle.loads(pickle.dumps(where)), _ids).get()


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
                held.enter_context(held_back(node))
            with other.start_session() as session:
                alone = other["it"].get_collection("c", write_concern=WriteConcern(1))
                alone.insert_one({"_id": 2}, session=session)
                written = session.operation_time
            majority = other["it"].get_collection("c", read_concern=ReadConcern("majority"))
            assert [it["_id"] for it in majority.find()] == [1], "no majority has it"
            seen_by(database).advance(written)
            reading = threading.Thread(target=lambda: found.append(read(database, three.uri)))
            reading.start()
            reading.join(1)
            assert reading.is_alive()
        reading.join(30)
        assert found == [[1, 2]]


def test_what_a_majority_answered_is_seen(three: Servers) -> None:
    settings = MongoDB(uri=SecretStr(three.uri), database="it")
    with connect(settings) as client, connect(settings) as other:
        database, times = client["it"], list[Timestamp | None]()

        def looked() -> bool:
            """Whether anything was seen since the last look."""
            times.append(seen_by(database).time)
            return len(times) > 1 and times[-1] != times[-2]

        def noise() -> None:
            other["it"]["noise"].insert_one({})

        looked()
        database["d"].insert_one({"_id": 1})
        assert looked()
        noise()
        with client.start_session() as session, session.start_transaction():
            database["d"].update_one({"_id": 1}, {"$set": {"v": 1}}, session=session)
            assert not looked(), "one node alone knows of it"
        assert looked()
        noise()
        database["d"].index_information()
        assert not looked(), "nor of this"
        for read in (lambda: database["d"].find_one(), lambda: database["d"].count_documents({})):
            noise()
            read()
            assert looked()
        noise()
        with database["d"].watch(max_await_time_ms=1) as stream:
            assert looked()
            noise()
            stream.try_next()
            assert looked()
