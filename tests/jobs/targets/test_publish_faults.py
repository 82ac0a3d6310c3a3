"""A Redis that is down, hangs, is full, may not be written, or is somebody else's holds no run up and changes
no exit code. What it lacks is told, and made up for."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from bucketwise.jobs.publish.publisher import Link, PublishError
from tests.conftest import free_port
from tests.jobs.command import ROOT, CommandLine, Ran
from tests.jobs.place import POLICIES, Place
from tests.redis_servers import RedisServer, redis_server
from tests.tiers import tier

PASSWORD = "hunter2%40Zq7"


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with redis_server(password="hunter2@Zq7") as it:
        yield it


@pytest.fixture
def published(place: Place, server: RedisServer) -> Place:
    """A policy file with a Redis, whose password is in its URL."""
    server.client.flushall()
    return with_redis(place, f"redis://:{PASSWORD}@127.0.0.1:{server.port}/0")


def with_redis(place: Place, url: str, policies: str = POLICIES) -> Place:
    head = f'[publish.redis]\nurl = "{url}"\nlatest_hours = 2\nlatest_days = 2\nsecondary = "symbol"\n'
    place.write_config(head + policies)
    return place


def clean(*texts: str) -> bool:
    return all("hunter2" not in it and "Zq7" not in it and "Traceback" not in it for it in texts)


@contextmanager
def read_only(server: RedisServer) -> Iterator[str]:
    server.client.replicaof("127.0.0.1", str(free_port()))
    try:
        yield "read only replica"
    finally:
        server.client.replicaof("NO", "ONE")


@contextmanager
def full(server: RedisServer) -> Iterator[str]:
    server.client.config_set("maxmemory", 1)
    try:
        yield "used memory > 'maxmemory'"
    finally:
        server.client.config_set("maxmemory", 0)


@contextmanager
def hanging(server: RedisServer) -> Iterator[str]:
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        yield "Timeout"
    finally:
        os.kill(server.process.pid, signal.SIGCONT)


@contextmanager
def other_password(server: RedisServer) -> Iterator[str]:
    server.client.config_set("requirepass", "other")
    yield "invalid username-password pair"
    server.client.execute_command("AUTH", "other")  # type: ignore[no-untyped-call]
    server.client.config_set("requirepass", "hunter2@Zq7")


@contextmanager
def of_another(server: RedisServer) -> Iterator[str]:
    server.client.set("bw:ticks:theirs", 1)
    server.client.set("bw:iot:last:{7}", 1)
    yield "were not written for this database, such as bw:*:"
    assert server.client.get("bw:iot:last:{7}") == "1"
    server.client.delete("bw:ticks:theirs", "bw:iot:last:{7}")


class Impatient(CommandLine):
    """The command line, whose processes wait for Redis for a second."""

    def __call__(self, *arguments: str, cwd: Path, **environment: str) -> Ran:
        seconds = {"bucketwise.jobs.publish.publisher._SECONDS": 1}
        return self.meddled(("tests.jobs.altered", {"values": seconds}), *arguments, cwd=cwd, **environment)


REFUSALS = [read_only, full, other_password]


@pytest.mark.in_turn(2)
@pytest.mark.process
@pytest.mark.parametrize("fault", REFUSALS)
def test_a_refusal_is_told(server: RedisServer, fault: object) -> None:
    assert callable(fault)
    url = f"redis://:{PASSWORD}@127.0.0.1:{server.port}/0"
    with (
        fault(server) as reason,
        Link(url) as link,
        pytest.raises(PublishError, match=f"Redis at redis://127.0.0.1:{server.port}/0: .*{reason}") as told,
    ):
        link.ask([("SET", "bw:x", "1")])
    assert clean(str(told.value))


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize(
    "fault",
    [
        *(pytest.param(it, marks=tier(is_first=it is full, is_proof=True)) for it in REFUSALS),
        hanging,
        of_another,
    ],
)
def test_a_fault_of_redis_changes_nothing_else(published: Place, server: RedisServer, fault: object) -> None:
    assert callable(fault)
    published = replace(published, command=Impatient(published.command.driver))
    with fault(server) as reason:
        ran = published("run", "--json")
        assert ran.code == 0
        for name in ("ticks", "iot"):
            assert reason.replace("*", name) in ran.policy(name)["publish"]["error"]
            assert "error" not in ran.policy(name)
        assert ran.policy("ticks")["archive"]["deleted"] == 180
        assert reason.replace("*", "iot") in ran.err
        is_asked_again = fault is of_another
        assert sum(str(server.port) in it for it in ran.connected) == 1 + is_asked_again
        told = published("publish", "-p", "ticks")
        audit = published("audit", "--json")
        assert (told.code, audit.code) == (1, 0)
        assert reason.replace("*", "ticks") in told.err
        found = [it for name in ("ticks", "iot") for it in audit.policy(name)["findings"]]
        assert [it["code"] for it in found] == ["publish-behind"] * 2
        assert clean(ran.out, ran.err, told.out, told.err, audit.out, audit.err)
    again = published("run", "--json")
    assert [again.policy(name)["publish"] for name in ("ticks", "iot")] == [{"keys": 3}, {"keys": 2}]
    assert published("audit", "--json").policy("ticks")["findings"] == []


@pytest.mark.proof
def test_an_erased_series_goes(published: Place, server: RedisServer) -> None:
    published("run")
    given = ["-p", "ticks", "--series", "symbol=MDB", "--reason", "case 17", "--json"]
    published.database["ticks"].insert_one({"symbol": "X", "d": published_at(published), "p": {"0": 1.5}})
    published("run")
    assert len(server.client.keys("bw:ticks:*MDB*")) == 4
    server.client.delete("bw:ticks:series")  # whatever the sets say
    with other_password(server):
        ran = published("erase", *given, "--confirm", "ticks")
        first, *_ = ran.policy("ticks")["remaining"]
        assert (ran.code, first["found"]) == (3, True)
        assert first["place"] == f"redis://127.0.0.1:{server.port}/0, keys under bw:ticks:"
        assert clean(ran.out, ran.err)
    ran = published("erase", *given, "--confirm", "ticks")
    assert (ran.code, [it["found"] for it in ran.policy("ticks")["remaining"] if it["found"]]) == (0, [])
    assert server.client.keys("bw:ticks:*MDB*") == []
    assert ran.policy("ticks")["publish"] == {"keys": 6}  # three of this series, and all of the other
    assert len(server.client.keys("bw:ticks:*{X}")) == 3
    assert server.client.hget("bw:iot:last:{7}", "t.last") == "20.5"


@pytest.mark.proof
def test_an_erasure_tells_of_what_is_published_no_more(published: Place, server: RedisServer) -> None:
    published("run")
    published.write_config()
    given = ["-p", "ticks", "--series", "symbol=MDB", "--reason", "case 17", "--confirm", "ticks", "--json"]
    first, *_ = published("erase", *given).policy("ticks")["remaining"]
    assert (first["place"], first["found"]) == ("Redis, keys bw:ticks:*", False)
    assert len(server.client.keys("bw:ticks:*{MDB}")) == 3
    command = (
        first["why"].partition("now: ")[2].replace("redis-cli", f"redis-cli -p {server.port} -a hunter2@Zq7")
    )
    subprocess.run(["bash", "-c", command], check=True, capture_output=True)
    assert server.client.keys("bw:ticks:*") == []


def published_at(place: Place) -> object:
    found = place.database["iot"].find_one() or place.database["iot_archive"].find_one()
    assert found is not None
    return found["at"]


@contextmanager
def old_redis() -> Iterator[int]:
    """Says what a server of 2013 says; none runs here."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with listening.accept()[0] as it:
                while it.recv(4096):
                    it.sendall(b"$22\r\nredis_version:2.8.19\r\n\r\n")

        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1]


