from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import OperationFailure

from bucketwise.config.errors import LeaseHeldError, LeaseLostError
from bucketwise.jobs.core import lease, machine
from bucketwise.jobs.core.lease import Lease

Db = Database[dict[str, Any]]

HOLD_FOREVER = """
import sys, time
from pymongo import MongoClient
from bucketwise.jobs.core.lease import Lease
with Lease(MongoClient(sys.argv[1])[sys.argv[2]], "ticks"):
    print("held", flush=True)
    time.sleep(600)
"""


def stored(database: Db, policy: str = "ticks") -> dict[str, Any]:
    document = database[lease.COLLECTION].find_one({"_id": policy})
    assert document is not None
    return document


def steal(database: Db, policy: str = "ticks") -> None:
    """What another holder does once the time of this one has run out."""
    database[lease.COLLECTION].update_one(
        {"_id": policy}, {"$set": {"expires_at": datetime(1970, 1, 1, tzinfo=UTC)}}
    )


@pytest.fixture
def other_process(mongodb_uri: str, database: Db) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLD_FOREVER, mongodb_uri, database.name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_lease_says_who_holds_it_and_ends_with_the_block(database: Db) -> None:
    with Lease(database, "ticks") as held:
        document = stored(database)
        assert document["holder"] == held.holder
        assert document["host"] == machine.this_process()
        assert document["host"]["pid"] == os.getpid()
        assert document["fence"] == held.fence == 1
        assert document["expires_at"] - document["taken_at"] == lease.TTL
        assert held.taken_at == document["taken_at"]
        told = {"was_clean", "clean", "taken_over_at"}
        assert set(document) - told == {"_id", "holder", "host", "fence", "taken_at", "expires_at"}
        assert (document["was_clean"], document["clean"], document["taken_over_at"]) == (False, False, None)
        held.check()
    assert stored(database)["holder"] is None


def test_what_is_taken_over_is_looked_at_once_more_when_a_day_has_passed(database: Db) -> None:
    """Whoever lost it may have written after the last run of that day."""

    def turn() -> bool:
        with Lease(database, "ticks") as held:
            held.leave_clean()
        return held.is_clean

    assert [turn(), turn()] == [False, True]
    with Lease(database, "ticks"):
        steal(database)
        assert [turn(), turn()] == [False, False]
    passed = stored(database)["taken_over_at"] - timedelta(days=1)
    database[lease.COLLECTION].update_one({}, {"$set": {"taken_over_at": passed}})
    assert [turn(), turn()] == [False, True]


def test_each_taking_has_a_higher_fence(database: Db) -> None:
    fences = []
    for _ in range(3):
        with Lease(database, "ticks") as held:
            fences.append(held.fence)
    assert fences == [1, 2, 3]


def test_policies_do_not_wait_for_each_other(database: Db) -> None:
    with Lease(database, "ticks"), Lease(database, "iot") as other:
        assert other.fence == 1


def test_a_held_lease_is_refused_with_who_and_since_when(database: Db) -> None:
    with Lease(database, "ticks"):
        before = stored(database)
        with pytest.raises(LeaseHeldError) as refused, Lease(database, "ticks"):
            pytest.fail("taken twice")
        assert stored(database) == before
    message = str(refused.value)
    taken = before["taken_at"].strftime("%Y-%m-%dT%H:%M:%S")
    for part in (
        "policy ticks",
        f"pid {os.getpid()} on {before['host']['name']}",
        f"since {taken}",
        "until ",
    ):
        assert part in message
    assert refused.value.exit_code == 11


def test_of_many_at_once_one_gets_it(database: Db) -> None:
    start, done = threading.Barrier(8), threading.Barrier(8)

    def take(_: int) -> int | None:
        start.wait(60)
        try:
            with Lease(database, "ticks") as held:
                done.wait(60)
                return held.fence
        except LeaseHeldError:
            done.wait(60)
            return None

    with ThreadPoolExecutor(8) as pool:
        fences = list(pool.map(take, range(8)))
    assert sorted(fences, key=lambda fence: fence or 0) == [None] * 7 + [1]


