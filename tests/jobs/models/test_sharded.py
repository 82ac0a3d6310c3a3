"""What verbs do through a mongos, as far as a driver that takes the server for one shows it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.uri_parser import parse_uri

from bucketwise.buckets.source import Source
from tests.jobs.counting import Counts, ticks_policy
from tests.jobs.mongos import mongos
from tests.jobs.place import MINUTES, Place


@pytest.fixture
def sharded(place: Place) -> Iterator[Place]:
    """The same place through a mongos. The collection of ticks is sharded by its symbol."""
    config = place.database.client["config"]["collections"]
    namespaces = [f"{place.database.name}.{it}" for it in ("ticks", "iot")]
    config.insert_many(
        {"_id": it, "key": key}
        for it, key in zip(namespaces, ({"symbol": 1, "d": 1}, {"_id": "hashed"}), strict=True)
    )
    with mongos(parse_uri(place.uri)["nodelist"][0]) as port:
        yield replace(place, uri=f"mongodb://127.0.0.1:{port}/")
    config.delete_many({"_id": {"$in": namespaces}})


def documents(place: Place, name: str) -> list[dict[str, Any]]:
    return list(place.database[name].find().sort("_id", 1))


@pytest.mark.proof
def test_the_whole_cycle(sharded: Place) -> None:
    ticks, iot = documents(sharded, "ticks"), documents(sharded, "iot")
    ran = sharded("run", "--json")
    assert ran.code == 0
    assert ran.policy("ticks")["archive"]["deleted"] == len(ticks)
    assert documents(sharded, "ticks") == []
    assert documents(sharded, "iot_archive") == iot
    late = {**ticks[0], "_id": 1}
    sharded.database.ticks.insert_one(late)
    assert sharded("run", "--json").policy("ticks")["rollup"]["late"]["mode"] == "stream"
    assert sharded("audit", "--json").code == 0
    again = sharded(
        "restore", "-p", "ticks", "--since", "2018-06-30", "--until", "2018-07-01", "--to", "ticks"
    )
    assert again.code == 0
    assert documents(sharded, "ticks") == [late, *ticks]


def test_check_warns(sharded: Place) -> None:
    ran = sharded("check", "--json", now=None)
    assert [it["severity"] for it in ran.json["findings"] if it["code"] == "replica-set"] == ["warning"]
    (found,) = [it for it in ran.policy("ticks")["findings"] if it["severity"] != "ok"]
    assert found["code"] == "sharded-id"
    assert found["severity"] == "warning"
    assert "symbol, d" in found["message"]
    assert [it["code"] for it in ran.policy("iot")["findings"]] == ["policy"]  # its key is the `_id`


def test_buckets_are_counted_one_by_one(sharded: Place) -> None:
    """And not as MongoDB estimates, which counts what a migration has left behind."""
    policy = ticks_policy(to="offline")
    counted = Counts()
    with MongoClient[dict[str, Any]](sharded.uri, event_listeners=[counted]) as client:
        client.admin.command("ping")
        assert Source(client[sharded.database.name], policy).count() == MINUTES
    assert not counted.commands["count"]
