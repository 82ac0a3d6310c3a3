"""`--workers N`: processes read what one process reads, and none outlives the run."""

from __future__ import annotations

import errno
import fcntl
import os
import pickle
import random
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import pytest
from botocore.exceptions import ClientError
from bson import encode
from pymongo.errors import OperationFailure, ServerSelectionTimeoutError

from bucketwise.archivers.context import Connections, Task
from bucketwise.archivers.format.manifest import DamagedError
from bucketwise.archivers.reading.archived import archived_reader
from bucketwise.archivers.stores import open_store
from bucketwise.archivers.stores.base import Corrupt, Denied, NotFound, StoreError
from bucketwise.archivers.upkeep import slice_reader
from bucketwise.buckets.fields.times import as_ms
from bucketwise.config.errors import BucketwiseError, HaltedError, InterruptedRun, UsageError
from bucketwise.config.load import load
from bucketwise.config.policies import Settings
from bucketwise.config.problems import ConfigError, Problem
from bucketwise.jobs.core.connect import Seen
from bucketwise.jobs.core.failures import failure_of
from bucketwise.jobs.core.workers import Outcome, ProcessExecutor, WorkerSettings, do
from bucketwise.jobs.query.rewriting import read_context
from bucketwise.rollups.context import result_of, run_now
from bucketwise.rollups.rolling.slices import SliceRequest
from tests.jobs.command import CommandLine, started
from tests.jobs.place import NOW, START, Db, Place
from tests.jobs.processes import descendants, forkservers, is_alive, wait_until, workers_of

P = ParamSpec("P")
T = TypeVar("T")
DAYS = 12
SUMMARIES = ("ticks_hourly", "ticks_daily", "iot_hourly")


def fill(database: Db, days: int = DAYS) -> None:
    """So many days of ticks of four symbols, some sensors, and two buckets that are broken."""
    database.ticks.create_index("d")
    database.iot.create_index("at")
    for day in range(days):
        hours = [START + timedelta(days=day - days, hours=hour) for hour in range(24)]
        database.ticks.insert_many(
            {
                "_id": f"{symbol} {at}",
                "symbol": symbol,
                "d": at,
                "p": {str(i): i / 7 for i in range(60)},
            }
            for at in hours
            for symbol in ("A", "B", "C", 5)
        )
        database.iot.insert_many({"_id": f"{at}", "sensor": at.hour % 3, "at": at, "t": 1.5} for at in hours)
    bad = {"symbol": "A", "d": START - timedelta(days=2), "p": {"60": 1.5}}
    database.ticks.insert_many([{"_id": "bad", **bad}, {"_id": "odd", **bad, "symbol": [], "p": {"1": 1}}])


def several_commits(place: Place) -> list[bytes]:
    """The ticks that there are, rolled up: with little memory, more than one commit holds."""
    fill(place.database, 2 * DAYS)
    place.database.ticks.update_many({}, {"$set": {"note": "." * 3000}})
    assert place("rollup", "-p", "ticks").code == 3
    return sorted(encode(it) for it in place.database.ticks.find())


def standing(database: Db) -> dict[str, list[bytes]]:
    return {name: sorted(encode(it) for it in database[name].find()) for name in SUMMARIES}


@pytest.fixture
def empty(tmp_path: Path, database: Db, mongodb_uri: str, bucketwise: CommandLine) -> Place:
    """A policy file, and no readings yet."""
    it = Place(tmp_path, database, mongodb_uri, bucketwise)
    it.write_config()
    return it


def _cycle(place: Place, *options: str) -> tuple[list[Any], dict[str, list[bytes]]]:
    """All that can be rolled up: what is live, what is archived, what came late."""
    place.database.client.drop_database(place.database.name)
    fill(place.database, 6)
    told = [place("rollup", "--json", *options)]
    told.append(place("archive", "--json", *options))
    late = START - timedelta(days=3)
    place.database.ticks.insert_one({"_id": "late", "symbol": "A", "d": late, "p": {"7": -1.5}})
    since = ["--since", "2018-06-26", "--until", "2018-06-29"]
    told += [place("rollup", "--json", *since, *options), place("audit", "--json", *options)]
    return [{**it.json, "now": None} for it in told], standing(place.database)