def test_the_server_s_clock_decides(database: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose clock is years ahead or behind neither takes a held lease nor writes its own time."""
    server_time = database.client.admin.command("hello")["localTime"].replace(tzinfo=UTC)
    for wrong in (datetime(2001, 1, 1, tzinfo=UTC), datetime(2099, 1, 1, tzinfo=UTC)):
        monkeypatch.setattr("bucketwise.jobs.core.clock.current", lambda wrong=wrong: wrong)
        monkeypatch.setattr("time.time", lambda wrong=wrong: wrong.timestamp())
        with Lease(database, "ticks"):
            assert abs(stored(database)["taken_at"] - server_time) < timedelta(minutes=10)
            with pytest.raises(LeaseHeldError), Lease(database, "ticks"):
                pytest.fail("taken twice")


def test_an_expired_lease_is_taken_and_its_holder_finds_out(database: Db) -> None:
    with Lease(database, "ticks") as stale:
        steal(database)
        with Lease(database, "ticks") as fresh:
            assert fresh.fence == stale.fence + 1
            stale._renew_once()
            with pytest.raises(LeaseLostError, match=r"policy ticks.*another run took it"):
                stale.check()
            fresh.check()
            taken = stored(database)
    assert taken["holder"] == fresh.holder


def test_the_end_of_a_stale_holder_leaves_the_fresh_one_alone(database: Db) -> None:
    with Lease(database, "ticks"):
        steal(database)
        fresh = Lease(database, "ticks").__enter__()
    assert stored(database)["holder"] == fresh.holder
    fresh.check()
    fresh.__exit__(None, None, None)


def test_renewal_keeps_it_beyond_its_time(database: Db) -> None:
    with Lease(database, "ticks", ttl=timedelta(seconds=2)) as held:
        first = stored(database)["expires_at"]
        waiter = threading.Event()
        while stored(database)["expires_at"] <= first + timedelta(seconds=2):
            assert not waiter.wait(0.05)
        held.check()
        with pytest.raises(LeaseHeldError), Lease(database, "ticks"):
            pytest.fail("taken twice")


def test_a_lease_not_renewed_in_time_is_asked_for_once_more(
    database: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that slept finds its lease as it was, or finds another holder."""
    with Lease(database, "ticks") as held:
        wake = held._good_until + 1
        monkeypatch.setattr("bucketwise.jobs.core.clock.steady", lambda: wake)
        held.check()
        steal(database)
        wake = held._good_until + 1
        with Lease(database, "ticks"), pytest.raises(LeaseLostError):
            held.check()


def test_a_lease_that_no_server_renews_is_lost(
    database: Db, monkeypatch: pytest.MonkeyPatch, unreachable: Db
) -> None:
    with Lease(database, "ticks", ttl=timedelta(seconds=4)) as held:
        kept, held._leases = held._leases, unreachable[lease.COLLECTION]
        late = held._good_until + 1
        monkeypatch.setattr("bucketwise.jobs.core.clock.steady", lambda: late)
        with pytest.raises(LeaseLostError, match="could not be renewed in time"):
            held.check()
        held._leases = kept


@pytest.fixture
def unreachable() -> Iterator[Db]:
    with MongoClient[dict[str, Any]]("mongodb://127.0.0.1:1/", serverSelectionTimeoutMS=100) as client:
        yield client["nowhere"]


def test_guard_lets_the_holder_s_transaction_through(database: Db) -> None:
    database.create_collection("things")
    with Lease(database, "ticks") as held, database.client.start_session() as session:
        with session.start_transaction():
            held.guard(session)
            database.things.insert_one({"_id": 1}, session=session)
        assert stored(database)["guards"] == 1
    assert database.things.count_documents({}) == 1


def test_guard_aborts_the_transaction_of_a_stale_holder(database: Db) -> None:
    database.things.insert_one({"_id": 1})
    with Lease(database, "ticks") as stale:
        steal(database)
        with Lease(database, "ticks"), database.client.start_session() as session:
            with pytest.raises(LeaseLostError), session.start_transaction():
                database.things.delete_one({"_id": 1}, session=session)
                stale.guard(session)
            with pytest.raises(LeaseLostError):
                stale.check()
    assert database.things.count_documents({}) == 1


def test_a_lease_taken_after_the_guard_s_snapshot_stops_the_transaction(database: Db) -> None:
    """The transaction reads, the lease goes to another, the transaction guards: it must not commit."""
    database.things.insert_one({"_id": 1})
    with Lease(database, "ticks") as stale, database.client.start_session() as session:
        session.start_transaction()
        assert database.things.find_one({}, session=session) == {"_id": 1}
        steal(database)
        with Lease(database, "ticks"):
            database.things.delete_one({"_id": 1}, session=session)
            with pytest.raises(OperationFailure) as conflict:
                stale.guard(session)
            assert conflict.value.has_error_label("TransientTransactionError")
            session.abort_transaction()
            with pytest.raises(LeaseLostError), session.start_transaction():
                stale.guard(session)
    assert database.things.count_documents({}) == 1


@pytest.mark.proof
def test_a_live_holder_on_this_machine_is_left_alone(
    database: Db, other_process: subprocess.Popen[str]
) -> None:
    with pytest.raises(LeaseHeldError, match=f"pid {other_process.pid} "), Lease(database, "ticks"):
        pytest.fail("taken from a live process")


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize("reaped", [True, False])
def test_a_killed_holder_on_this_machine_is_taken_over_at_once(
    database: Db, other_process: subprocess.Popen[str], reaped: bool
) -> None:
    other_process.send_signal(signal.SIGKILL)
    if reaped:
        other_process.wait()
    else:  # ended, and still in the process table
        os.waitid(os.P_PID, other_process.pid, os.WEXITED | os.WNOWAIT)
    assert stored(database)["holder"] is not None
    with Lease(database, "ticks") as held:
        assert held.fence == 2


def test_of_two_who_find_the_holder_gone_one_gets_it(database: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other takes it between our look at the holder and our taking of it."""
    with Lease(database, "ticks"):
        others: list[Lease] = []

        def look(_host: machine.Host) -> bool:
            steal(database)
            others.append(Lease(database, "ticks").__enter__())
            return True

        monkeypatch.setattr(machine, "is_known_dead", look)
        with pytest.raises(LeaseHeldError), Lease(database, "ticks"):
            pytest.fail("taken from one who lives")
        (other,) = others
        assert (stored(database)["holder"], stored(database)["fence"]) == (other.holder, other.fence)
        other.__exit__(None, None, None)


@pytest.mark.in_turn(3)
@pytest.mark.parametrize(
    "elsewhere",
    [
        {"boot_id": "another"},
        {"pid_namespace": 1},
        {"name": "another"},
        {"boot_id": None},
        {"pid": None},
        {"pid": 0},
    ],
)
def test_a_holder_elsewhere_is_waited_for(database: Db, elsewhere: dict[str, Any]) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    gone = machine.this_process() | {"pid": ended.pid}
    assert machine.is_known_dead(gone)
    with Lease(database, "ticks"):
        database[lease.COLLECTION].update_one({}, {"$set": {"host": gone | elsewhere}})
        with pytest.raises(LeaseHeldError), Lease(database, "ticks"):
            pytest.fail("taken from another machine")


def test_a_pid_used_again_is_another_process() -> None:
    here = machine.this_process()
    assert not machine.is_known_dead(here)
    assert machine.is_known_dead(here | {"pid_started": here["pid_started"] - 1})
