"""The ledger on a real mongod: what it keeps, and which unended runs it takes for dead."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

from pymongo.database import Database

from jobs.running import lease, ledger, machine
from jobs.running.lease import Lease
from jobs.running.ledger import Ledger

Db = Database[dict[str, Any]]
NOW = datetime(2018, 9, 1, tzinfo=UTC)


def test_a_run_is_entered_at_its_start_and_finished_at_its_end(database: Db) -> None:
    book = Ledger(database)
    with Lease(database, "ticks") as held:
        entry = book.start("r1", "run", "ticks", NOW, held)
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
            Ledger(database).start("r", "run", "ticks", NOW, held)
        if len(runs.index_information()) > 2:
            looked_at.add(held.fence)
            runs.drop_indexes()
    assert looked_at == {1, 101, 201}


def test_the_last_runs_come_newest_first_and_by_policy(database: Db) -> None:
    book = Ledger(database)
    with Lease(database, "ticks") as held:
        for name in ("r1", "r2", "r3"):
            book.finish(book.start(name, "run", "ticks", NOW, held), 0, "done", {}, None)
        book.start("other", "run", "iot", NOW, held)
    assert [run.run for run in book.last_runs("ticks", 2)] == ["r3", "r2"]


def test_a_run_whose_lease_has_ended_has_died(database: Db) -> None:
    """Also on another machine, of whose processes nothing is known here."""
    book = Ledger(database)
    with Lease(database, "ticks") as held:
        book.start("r1", "run", "ticks", NOW, held)
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
        book.start("r1", "run", "ticks", NOW, held)
        database[ledger.COLLECTION].update_one({}, {"$set": {"host.pid": gone.pid}})
        assert book.last_runs("ticks", 1)[0].outcome == "died"


def test_who_takes_the_lease_marks_what_died_before(database: Db) -> None:
    """However many there are. One that only slept still says how it ended."""
    book = Ledger(database)
    with Lease(database, "ticks") as held:
        slept, _ = [book.start(name, "run", "ticks", NOW, held) for name in ("r1", "r2")]
        elsewhere = book.start("r3", "run", "iot", NOW, held)
    with Lease(database, "ticks") as held:
        now = book.start("r4", "run", "ticks", NOW, held)
        assert book.start("r5", "run", "ticks", NOW, held)
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
            book.finish(book.start(name, verb, "ticks", NOW, held), code, "x", {}, None)
            started[name] = book.last_runs("ticks", 1)[0].started
        book.start("e", "run", "ticks", NOW, held)
    assert book.last_completed("ticks", "run") == started["b"]
    assert book.last_completed("iot", "run") is None


def test_a_run_of_the_future_is_not_the_last_one(database: Db) -> None:
    """A wrong clock dated it; the service must not wait until then."""
    book = Ledger(database)
    with Lease(database, "ticks") as held:
        for name in ("r1", "r2"):
            book.finish(book.start(name, "run", "ticks", NOW, held), 0, "done", {}, None)
    first = book.last_runs("ticks", 2)[1].started
    wrong = datetime.now(UTC) + timedelta(days=3650)
    database[ledger.COLLECTION].update_one({"run": "r2"}, {"$set": {"started": wrong}})
    assert book.last_completed("ticks", "run") == first