@pytest.mark.proof
def test_what_processes_do_is_what_one_does(empty: Place) -> None:
    told, summaries = _cycle(empty)
    archived = parts(empty.folder / "store")
    (empty.folder / "store").rename(empty.folder / "store of one process")
    (empty.folder / "store").mkdir()
    again, by_processes = _cycle(empty, "--workers", "2")
    assert all(len(summaries[name]) > 5 for name in SUMMARIES)
    assert [it["exit_code"] for it in told] == [3, 3, 3, 4]
    assert by_processes == summaries
    assert parts(empty.folder / "store") == archived
    assert sum(it["deleted"] for it in again[1]["policies"]) > 200
    assert _sorted(again) == _sorted(told)


def parts(store: Path) -> dict[str, bytes]:
    return {str(it.relative_to(store)): it.read_bytes() for it in store.glob("**/*.parquet")}


def _sorted(told: list[Any]) -> list[Any]:
    """Which of two shares comes first is no matter, nor when by the server's clock, nor sizes of files."""
    for policy in (it for report in told for it in report["policies"]):
        policy.pop("worth", None)
        for events in policy.get("history", {}).values():
            for event in events if isinstance(events, list) else ():
                event |= dict.fromkeys({"run", "done_at"} & event.keys())
        if proof := policy.get("proof"):
            proof["ownership"].pop("since")
            proof["receipt"] = {**proof["receipt"], "done_at": None, "sha256": None}
        for part in (policy, policy.get("rollup", {})):
            part.get("quarantine", []).sort(key=lambda it: str(it["id"]))
    return told


@contextmanager
def held_at(database: Db, day: int) -> Iterator[None]:
    """In the block a roll-up comes as far as to that day: a transaction of ours is in its way."""
    with database.client.start_session() as session:
        session.start_transaction()
        identity = {"series": {"symbol": "A"}, "start": START + timedelta(days=day - DAYS)}
        database.ticks_daily.insert_one({"_id": identity}, session=session)
        yield
        session.abort_transaction()


def days_of(database: Db) -> int:
    return len(database.ticks_daily.distinct("start"))


def by_one_process(place: Place) -> dict[str, list[bytes]]:
    """The summaries of the ticks as one process makes them; and they are gone again."""
    fill(place.database)
    assert place("rollup", "-p", "ticks").code == 3
    found = standing(place.database)
    forget(place.database)
    return found


def forget(database: Db) -> None:
    """The summaries of the ticks, and how far they went."""
    for name in ("ticks_hourly", "ticks_daily", "bucketwise_progress"):
        database[name].delete_many({})


@pytest.mark.proof
def test_a_worker_that_is_killed_in_the_middle(empty: Place) -> None:
    """What they were at is tried again by new ones."""
    expected = by_one_process(empty)
    options = ["-p", "ticks", "--now", NOW, "--workers", "2"]
    with started("rollup", *options, cwd=empty.folder, MONGODB_URI=empty.uri) as process:
        with held_at(empty.database, 5):
            wait_until(lambda: days_of(empty.database) == 5, "nothing is rolled up")
            before = workers_of(process.pid)
            for pid in before:  # what they are given now, they don't come to the end of
                os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: days_of(empty.database) > 5, "it does not go on")
        os.kill(before[0], signal.SIGKILL)
        os.kill(before[1], signal.SIGCONT)
        _, errors = process.communicate(timeout=300)
    assert process.returncode == 3, errors
    assert len(before) == 2 and "Traceback" not in errors
    assert standing(empty.database) == expected


@pytest.mark.proof
def test_a_worker_that_is_killed_while_it_copies(empty: Place) -> None:
    """Nothing is lost or double, whatever of its files it has left."""
    before = several_commits(empty)
    options = ["-p", "ticks", "--now", NOW, "--workers", "2"]
    given = {"MONGODB_URI": empty.uri, "BUCKETWISE_WORK_MEMORY": "50MB"}
    with started("archive", *options, cwd=empty.folder, **given) as process:
        wait_until(lambda: len(workers_of(process.pid)) == 2, "there are no workers")
        stopped = workers_of(process.pid)
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        os.kill(stopped[0], signal.SIGKILL)
        os.kill(stopped[1], signal.SIGCONT)
        _, errors = process.communicate(timeout=300)
    assert process.returncode == 3 and "Traceback" not in errors, errors
    check_archived(empty, before)


