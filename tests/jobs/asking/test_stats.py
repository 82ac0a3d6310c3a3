"""What the policies are worth, against what lies there."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import encode
from pymongo.database import Database

from bucketwise.archivers.stores.file import FileStore
from bucketwise.jobs.stats import STATS
from tests.jobs.counting import CountingStore, run_counted, ticks_policy
from tests.jobs.place import Place
from tests.jobs.states import after

Document = dict[str, Any]


def sizes(place: Place, *names: str) -> int:
    return sum(len(encode(it)) for name in names for it in place.database[name].find())


def stats(place: Place, policy: str) -> Document:
    done = place("stats", "--json")
    assert done.code == 0, done
    return done.policy(policy)


def test_all_is_live_before_the_first_run(place: Place) -> None:
    told = stats(place, "ticks")
    data = sizes(place, "ticks")
    assert told["now"]["data_bytes"] == told["before"]["data_bytes"] == data
    assert told["now"]["index_bytes"] == told["before"]["index_bytes"] > 0
    assert told["removed_bytes"] == told["now"]["store_bytes"] == told["now"]["summary_bytes"] == 0
    lasts = 179 * 60  # from the first bucket to the last
    month = data * 30 * 86_400 / lasts
    share = told["before"]["index_bytes"] / data
    assert abs(told["forecast"]["without"] / (month * (1 + share)) - 1) < 0.001


@pytest.mark.proof
def test_what_a_run_removes_is_told(place: Place) -> None:
    data = {name: sizes(place, name) for name in ("ticks", "iot")}
    ran = place("run", "--json")
    assert ran.code == 0, ran
    for name in ("ticks", "iot"):
        told = stats(place, name)
        assert told["removed_bytes"] == data[name] == ran.policy(name)["archive"]["removed_bytes"]
        assert told["now"]["data_bytes"] == 0
        assert told["before"]["data_bytes"] == data[name]
        assert told["before"]["store_bytes"] == told["before"]["summary_bytes"] == 0
        worth = ran.policy(name)["worth"]
        for it in (worth, told):  # what an index takes on disk changes with the server's next checkpoint
            assert it["now"].pop("summary_bytes") > 0
            assert it["forecast"].pop("with") > 0
        assert {key: told[key] for key in worth} == worth
    ticks, iot = stats(place, "ticks"), stats(place, "iot")
    assert ticks["now"]["store_bytes"] == ran.policy("ticks")["archive"]["bytes"] > 0
    assert iot["now"]["store_bytes"] > sizes(place, "iot_archive") > 0
    summaries = sizes(place, "ticks_hourly", "ticks_daily")
    assert summaries < ticks["now"]["summary_bytes"]
    assert ticks["forecast"]["with"] > 0 and ticks["forecast"]["without"] > 0


@pytest.mark.proof
@after("run")
def test_what_is_live_again_is_not_removed(place: Place) -> None:
    before = {name: stats(place, name) for name in ("ticks", "iot")}
    for name in before:
        for _ in range(2):  # what is live already is not subtracted again
            assert place("restore", "-p", name, "--to", name).code == 0
        told = stats(place, name)
        assert told["removed_bytes"] == 0
        assert told["now"]["data_bytes"] == before[name]["removed_bytes"] == sizes(place, name)
        assert told["before"]["data_bytes"] == before[name]["before"]["data_bytes"]
        assert place("unpin", "-p", name).code == 0
    assert place("run").code == 0
    assert {name: stats(place, name)["removed_bytes"] for name in before} == {
        name: told["removed_bytes"] for name, told in before.items()
    }


@after("run")
def test_where_an_earlier_version_has_deleted_the_archive_tells(place: Place) -> None:
    before = {name: stats(place, name)["removed_bytes"] for name in ("ticks", "iot")}
    place.database.bucketwise_receipts.update_many({}, {"$unset": {"removed": ""}})
    assert {name: stats(place, name)["removed_bytes"] for name in before} == before


@after("run")
def test_people_read_a_sentence(place: Place) -> None:
    printed = place("stats").out
    assert "2 policies: " in printed
    assert "without bucketwise" in printed and "a month adds" in printed


def test_it_costs_the_same_however_much_there_is(
    database: Database[Document], mongodb_uri: str, tmp_path: Any
) -> None:
    """Commits of months that are long past are added up by the server; the store is not asked."""
    policy = ticks_policy(to="offline")
    database.ticks.create_index("d")
    now = datetime(2026, 3, 1, tzinfo=UTC)
    costs = []
    for buckets in (1, 400):
        several = [now - timedelta(hours=it) for it in range(database.ticks.count_documents({}), buckets)]
        database.ticks.insert_many({"symbol": "A", "d": at, "p": {"0": 1.0}} for at in several)
        store = CountingStore(FileStore(tmp_path))
        (result,), counts = run_counted(
            mongodb_uri, database.name, [STATS], [policy], store, now, dry_run=True
        )
        assert result.exit_code == 0, result
        assert result.body["now"]["data_bytes"] > 0
        costs.append(
            (Counter(counts.commands), counts.documents, store.asked["listed"], store.asked["get_bytes"])
        )
    assert costs[0] == costs[1]
    assert sum(costs[0][0].values()) <= 30 and costs[0][2:] == (0, 0)