@pytest.mark.process
def test_one_that_is_too_old_is_told() -> None:
    with (
        old_redis() as port,
        Link(f"redis://127.0.0.1:{port}") as link,
        pytest.raises(PublishError, match=r"2\.8\.19; 6\.0"),
    ):
        link.ask([("PING",)])


@pytest.mark.process
@pytest.mark.parametrize("at_once", [1, 200])
def test_one_that_drips_ends_in_time(at_once: int) -> None:
    """Each answer comes within the limit of an answer, and all of them do not within that of a run."""
    sent: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with listening.accept()[0] as it, suppress(OSError):
                while asked := it.recv(65_536):
                    it.sendall(b"+OK\r\n" * asked.count(b"SETINFO"))
                    if b"\r\nINFO\r\n" in asked:
                        it.sendall(b"$22\r\nredis_version:7.0.15\r\n\r\n")
                    for _ in range(asked.count(b"PING")):
                        it.sendall(b"+PONG\r\n")
                        sent.append(1)
                        time.sleep(0.02)

        threading.Thread(target=serve, daemon=True).start()
        url = f"redis://127.0.0.1:{listening.getsockname()[1]}"
        with Link(url, patience=0.1) as link, pytest.raises(PublishError, match="it is slow"):
            for _ in range(0, 200, at_once):
                link.ask([("PING",)] * at_once)
    assert len(sent) < 200