def check_archived(place: Place, before: list[bytes]) -> None:
    """In several commits; nothing is lost or double of the ticks that there were."""
    assert len(list(place.folder.glob("store/ticks/meta/manifests/*"))) > 2
    assert place("verify", "-p", "ticks").code == 0
    span = ["--since", "2018-01-01", "--until", "2019-01-01"]
    assert place("restore", "-p", "ticks", *span, "--to", "back").code == 0
    archived = [encode(it) for it in place.database.back.find()]
    assert len(archived) > 1000
    assert sorted(archived + [encode(it) for it in place.database.ticks.find()]) == before


@pytest.mark.proof
@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.proof), signal.SIGTERM])
def test_no_worker_outlives_a_run_that_is_asked_to_stop(empty: Place, number: signal.Signals) -> None:
    by_one_process(empty)
    options = ["-p", "ticks", "--now", NOW, "--workers", "2"]
    with started("rollup", *options, cwd=empty.folder, MONGODB_URI=empty.uri) as process:
        with held_at(empty.database, 5):
            wait_until(lambda: days_of(empty.database) == 5, "nothing is rolled up")
            theirs = descendants(process.pid)
            for pid in (process.pid, *theirs):  # a terminal, or what ends a container, sends it to all
                os.kill(pid, number)
        _, errors = process.communicate(timeout=300)
        assert (process.returncode, "Traceback" in errors) == (130, False), errors
    assert len(theirs) >= 3
    wait_until(lambda: not any(map(is_alive, theirs)), "processes of the run are alive")
    assert days_of(empty.database) < DAYS, "it was cut off in the middle"


@pytest.mark.proof
def test_no_worker_outlives_a_run_that_is_killed(empty: Place) -> None:
    fill(empty.database)
    options = ["-p", "ticks", "--now", NOW, "--workers", "2"]
    with started("rollup", *options, cwd=empty.folder, MONGODB_URI=empty.uri) as process:
        wait_until(lambda: len(workers_of(process.pid)) == 2, "there are no workers")
        theirs = descendants(process.pid)
        for pid in workers_of(process.pid):  # so that no transaction of theirs is left open
            os.kill(pid, signal.SIGSTOP)
        process.kill()
        process.wait()
        empty.database.client.admin.command("killAllSessions", [])  # nor one of its own
        for pid in theirs:
            if is_alive(pid):
                os.kill(pid, signal.SIGCONT)
    wait_until(lambda: not any(map(is_alive, theirs)), "processes of the run are alive")
    assert len(theirs) >= 3 and days_of(empty.database) < DAYS


# One task


def _settings(place: Place, **environment: str) -> Settings:
    return load(place.config, {"MONGODB_URI": place.uri, **environment})


def _die(_: Connections) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _die_while_it_answers(_: Connections) -> bytes:
    """What kills it in the middle of its answer: a pipe is full of it."""

    def kill() -> None:
        while not any(map(_waits_in, range(3, 100))):
            pass
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=kill).start()
    return bytes(64 << 20)


def _waits_in(pipe: int) -> bool:
    """Whether this is one, and has much in it that nobody has read yet."""
    try:
        (count,) = struct.unpack("i", fcntl.ioctl(pipe, termios.TIOCOUTQ, bytes(4)))
    except OSError:
        return False
    return int(count) >= 1 << 15


def _pid(_: Connections) -> int:
    return os.getpid()


