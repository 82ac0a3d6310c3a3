"""mongods of our own, that may be killed, stopped and told to fail; none of them is the session's."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pymongo import MongoClient
from pymongo.errors import PyMongoError

from bucketwise.jobs.core.embedded import EmbeddedMongodError, find_mongod
from tests.conftest import missing

Document = dict[str, Any]
T = TypeVar("T")
SET = "faults"
#: A client that learns of a failure in a second or two, and gives up soon after.
IMPATIENT = "heartbeatFrequencyMS=500&connectTimeoutMS=1000&serverSelectionTimeoutMS=5000"


@dataclass
class Node:
    """One mongod. `start` again after `kill`: the same files and port."""

    dbpath: Path
    port: int
    options: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] = field(init=False)

    def start(self) -> None:
        command = [
            str(find_mongod(self.dbpath)),
            "--replSet",
            SET,
            "--bind_ip",
            "127.0.0.1",
            "--nounixsocket",
        ]
        command += ["--port", str(self.port), "--dbpath", str(self.dbpath), "--oplogSize", "64", "--quiet"]
        command += ["--wiredTigerCacheSizeGB", "0.25", "--setParameter", "enableTestCommands=1"]
        command += ["--setParameter", "diagnosticDataCollectionEnabled=false", *self.options]
        with (self.dbpath / "mongod.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        """With no chance to write anything down."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """As a machine that hangs: its connections stay open, and it answers nothing."""
        os.kill(self.process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGCONT)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def client(self) -> MongoClient[Document]:
        return MongoClient(
            self.address, directConnection=True, serverSelectionTimeoutMS=500, socketTimeoutMS=2000
        )

    def says(self, question: Callable[[Document], bool]) -> bool:
        """Whether it answers, and `question` of its hello."""
        with self.client() as client, contextlib.suppress(PyMongoError):
            return question(client.admin.command("hello"))
        return False

    def await_(self, question: Callable[[Document], bool]) -> None:
        await_(lambda: self.says(question) or None)


@dataclass(frozen=True)
class Servers:
    """A replica set of one node, or of three."""

    nodes: tuple[Node, ...]

    @property
    def uri(self) -> str:
        addresses = ",".join(node.address for node in self.nodes)
        return f"mongodb://{addresses}/?replicaSet={SET}&{IMPATIENT}"

    @property
    def primary(self) -> Node:
        return await_(lambda: next((node for node in self.nodes if node.says(_is_primary)), None))

    @property
    def term(self) -> int:
        """Grows with each election."""
        with self.primary.client() as client:
            return int(client.admin.command("replSetGetStatus")["term"])

    @property
    def secondaries(self) -> list[Node]:
        primary = self.primary
        return [node for node in self.nodes if node is not primary]

    def make_well(self) -> None:
        """All up, one of them primary."""
        for node in self.nodes:
            node.go_on()
            if node.process.poll() is not None:
                node.start()
        for node in self.nodes:
            node.await_(_is_member)
        assert self.primary


def _is_primary(hello: Document) -> bool:
    return bool(hello.get("isWritablePrimary"))


def _is_member(hello: Document) -> bool:
    return _is_primary(hello) or bool(hello.get("secondary"))


def await_(ask: Callable[[], T | None], seconds: float = 60.0) -> T:
    """The first answer that is not None."""
    deadline = time.monotonic() + seconds
    while (found := ask()) is None:
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
    return found


@contextmanager
def servers(folder: Path, count: int = 1, options: tuple[str, ...] = ()) -> Iterator[Servers]:
    """Their elections take about a second. `options`: more for their command lines."""
    nodes = []
    with contextlib.ExitStack() as ports:
        for number in range(count):
            probe = ports.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            dbpath = folder / str(number)
            dbpath.mkdir()
            nodes.append(Node(dbpath, probe.getsockname()[1], options))
    try:
        for node in nodes:
            node.start()
    except EmbeddedMongodError as error:
        missing(str(error))
    try:
        it = Servers(tuple(nodes))
        members = [{"_id": i, "host": node.address} for i, node in enumerate(nodes)]
        settings = {"electionTimeoutMillis": 1000, "heartbeatIntervalMillis": 200, "heartbeatTimeoutSecs": 1}
        for node in nodes:
            node.await_(lambda _: True)
        with nodes[0].client() as client:
            client.admin.command("replSetInitiate", {"_id": SET, "members": members, "settings": settings})
        it.make_well()
        yield it
    finally:
        for node in nodes:
            node.go_on()
            node.kill()


@contextmanager
def stale(node: Node) -> Iterator[None]:
    """The node answers, and no longer follows."""
    with node.client() as client:
        client.admin.command({"configureFailPoint": "stopReplProducer", "mode": "alwaysOn"})
    try:
        yield
    finally:
        with node.client() as client:
            client.admin.command({"configureFailPoint": "stopReplProducer", "mode": "off"})


@contextmanager
def no_failures_after(client: MongoClient[Document]) -> Iterator[None]:
    """Turns `failCommand` off, whoever turned it on; it has to have struck."""
    yield
    struck = client.admin.command({"configureFailPoint": "failCommand", "mode": "off"})["count"]
    assert struck, "the fault never struck"