@pytest.mark.proof
def test_what_others_wrote_among_its_keys_ends_no_run(published: Place, server: RedisServer) -> None:
    published("rollup")
    for member in ('"', "{", '{"$oid":"1"}', '{"$date":[]}', "%FF", "a:b:c"):
        server.client.sadd("bw:ticks:series", member)
        server.client.zadd("bw:ticks:expires", {member: 1})
        server.client.set(f"bw:ticks:x:{{{member}}}", 1)
    server.client.hset("bw:ticks:meta", "number", 0)
    ran = published("run", "--json")
    assert (ran.code, ran.policy("ticks")["publish"]) == (0, {"keys": 3})
    assert server.client.smembers("bw:ticks:series") == {"MDB"}
    given = ["-p", "ticks", "--series", "symbol=MDB", "--reason", "case 17", "--confirm", "ticks"]
    assert published("erase", *given).code == 0
    assert not server.client.exists("bw:ticks:last:{MDB}")


@pytest.mark.proof
def test_policies_may_say_otherwise(place: Place, server: RedisServer) -> None:
    server.client.flushall()
    own = "[policies.iot.publish.redis]\nenabled = false\n[policies.ticks.publish.redis]\nlatest_hours = 1\n"
    with_redis(place, f"redis://:{PASSWORD}@127.0.0.1:{server.port}/0", POLICIES + own)
    ran = place("rollup", "--json")
    assert ran.policy("ticks")["publish"] == {"keys": 3}
    assert "publish" not in ran.policy("iot")
    assert server.client.keys("bw:iot:*") == []
    assert server.client.zcard("bw:ticks:hourly:{MDB}") == 1
    assert server.client.smembers("bw:ticks:by:symbol:MDB") == {"MDB"}
    shown = place("publish", "--all")
    assert shown.code == 0
    assert "Published" in shown.out


@pytest.mark.proof
def test_without_the_table_nothing_is_published(place: Place) -> None:
    assert "publish" not in place("run", "--json").policy("ticks")
    ran = place("publish")
    assert (ran.code, "has no [publish.redis]" in ran.err) == (2, True)


@pytest.mark.proof
def test_without_its_package(published: Place) -> None:
    """As where nobody installed the extra."""
    text = "import sys; sys.modules['redis'] = None; from bucketwise.jobs.cli import main; main()"
    environment = os.environ | {"MONGODB_URI": published.uri, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", text, "publish", "-c", str(published.config)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "pip install 'bucketwise[redis]'" in ran.stderr
    assert "Traceback" not in ran.stderr