class _Stopper:
    """Asks the process to stop where what that raises goes no further."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


def _stop_in_a_finalizer(_: Connections) -> None:
    _Stopper()


def _wait(_: Connections) -> None:
    threading.Event().wait()


def _nothing() -> None:
    """Nothing asks the run to stop."""


@pytest.mark.proof
def test_a_task_that_kills_its_workers_is_given_up(empty: Place) -> None:
    """And the next one finds a living worker. What is under way when all ends is ended."""
    pool = ProcessExecutor(2, 0, WorkerSettings.of(_settings(empty)))
    with pytest.raises(BucketwiseError, match=r"3 times.*safe to run again") as found:
        result_of(pool.submit(_die), _nothing)
    assert found.value.exit_code == 1
    pid = result_of(pool.submit(_pid), _nothing)
    assert pid != os.getpid() and is_alive(pid)
    stuck = pool.submit(_wait)
    pool.close()
    assert not is_alive(pid) and stuck.done()


@pytest.mark.proof
def test_a_worker_that_is_asked_to_stop_in_a_finalizer(
    empty: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    """It leaves, and says nothing."""
    pool = ProcessExecutor(2, 0, WorkerSettings.of(_settings(empty)))
    with pytest.raises(BucketwiseError, match="3 times"):
        result_of(pool.submit(_stop_in_a_finalizer), _nothing)
    pool.close()
    assert not capfd.readouterr().err


@pytest.mark.proof
@pytest.mark.skipif(sys.platform != "linux", reason="how much waits in a pipe is asked as Linux answers it")
def test_a_worker_that_is_killed_while_it_answers(empty: Place) -> None:
    """Half of an answer is none, and the others work on."""
    with closing(ProcessExecutor(2, 0, WorkerSettings.of(_settings(empty)))) as executor:
        with pytest.raises(BucketwiseError, match=r"3 times.*safe to run again"):
            result_of(executor.submit(_die_while_it_answers), _nothing)
        waiting = executor.submit(_wait)
        wait_until(lambda: len(workers_of(os.getpid())) == 1, "no worker waits")
        other = workers_of(os.getpid())
        with pytest.raises(BucketwiseError, match="3 times"):
            result_of(executor.submit(_die_while_it_answers), _nothing)
        assert workers_of(os.getpid()) == other and not waiting.done()
    assert waiting.done() and not any(map(is_alive, other))


def _slow_echo(_: Connections, number: int, seconds: float) -> tuple[int, bytes]:
    threading.Event().wait(seconds)
    return number, bytes([number]) * (1 << 20)


def _kill_some(dice: random.Random, is_over: threading.Event) -> None:
    """Workers, one or all, and twice what they are forked from."""
    for turn in range(12):
        if is_over.wait(dice.uniform(0, 0.1)):
            return
        victims = forkservers(os.getpid()) if turn in (3, 8) else workers_of(os.getpid())
        for pid in victims if turn == 10 else victims[:1]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.proof
def test_workers_and_what_they_are_forked_from_are_killed_at_any_instant(empty: Place) -> None:
    """Each task is done all the same, and its answer is its own."""
    dice, is_over = random.Random(7), threading.Event()
    killer = threading.Thread(target=_kill_some, args=[dice, is_over])
    with closing(ProcessExecutor(3, 0, WorkerSettings.of(_settings(empty)))) as executor:
        futures = [executor.submit(_slow_echo, i, dice.uniform(0, 0.03)) for i in range(150)]
        result_of(futures[0], _nothing)
        killer.start()
        given_up = 0
        for number, future in enumerate(futures):
            try:
                assert result_of(future, _nothing) == (number, bytes([number]) * (1 << 20))
            except BucketwiseError as error:
                assert "3 times" in str(error)
                given_up += 1
        is_over.set()
        killer.join()
        assert given_up < 10
        assert is_alive(result_of(executor.submit(_pid), _nothing))


@pytest.mark.proof
def test_workers_are_closed_while_tasks_are_handed_to_them(empty: Place) -> None:
    """None of the tasks is left in the air."""
    executor = ProcessExecutor(2, 0, WorkerSettings.of(_settings(empty)))
    futures = [executor.submit(_slow_echo, i, 0.01) for i in range(50)]
    result_of(futures[3], _nothing)
    workers = workers_of(os.getpid())
    executor.close()
    assert not any(map(is_alive, workers)) and all(it.done() for it in futures)
    with pytest.raises(CancelledError):
        futures[-1].result()


@pytest.mark.proof
def test_a_worker_that_does_not_leave_is_killed(empty: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bucketwise.jobs.core.workers.SECONDS_TO_LEAVE", 0.2)
    executor = ProcessExecutor(1, 0, WorkerSettings.of(_settings(empty)))
    pid = result_of(executor.submit(_pid), _nothing)
    stuck = executor.submit(_wait)
    os.kill(pid, signal.SIGSTOP)
    executor.close()
    assert stuck.done()
    wait_until(lambda: not is_alive(pid), "it is alive")


@pytest.mark.proof
def test_what_can_not_travel_is_told(empty: Place) -> None:
    with closing(ProcessExecutor(1, 0, WorkerSettings.of(_settings(empty)))) as executor:
        with pytest.raises(BucketwiseError, match="pickle"):
            result_of(executor.submit(_lock), _nothing)
        assert is_alive(result_of(executor.submit(_pid), _nothing))


def _lock(_: Connections) -> object:
    return threading.Lock()


def test_threads_that_a_machine_does_not_give(empty: Place) -> None:
    """To try again would be no help."""
    executor, size = ProcessExecutor(1, 0, WorkerSettings.of(_settings(empty))), threading.stack_size(1 << 46)
    try:
        with pytest.raises(RuntimeError, match="can't start new thread") as found:
            executor.submit(_pid)
    finally:
        threading.stack_size(size)
    assert "no more memory or threads" in failure_of(found.value).message
    executor.close()


@pytest.mark.proof
def test_a_worker_that_sees_another_place_is_refused(empty: Place) -> None:
    """mongodb://localhost, or a folder, is another one elsewhere: nothing there is no empty slice."""
    fill(empty.database, 1)
    empty("run")
    settings, policy = _settings(empty), _settings(empty).policies["ticks"]
    asked = SliceRequest({False: [as_ms(START - timedelta(days=1)), as_ms(START)]})
    elsewhere = {
        "other collections": settings.mongodb.model_copy(update={"database": f"{empty.database.name}_not"}),
        "another archive": settings.mongodb,
    }
    for what, mongodb in elsewhere.items():
        url = (empty.folder / ("store" if "other c" in what else "not")).as_uri()
        store = settings.store and settings.store.model_copy(update={"url": url})
        where = WorkerSettings.of(settings.model_copy(update={"mongodb": mongodb, "store": store}))
        here = WorkerSettings.of(settings)
        for place, is_right in ((here, True), (where, False)):
            opened = _opened_here(empty, settings)
            context = replace(read_context(opened, policy, START), executor=_Travelling(place))
            reader = slice_reader(context, archived_reader(opened, policy))
            if is_right:
                assert len(reader.read(asked).result().cells[False].states) == 4
            else:
                with pytest.raises(BucketwiseError, match=f"a worker sees {what}.*safe to run again"):
                    reader.read(asked).result()


