"""`--executor dask://host:port`: a real cluster reads what one process reads."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote_plus

import pytest

from tests.conftest import free_port
from tests.jobs.clusters import Cluster, certificate, cluster
from tests.jobs.command import CommandLine, Ran, started
from tests.jobs.place import NOW, Place
from tests.jobs.processes import wait_until
from tests.jobs.running.test_workers import (
    DAYS,
    by_one_process,
    check_archived,
    days_of,
    empty,
    fill,
    forget,
    held_at,
    several_commits,
    standing,
)
from tests.jobs.verbs.test_secrets import PASSWORD, Client, check_clean

__all__ = ["empty"]


@pytest.mark.proof
def test_a_cluster_does_what_one_process_does(empty: Place, tmp_path: Path) -> None:
    fill(empty.database, 2)
    assert empty("run").code == 3
    expected = standing(empty.database)
    forget(empty.database)
    with cluster(tmp_path / "cluster", workers="0") as it:
        assert empty("rollup", "-p", "ticks", "--executor", it.url).code == 3
        assert "do-" in it.logs(), "the cluster did it"
    assert standing(empty.database) == expected


@pytest.mark.proof
def test_workers_of_the_cluster_are_killed_one_after_the_other(empty: Place, tmp_path: Path) -> None:
    expected = by_one_process(empty)
    with cluster(tmp_path / "cluster") as it:
        options = ["-p", "ticks", "--now", NOW, "--executor", it.url]
        with started("rollup", *options, cwd=empty.folder, MONGODB_URI=empty.uri) as process:
            with held_at(empty.database, 5):
                wait_until(lambda: days_of(empty.database) == 5, "nothing is rolled up")
                for worker in it.workers:  # what they are given now, they don't come to the end of
                    worker.send_signal(signal.SIGSTOP)
            wait_until(lambda: days_of(empty.database) > 5, "it does not go on")
            it.workers[0].kill()
            it.workers[1].send_signal(signal.SIGCONT)
            _, errors = process.communicate(timeout=300)
        assert process.returncode == 3, errors
        assert "Traceback" not in errors
        assert standing(empty.database) == expected
        forget(empty.database)
        with rollup_at(5, empty, it) as ran:
            it.workers[1].kill()
        told = ran()
    assert "the cluster had no workers for 1 s" in told.err
    check_cut_off(told, empty)


@pytest.mark.proof
def test_a_worker_of_a_cluster_with_tls_that_is_killed_while_it_copies(empty: Place, tmp_path: Path) -> None:
    before = several_commits(empty)
    tls = certificate(tmp_path)
    required = {"DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "true"}
    with cluster(tmp_path / "cluster", "tls", **tls, **required) as it:
        options = ["-p", "ticks", "--now", NOW, "--executor", it.url]
        given = {"MONGODB_URI": empty.uri, "BUCKETWISE_WORK_MEMORY": "50MB", **tls}
        it.workers[0].send_signal(signal.SIGSTOP)  # what it is given, it doesn't come to
        with started("archive", *options, cwd=empty.folder, **given) as process:
            wait_until(lambda: "do-" in it.logs(), "the other one is given nothing either")
            it.workers[0].kill()
            _, errors = process.communicate(timeout=300)
    assert process.returncode == 3 and "Traceback" not in errors, errors
    check_archived(empty, before)


@contextmanager
def rollup_at(day: int, place: Place, there: Cluster) -> Iterator[Callable[[], Ran]]:
    """In the block a roll-up by that cluster has come to that day, and waits."""
    soon = (
        "tests.jobs.altered",
        {"values": {"bucketwise.jobs.core.workers._SECONDS_WITHOUT_WORKERS": 1}},
    )
    asked = ["rollup", "-p", "ticks", "--now", NOW, "--executor", there.url]
    place.command.begin(soon, *asked, cwd=place.folder, MONGODB_URI=place.uri)
    with held_at(place.database, day):
        wait_until(lambda: days_of(place.database) == day, "nothing is rolled up")
        yield place.command.end


def check_cut_off(ran: Ran, place: Place) -> None:
    assert (ran.code, "Traceback" in ran.err) == (1, False), ran.err
    assert "It is safe to run again" in ran.err
    assert days_of(place.database) < DAYS, "it was cut off in the middle"


@pytest.mark.proof
def test_no_secret_is_logged_and_what_is_lost_is_told(
    asking_mongod: Client, bucketwise: CommandLine, tmp_path: Path
) -> None:
    """A damaged archive, a task that workers die of, and the scheduler."""
    assert asking_mongod.address is not None
    database = asking_mongod[f"test_{uuid.uuid4().hex[:12]}"]
    database.command("createUser", "bob", pwd=PASSWORD, roles=["readWrite"])
    host, port = asking_mongod.address
    uri = f"mongodb://bob:{quote_plus(PASSWORD)}@{host}:{port}/?replicaSet=rs0&authSource={database.name}"
    place = Place(tmp_path, database, uri, bucketwise)
    place.write_config()
    fill(database)
    asked = ["-p", "ticks", "--since", "2018-06-01", "--until", "2018-07-01"]
    with cluster(tmp_path / "cluster", DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES="0") as it:
        there = ["--executor", it.url]
        assert place("run", "-p", "ticks", *there).code == 3
        expected = standing(database)
        (file,) = tmp_path.glob("store/ticks/meta/buckets/*")
        sound = file.read_bytes()
        file.write_bytes(sound[:-1])
        failed = place("rollup", *asked, *there)
        assert (failed.code, failed.err) == (5, place("rollup", *asked).err), "as it is told by one process"
        file.write_bytes(sound)
        forget(database)
        with rollup_at(5, place, it) as ran:
            it.workers[0].send_signal(signal.SIGSTOP)  # what it is given now, it does not come to
        wait_until(lambda: it.has_given(0), "it is given no task")
        it.workers[0].kill()
        told = ran()
        assert "workers of the cluster died in the middle of a task" in told.err
        check_cut_off(told, place)
        assert place("rollup", "-p", "ticks").code == 3
        assert standing(database) == expected
        forget(database)
        options = [*asked, "--now", NOW, *there]
        with started("rollup", *options, cwd=tmp_path, MONGODB_URI=uri, BUCKETWISE_DEBUG="1") as process:
            with held_at(database, 5):
                wait_until(lambda: days_of(database) == 5, "nothing is rolled up")
                it.workers[1].send_signal(signal.SIGSTOP)
            it.scheduler.kill()
            _, errors = process.communicate(timeout=300)
        assert process.returncode == 1, errors
        assert days_of(database) < DAYS, "it was lost in the middle"
        assert "the connection to the scheduler is lost" in errors and "safe to run again" in errors
        logs = it.logs()
    assert "do-" in logs, "what is done is logged"
    check_clean("the logs of the cluster", logs)
    check_clean("what the run tells", errors + failed.err + told.err)
    asking_mongod.drop_database(database.name)


def test_tls_needs_certificates(empty: Place) -> None:
    """Which are those of dask's own settings."""
    ran = empty("run", "--executor", "tls://127.0.0.1:8786")
    assert (ran.code, ran.connected) == (2, [])
    assert "DASK_DISTRIBUTED__COMM__TLS__CA_FILE" in ran.err


def test_where_no_cluster_is_nothing_is_touched(empty: Place) -> None:
    url = f"dask://127.0.0.1:{free_port()}"
    fill(empty.database, 1)
    before = empty.everything()
    ran = empty.command.meddled(
        ("tests.jobs.altered", {"values": {"bucketwise.jobs.core.workers._SECONDS_TO_CONNECT": 1}}),
        "run", "--executor", url, "--now", NOW, cwd=empty.folder, MONGODB_URI=empty.uri,
    )  # fmt: skip
    assert ran.code == 1
    assert f"--executor {url}: no dask scheduler answers there" in ran.err
    assert "Traceback" not in ran.err
    assert empty.everything() == before
