"""Hooks for a forked command line: what breaks inside the process, or around it, at a moment that is counted.

`("tests.faults.meddling", {"at_command": {"at": 7, "send": 15}})` is a `Meddle` of `CommandLine.meddled`.
"""

from __future__ import annotations

import functools
import itertools
import os
import pkgutil
import resource
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pymongo import MongoClient, WriteConcern, monitoring

from bucketwise.archivers.stores import file as directories
from bucketwise.archivers.stores.clouds import CloudStore
from bucketwise.archivers.stores.file import FileStore
from bucketwise.archivers.stores.s3 import S3Store
from tests.jobs.altered import alter
from tests.jobs.command import Meddle

READS = ("find", "getMore", "aggregate", "listCollections", "listIndexes")
WRITES = ("insert", "update", "delete", "findAndModify", "createIndexes", "create")
ENDS = ("commitTransaction", "abortTransaction")
EVERY_COMMAND = [*READS, *WRITES, *ENDS, "ping"]


def hook(**hooks: dict[str, Any]) -> Meddle:
    """What to give to `Scene.run(meddle=…)`: names of functions of this module, and their arguments."""
    return __name__, hooks


def install(**hooks: dict[str, Any]) -> None:
    for name, given in hooks.items():
        globals()[name](**given)


def at_command(
    at: int,
    *,
    on: Iterable[str] = (),
    answered: bool = False,
    signal: int | None = None,
    to: int | None = None,
    times: int = 1,
    depose: bool = False,
    fail: dict[str, Any] | None = None,
    note: str | None = None,
) -> None:
    """Strike at the `at`-th command to MongoDB (of those named `on`), before it is sent or once it is
    `answered`: send `signal` to this process, or to process `to`; have the server step down; or have
    `failCommand` do `fail` to the command and, where `times` is 0, to all after it. `note`: a file for the
    names of all commands."""

    def strike(event: Any) -> None:
        if signal is not None:
            for _ in range(times):
                os.kill(to or os.getpid(), signal)
        if depose:
            _tell(event, {"replSetStepDown": 1, "secondaryCatchUpPeriodSecs": 0, "force": True})
        if fail is not None:
            names = [event.command_name] if times else EVERY_COMMAND
            data = {"appName": "bucketwise", "failCommands": names, **fail}
            mode: Any = {"times": times} if times else "alwaysOn"
            _tell(event, {"configureFailPoint": "failCommand", "mode": mode, "data": data})

    monitoring.register(_Commands(at, set(on), answered, strike, note))


def _tell(event: Any, command: dict[str, Any]) -> None:
    """Ask the server that `event` is about, past what is counted."""
    host, port = event.connection_id
    with MongoClient[dict[str, Any]](host, port, directConnection=True) as client:
        client.admin.command(command)


class _Commands(monitoring.CommandListener):
    def __init__(
        self, at: int, on: set[str], answered: bool, strike: Callable[[Any], None], note: str | None
    ) -> None:
        self._left, self._on, self._answered, self._strike, self._note = at, on, answered, strike, note

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        if self._note:
            with Path(self._note).open("a") as file:
                file.write(f"{event.command_name}\n")
        if not self._answered:
            self._count(event)

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        if self._answered:
            self._count(event)

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        """Those that fail don't count."""

    def _count(self, event: Any) -> None:
        if self._on and event.command_name not in self._on:
            return
        self._left -= 1
        if self._left == 0:
            self._strike(event)


def patience(seconds: float) -> None:
    """How long pymongo tries one transaction again; 120 s by itself."""
    alter({"pymongo.client_session_shared._WITH_TRANSACTION_RETRY_TIME_LIMIT": seconds})


def short_replies(documents: int) -> None:
    """Queries are answered with so few documents at once that they take more than one reply."""
    alter({"bucketwise.buckets.bson.cursor.MOST_DOCUMENTS": documents})


def waits_noted(file: str) -> None:
    """The clients of stores don't wait between their tries; how long they would have is written down."""

    def sleep(seconds: float) -> None:
        with Path(file).open("a") as notes:
            notes.write(f"{seconds}\n")

    clock = SimpleNamespace(sleep=sleep)
    alter({"botocore.endpoint.time": clock, "bucketwise.archivers.stores.clouds.time": clock})