def _opened_here(place: Place, settings: Settings) -> Connections:
    assert settings.store is not None
    return Connections(place.database, open_store(settings.store))


@dataclass(frozen=True)
class _Travelling:
    """Does tasks as a worker would: what is asked, and what comes of it, are pickled on the way."""

    where: WorkerSettings
    workers: int = 2
    memory: int = 10**9

    def submit(self, task: Task[P, T], *plain: P.args, **named: P.kwargs) -> Future[T]:
        call = pickle.loads(pickle.dumps(partial(do, self.where, Seen(), task, *plain, **named)))
        outcome: Outcome[T] = pickle.loads(pickle.dumps(call()))
        return run_now(outcome.get)

    def check(self) -> None:
        """Nobody is missing."""


@pytest.mark.parametrize(
    "error",
    [
        BucketwiseError("it failed"),
        UsageError("not so"),
        HaltedError("look"),
        InterruptedRun("stopped"),
        StoreError("put", "s3://a:b@c/d", "no", "Mend it"),
        NotFound("get", "s3://c/d", "no"),
        Denied("get", "s3://c/d", "no"),
        Corrupt("get", "s3://c/d", "no"),
        DamagedError("part-missing", "s3://c/d", "it is gone"),
        ConfigError([Problem("a.toml", "store.url", '"x"', "wrong", "mend it")]),
    ],
    ids=lambda it: type(it).__name__,
)
def test_errors_travel(error: BucketwiseError) -> None:
    found = pickle.loads(pickle.dumps(error))
    assert type(found) is type(error)
    assert (str(found), found.args, vars(found)) == (str(error), error.args, vars(error))
    assert failure_of(found) == failure_of(error)


