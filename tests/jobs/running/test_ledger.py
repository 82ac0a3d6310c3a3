"""The ledger on a real mongod: what it keeps, and which unended runs it takes for dead."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import AutoReconnect
from pymongo.monitoring import CommandListener, CommandStartedEvent

from bucketwise.jobs.core import lease, ledger, machine
from bucketwise.jobs.core.lease import Lease
from bucketwise.jobs.core.ledger import Ledger
from bucketwise.jobs.core.machine import this_run
from tests.examples import examples

Db = Database[dict[str, Any]]
NOW = datetime(2018, 9, 1, tzinfo=UTC)


def test_a_run_is_entered_at_its_start_and_finished_at_its_end(database: Db) -> None:
    book = Ledger(database)
    with Lease(database, "ticks") as held:
        entry = book.start(this_run("r1", None), "run", "ticks", NOW, held)
        (running,) = book.last_runs("ticks", 5)
        assert (running.outcome, running.ended, running.exit_code) == ("running", None, None)
        assert (running.run, running.verb, running.policy) == ("r1", "run", "ticks")
        book.finish(entry, 1, "failed", {"archive": {"deleted": 3}}, "at mongodb://me:hunter2@h/")
    (ended,) = book.last_runs("ticks", 5)
    assert (ended.outcome, ended.exit_code) == ("failed", 1)
    assert ended.counts == {"archive": {"deleted": 3}}
    assert ended.error == "at mongodb://***@h/"
    assert ended.ended is not None
    assert ended.started <= ended.ended
    document = database[ledger.COLLECTION].find_one()
    assert document is not None
    assert document["host"] == machine.this_process()
    assert (document["holder"], document["fence"], document["now"]) == (held.holder, held.fence, NOW)


def test_its_indexes_are_looked_at_by_a_policy_s_first_run_and_now_and_then(database: Db) -> None:
    runs, leases = database[ledger.COLLECTION], database[lease.COLLECTION]
    looked_at = set()
    for fence in (1, 2, 100, 101, 102, 201):
        leases.replace_one({"_id": "ticks"}, {"fence": fence - 1}, upsert=True)
        with Lease(database, "ticks") as held:
            Ledger(database).start(this_run("r", None), "run", "ticks", NOW, held)
        if len(runs.index_information()) > 2:
            looked_at.add(held.fence)
            runs.drop_indexes()
    assert looked_at == {1, 101, 201}


def test_the_last_runs_come_newest_first_and_by_policy(database: Db) -> None:
    book = Ledger(database)
    with Lease(database, "ticks") as held:
        for name in ("r1", "r2", "r3"):
            book.finish(book.start(this_run(name, None), "run", "ticks", NOW, held), 0, "done", {}, None)
        book.start(this_run("other", None), "run", "iot", NOW, held)
    assert [run.run for run in book.last_runs("ticks", 2)] == ["r3", "r2"]


def test_a_run_whose_lease_has_ended_has_died(database: Db) -> None:
    """Also on another machine, of whose processes nothing is known here."""
    book = Ledger(database)
    with Lease(database, "ticks") as held:
        book.start(this_run("r1", None), "run", "ticks", NOW, held)
        database[ledger.COLLECTION].update_one({}, {"$set": {"host.boot_id": "another"}})
        assert book.last_runs("ticks", 1)[0].outcome == "running"
        expired = datetime.now(UTC) - timedelta(days=1)
        database[lease.COLLECTION].update_one({}, {"$set": {"expires_at": expired}})
        assert book.last_runs("ticks", 1)[0].outcome == "died"
    with Lease(database, "ticks"):  # the next holder's lease is not the dead one's
        assert book.last_runs("ticks", 1)[0].outcome == "died"


def test_a_run_whose_process_is_gone_has_died(database: Db) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    book = Ledger(database)
    with Lease(database, "ticks") as held:
        book.start(this_run("r1", None), "run", "ticks", NOW, held)
        database[ledger.COLLECTION].update_one({}, {"$set": {"host.pid": gone.pid}})
        assert book.last_runs("ticks", 1)[0].outcome == "died"


def test_who_takes_the_lease_marks_what_died_before(database: Db) -> None:
    """However many there are. One that only slept still says how it ended."""
    book = Ledger(database)
    with Lease(database, "ticks") as held:
        slept, _ = [book.start(this_run(name, None), "run", "ticks", NOW, held) for name in ("r1", "r2")]
        elsewhere = book.start(this_run("r3", None), "run", "iot", NOW, held)
    with Lease(database, "ticks") as held:
        now = book.start(this_run("r4", None), "run", "ticks", NOW, held)
        assert book.start(this_run("r5", None), "run", "ticks", NOW, held)
        assert [run.outcome for run in book.last_runs("ticks", 0)] == ["running", "running", "died", "died"]
    runs = {it["_id"]: it["outcome"] for it in database[ledger.COLLECTION].find()}
    assert (runs[slept], runs[elsewhere], runs[now]) == ("died", "running", "running")
    book.finish(slept, 11, "held elsewhere", {}, None)
    assert book.last_runs("ticks", 0)[3].outcome == "held elsewhere"


def test_completed_is_what_ended_without_failing(database: Db) -> None:
    book = Ledger(database)
    assert book.last_completed("ticks", "run") is None
    with Lease(database, "ticks") as held:
        started = {}
        for name, verb, code in [("a", "run", 0), ("b", "run", 3), ("c", "run", 1), ("d", "rollup", 0)]:
            book.finish(book.start(this_run(name, None), verb, "ticks", NOW, held), code, "x", {}, None)
            started[name] = book.last_runs("ticks", 1)[0].started
        book.start(this_run("e", None), "run", "ticks", NOW, held)
    assert book.last_completed("ticks", "run") == started["b"]
    assert book.last_completed("iot", "run") is None


def test_a_run_of_the_future_is_not_the_last_one(database: Db) -> None:
    """A wrong clock dated it; the service must not wait until then."""
    book = Ledger(database)
    with Lease(database, "ticks") as held:
        for name in ("r1", "r2"):
            book.finish(book.start(this_run(name, None), "run", "ticks", NOW, held), 0, "done", {}, None)
    first = book.last_runs("ticks", 2)[1].started
    wrong = datetime.now(UTC) + timedelta(days=3650)
    database[ledger.COLLECTION].update_one({"run": "r2"}, {"$set": {"started": wrong}})
    assert book.last_completed("ticks", "run") == first


NOTHING = {"rollup": {"hourly": {"written": 0}, "late": {"mode": "stream", "events": 0, "reason": None}}}
WAITING = {
    **NOTHING,
    "expiry": {"hourly": 0, "waiting": {"hourly": 2}},
    "archive_expiry": {"standing": {"days": 1}},
}
SOMETHING = {"rollup": {"hourly": {"written": 1}, "late": {"mode": "stream", "events": 0, "reason": None}}}


def run_once(
    database: Db, verb: str = "run", code: int = 0, counts: dict[str, Any] = NOTHING, policy: str = "ticks"
) -> None:
    """Enters a run, and says how it ended, as the runner does."""
    book = Ledger(database)
    with Lease(database, policy) as held:
        entry = book.start(this_run(uuid4().hex, None), verb, policy, NOW, held)
        book.finish(entry, code, "done", counts, None if code == 0 else "it failed")
        if code in ledger.COMPLETED:
            book.remove_old(verb, held, timedelta(days=90))


@settings(max_examples=examples(10))
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["run", "rollup"]),
            st.sampled_from([0, 0, 0, 3, 1]),
            st.sampled_from([NOTHING, WAITING, SOMETHING, {"archive": {"bytes": 0.5}}, {}]),
        ),
        max_size=8,
    )
)
def test_consecutive_runs_that_did_nothing_share_an_entry(
    database: Db, runs: list[tuple[str, int, dict[str, Any]]]
) -> None:
    policy = uuid4().hex
    for verb, code, counts in runs:
        run_once(database, verb, code, counts, policy)
    expected: list[list[Any]] = []
    for verb, code, counts in runs:
        idle = code == 0 and counts in (NOTHING, WAITING, {})
        if idle and expected and expected[-1][:2] == [verb, True]:
            expected[-1][2] += 1
        else:
            expected.append([verb, idle, 1])
    found = Ledger(database).last_runs(policy, 0)[::-1]
    assert [[it.verb, it.runs] for it in found] == [[verb, count] for verb, _, count in expected]
    for it in found:
        assert it.since == it.started if it.runs == 1 else it.since < it.started
    for earlier, later in itertools.pairwise(found):
        assert earlier.started < later.since


def test_what_is_told_of_several_runs_is_of_the_last_one(database: Db) -> None:
    run_once(database)
    (first,) = Ledger(database).last_runs("ticks", 5)
    run_once(database)
    run_once(database)
    run_once(database, policy="iot")
    (all_three,) = Ledger(database).last_runs("ticks", 5)
    assert (all_three.runs, all_three.since) == (3, first.started)
    assert all_three.run != first.run and all_three.ended is not None
    assert all_three.started > first.started
    assert Ledger(database).last_completed("ticks", "run") == all_three.started


def test_a_run_that_still_works_shares_nothing(database: Db) -> None:
    book = Ledger(database)
    with Lease(database, "ticks") as slept:
        entry = book.start(this_run("slept", None), "run", "ticks", NOW, slept)
    run_once(database)
    assert [(it.outcome, it.runs) for it in book.last_runs("ticks", 5)] == [("done", 1), ("died", 1)]
    book.finish(entry, 0, "done", NOTHING, None)
    run_once(database)
    assert [(it.outcome, it.runs) for it in book.last_runs("ticks", 5)] == [("done", 2), ("done", 1)]


def test_no_run_counts_twice_where_entries_are_not_joined_after_all(
    database: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise AutoReconnect("gone")

    run_once(database)
    with monkeypatch.context() as patch:
        patch.setattr(Collection, "delete_one", fail)
        with pytest.raises(AutoReconnect):
            run_once(database)
    assert [(it.outcome, it.runs) for it in Ledger(database).last_runs("ticks", 5)] == [("done", 1)] * 2
    run_once(database)
    assert [it.runs for it in Ledger(database).last_runs("ticks", 5)] == [2, 1]


def age(database: Db, days: float, **which: Any) -> None:
    """Makes entries older."""
    for entry in database[ledger.COLLECTION].find(which):
        older = {"started": entry["started"] - timedelta(days=days)}
        database[ledger.COLLECTION].update_one({"_id": entry["_id"]}, {"$set": older})


def next_fence(database: Db, fence: int, policy: str = "ticks") -> None:
    database[lease.COLLECTION].replace_one({"_id": policy}, {"fence": fence - 1}, upsert=True)


def ages(database: Db) -> list[str]:
    return [str(it["run"]) for it in database[ledger.COLLECTION].find({"run": {"$regex": "^old"}})]


def fill(database: Db, count: int, policy: str = "ticks", verb: str = "run", code: int = 3) -> None:
    """Enters so many runs of a hundred days ago, and some a second apart."""
    started = datetime.now(UTC) - timedelta(days=100)
    fixed = {"verb": verb, "policy": policy, "ended": started, "exit_code": code, "outcome": "failed"}
    fixed |= {"counts": {}, "error": "it failed", "host": {}, "holder": "x", "version": "0", "now": NOW}
    database[ledger.COLLECTION].insert_many(
        {"run": f"old {i}", "fence": i, "started": started + timedelta(seconds=i), **fixed}
        for i in range(count)
    )


def test_old_entries_go_in_pieces_the_oldest_first(database: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MOST_REMOVED", 4)
    fill(database, 10)
    fill(database, 2, policy="iot")
    left = ["old 4", "old 5", "old 6", "old 7", "old 8", "old 9"]
    for fence, gone in ((1023, 0), (1024, 0), (1033, 0), (1034, 4), (1045, 6)):
        next_fence(database, fence)
        run_once(database)
        assert ages(database) == [*left[gone:], "old 0", "old 1"], fence


def test_younger_entries_stay(database: Db) -> None:
    fill(database, 3)
    age(database, -10.5)
    next_fence(database, 1111)
    run_once(database)
    assert len(ages(database)) == 3
    age(database, 1)
    next_fence(database, 1122)
    run_once(database)
    assert ages(database) == []


def test_forever_keeps_them(database: Db) -> None:
    fill(database, 3)
    with Lease(database, "ticks") as held:
        held.fence = 11
        Ledger(database).remove_old("run", held, None)
        assert len(ages(database)) == 3
        Ledger(database).remove_old("run", held, timedelta(days=90))
        assert ages(database) == []


def test_a_clock_that_is_ahead_removes_nothing(database: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(database, 3)
    age(database, -99)
    now = datetime.now(UTC)
    monkeypatch.setattr("bucketwise.jobs.core.clock.current", lambda: now + timedelta(days=3650))
    next_fence(database, 1111)
    run_once(database)
    assert len(ages(database)) == 3


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(
    ("verb", "left"), [("run", []), ("restore", ["run"]), ("rollup", ["run", "restore"])]
)
def test_the_last_one_completed_stays_and_run_removes_those_of_all_verbs(
    database: Db, verb: str, left: list[str]
) -> None:
    """A schedule asks for the last `run`; and only `run` and their own verb finish what others left."""
    fill(database, 2, verb="run", code=0)
    fill(database, 2, verb="restore")
    next_fence(database, 1111)
    run_once(database, verb)
    old = database[ledger.COLLECTION].find({"run": {"$regex": "^old"}})
    assert sorted({it["verb"] for it in old}, reverse=True) == left
    assert Ledger(database).last_completed("ticks", "run") is not None


class _Commands(CommandListener):
    def __init__(self) -> None:
        self.names: list[str] = []

    def started(self, event: CommandStartedEvent) -> None:
        named = event.command.get(event.command_name)
        if named == ledger.COLLECTION or event.command_name == "commitTransaction":
            self.names.append(event.command_name)

    def succeeded(self, _event: object) -> None: ...

    def failed(self, _event: object) -> None: ...


@contextmanager
def watched(uri: str, name: str) -> Iterator[tuple[Db, Callable[[], tuple[list[str], int]]]]:
    """A database, and what tells the commands to the ledger, and how many entries the server looked at."""
    listener = _Commands()
    with MongoClient[dict[str, Any]](uri, tz_aware=True, event_listeners=[listener]) as client:
        database = client[name]
        database.command("profile", 2)

        def told() -> tuple[list[str], int]:
            database.command("profile", 0)
            looked = {"ns": f"{name}.{ledger.COLLECTION}"}
            return listener.names, sum(
                it.get("docsExamined", 0) for it in database["system.profile"].find(looked)
            )

        yield database, told


def costs(database: Db, uri: str, entries: int) -> tuple[list[str], int]:
    """What runs that do and don't do anything, and who asks for them, cost beside so many entries."""
    database[ledger.COLLECTION].drop()
    fill(database, entries)
    age_of_all = {"started": datetime.now(UTC) - timedelta(days=80)}
    database[ledger.COLLECTION].update_many({"fence": {"$gte": 8}}, {"$set": age_of_all})
    next_fence(database, 100_001)
    run_once(database, "rollup")
    for fence in (100_001, 100_012):  # indexes; one that removes
        next_fence(database, fence)
        run_once(database)
    database["system.profile"].drop()
    with watched(uri, database.name) as (same, told):
        for fence in (100_023, 100_034, 100_035):
            next_fence(same, fence)
            run_once(same, counts=SOMETHING if fence % 2 else NOTHING)
        run_once(same)
        book = Ledger(same)
        assert len(book.last_runs("ticks", 5)) == 5
        assert book.last_completed("ticks", "run") is not None
        assert book.last_completed("ticks", "archive") is None
        next_fence(same, 100_045)
        with Lease(same, "ticks") as held:
            book.remove_old("archive", held, timedelta(days=70))
        assert book.runs_under("ticks", [5]) == {}
        return told()


@pytest.mark.proof
def test_what_a_run_costs_does_not_grow_with_the_ledger(database: Db, mongodb_uri: str) -> None:
    few, many = (costs(database, mongodb_uri, entries) for entries in (10, 10_000))
    assert few == many
    assert few[0]