def store_timeout(seconds: float) -> None:
    """How long an answer of a store is waited for; 30 s by itself."""
    for kind in (S3Store, CloudStore):
        defaults: Any = kind.__init__.__kwdefaults__
        defaults["limits"] = defaults["limits"]._replace(timeout=seconds)


def limits(**soft: int) -> None:
    """`RLIMIT_NOFILE=20`; `RLIMIT_AS` is counted from what the process has already."""
    sys.dont_write_bytecode = True  # what is cut short would be read by all who come later
    for name, value in soft.items():
        which = getattr(resource, name)
        if name == "RLIMIT_AS":
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            value += pages * resource.getpagesize()
        resource.setrlimit(which, (value, resource.getrlimit(which)[1]))


def temporary(only: str) -> None:
    """Look anew for a folder for temporary files; no other is there than `only`."""
    tempfile.tempdir = None
    alter({"tempfile._candidate_tempdir_list": lambda: [only]})


def raising(error: str, function: str, at: int = 1) -> None:
    """The `at`-th call of `function` ("bucketwise.archivers.format.parquet.write_part") raises this error."""
    kind = pkgutil.resolve_name(error)

    def strike() -> None:
        raise kind("there is no more")

    _at_call(function, at, strike)


def signalling(number: int, function: str, at: int = 1) -> None:
    """At the `at`-th call of `function` the process is sent this signal."""
    _at_call(function, at, lambda: os.kill(os.getpid(), number))


def _at_call(function: str, at: int, strike: Callable[[], None]) -> None:
    """Strikes before the `at`-th call of the function, by whatever module it is called; or of the method."""
    owner, _, name = function.rpartition(".")
    holder = pkgutil.resolve_name(owner)
    inner = getattr(holder, name)
    calls = iter(range(at - 1, -1, -1))

    @functools.wraps(inner)
    def outer(*given: Any, **named: Any) -> Any:
        if next(calls, None) == 0:
            strike()
        return inner(*given, **named)

    for other in [holder, *sys.modules.values()]:
        if getattr(other, name, None) is inner:
            setattr(other, name, outer)


def filling(folder: str, at: int, of: str) -> None:
    """Before the `at`-th write to a store that is a directory, its file system becomes full: of `bytes`, or
    of `files`. A write is counted as it begins, and as it is moved into place."""
    calls, lock = iter(range(at - 1, -1, -1)), threading.Lock()

    def meet(owner: Any, name: str) -> None:
        inner = getattr(owner, name)

        @functools.wraps(inner)
        def outer(*given: Any, **named: Any) -> Any:
            with lock:
                if next(calls, None) == 0:
                    fill(Path(folder), of)
            return inner(*given, **named)

        setattr(owner, name, outer)

    meet(FileStore, "put_bytes")
    meet(directories, "_place")


def fill(folder: Path, of: str) -> None:
    """Fills a file system, in a folder `fill`."""
    into = folder / "fill"
    into.mkdir()
    with suppress(OSError):
        for number in itertools.count():
            (into / str(number)).write_bytes(bytes(4096 if of == "bytes" else 0))


def deleting(function: str, uri: str, database: str, identity: int) -> None:
    """Before the first call of `function`, somebody deletes this bucket."""
    owner, _, name = function.rpartition(".")
    holder = pkgutil.resolve_name(owner)
    inner = getattr(holder, name)
    calls = iter(range(1))

    @functools.wraps(inner)
    def outer(*given: Any, **named: Any) -> Any:
        if next(calls, None) == 0:
            with MongoClient[dict[str, Any]](uri) as client:
                source = client[database].get_collection("it", write_concern=WriteConcern("majority"))
                assert source.delete_one({"_id": identity}).deleted_count == 1
        return inner(*given, **named)

    setattr(holder, name, outer)


def stream(number: int, to: str) -> None:
    """stdout (1) or stderr (2) goes to a file, to nobody ("pipe") or nowhere at all ("closed",
    as Python finds it at its start)."""
    if to == "closed":
        os.close(number)
        setattr(sys, ("stdin", "stdout", "stderr")[number], None)
        return
    if to == "pipe":
        reads, target = os.pipe()
        os.close(reads)
    else:
        target = os.open(to, os.O_WRONLY)
    os.dup2(target, number)