@pytest.mark.in_turn(3)
@pytest.mark.parametrize(
    "error",
    [
        DamagedError("part-missing", "s3://c/d", "it is gone"),
        ServerSelectionTimeoutError("127.0.0.1:1: [Errno 111] Connection refused"),
        OperationFailure('not authorized on market to execute command { find: "ticks" }', 13),
        ClientError({"Error": {"Code": "SlowDown", "Message": "Slow down"}}, "GetObject"),
        OSError(errno.ENOSPC, "No space left on device", "/tmp/x"),
        MemoryError(),
        ZeroDivisionError("division by zero"),
    ],
    ids=lambda it: type(it).__name__,
)
def test_what_fails_in_a_worker_is_told_as_in_one_process(error: Exception, empty: Place) -> None:
    where = WorkerSettings.of(_settings(empty))

    def fail(_: Connections) -> None:
        raise error

    told: Outcome[None] = pickle.loads(pickle.dumps(do(where, Seen(), fail)))
    assert told.error is not None
    host = empty.uri.partition("://")[2].partition("/")[0]
    assert failure_of(told.error) == failure_of(error, host)


@pytest.mark.proof
@pytest.mark.process
def test_arrow_takes_memory_from_the_system_in_a_worker_too() -> None:
    """A cluster's worker imports the task before anything else of the suite."""
    code = "import bucketwise.jobs.core.workers, pyarrow; print(pyarrow.default_memory_pool().backend_name)"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ARROW_")}
    assert subprocess.check_output([sys.executable, "-c", code], env=environment, text=True) == "system\n"


def test_a_worker_of_another_version_is_refused(empty: Place) -> None:
    where = WorkerSettings.of(_settings(empty))
    told = do(WorkerSettings(where.mongodb, where.store, "0.0.1"), Seen(), _pid)
    assert "install the same versions everywhere" in str(told.error)


def test_a_worker_gets_no_signing_key_and_shows_no_password(empty: Place) -> None:
    config = empty.config.read_text().replace("[store]", '[store]\nsigning_key = "${KEY}"')
    empty.config.write_text(config)
    uri = empty.uri.replace("mongodb://", "mongodb://user:Pass7Secret@")
    settings = load(empty.config, {"MONGODB_URI": uri, "KEY": "Key7Secret" * 4})
    where = WorkerSettings.of(settings)
    assert "7Secret" not in repr(where)
    assert b"Pass7Secret" in pickle.dumps(where) and b"Key7Secret" not in pickle.dumps(where)


# Usage


BOTH = ["--workers", "2", "--executor", "dask://127.0.0.1:8786"]
ONE_OF = "use one of the two"


@pytest.mark.in_turn(3)
@pytest.mark.parametrize(
    ("verb", "options", "said"),
    [
        *((verb, BOTH, ONE_OF) for verb in ("rollup", "archive", "run", "plan", "audit", "schedule")),
        ("run", ["--workers", "0"], "--workers"),
        ("run", ["--executor", "127.0.0.1:8786"], "it is not a dask:// or tls:// address"),
        ("run", ["--executor", "dask://127.0.0.1"], "it has to be a host and a port"),
        ("run", ["--executor", "dask://u:p@127.0.0.1:8786"], "credentials do not belong"),
        ("run", ["--executor", "dask://127.0.0.1:99999"], "not a valid URL"),
    ],
)
def test_bad_usage(empty: Place, verb: str, options: list[str], said: str) -> None:
    ran = empty(verb, *options, now=None)
    assert (ran.code, ran.connected) == (2, [])
    assert said in ran.err


@pytest.mark.parametrize("verb", ["rollup", "status"])
def test_dask_is_an_extra(empty: Place, verb: str) -> None:
    """Who does not ask for a cluster needs none."""
    empty.config.write_text(empty.config.read_text() + '\n[work]\nexecutor = "dask://127.0.0.1:8786"\n')
    ran = empty.command.meddled(
        ("tests.jobs.altered", {"hides": "distributed"}),
        verb, "--quiet", cwd=empty.folder, MONGODB_URI=empty.uri,
    )  # fmt: skip
    if verb == "status":
        assert ran.code == 0
        return
    assert (ran.code, ran.connected) == (2, [])
    assert "pip install 'bucketwise[dask]'" in ran.err
