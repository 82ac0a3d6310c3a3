"""Put into a run's process before it starts: makes it one of another machine, with a clock of its own, that
stops or is met at a step of its work. A step is before or after an operation of the store, or a transaction.
"""

from __future__ import annotations

import importlib
import os
import signal
import socket
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from bucketwise.archivers import writes
from bucketwise.archivers.moving import sweep
from bucketwise.archivers.stores.file import FileStore
from bucketwise.archivers.stores.s3 import S3Store
from bucketwise.buckets.bson import cursor as raw_cursor
from bucketwise.jobs.core import clock, machine

#: Whose transactions: the module, and what it uses them for.
_TRANSACTIONS = {
    "bucketwise.archivers.writes": "delete",
    "bucketwise.archivers.recovering.commits": "receipt",
    "bucketwise.archivers.moving.online": "copy",
    "bucketwise.archivers.restoring.put": "restore",
    "bucketwise.archivers.moving.sweep": "pin",
    "bucketwise.rollups.summaries.targets": "summaries",
}
_IN_COPY = " in the copy"  # which is another folder
_passed: Counter[str] = Counter()


def install(
    host: str | None = None,
    skew: float = 0,
    at: str | int | None = None,
    told: str | None = None,
    leap: float | None = None,
    pieces: int = 1000,
    at_once: int = 1000,
    asleep: float = 3600,
) -> None:
    """`host`: the machine's name. `skew`: seconds by which its clock is wrong. `at`: a step's name, for the
    first of that name, or how many steps in. There the clock leaps by `leap` seconds; or else the process
    notes in the file `told` where it is, and stops until it is continued: `asleep` seconds later by its
    steady clock. Without `at` it notes just its pid, for who wants to stop it. `pieces`: the most buckets in
    one delete; `at_once`: in one commit, so that several are under way."""
    writes.MAX_BUCKETS = pieces
    sweep.MAX_READINGS = 1
    sweep.Filling.cut = lambda self, batch: iter([batch])  # type: ignore[method-assign]  # noqa: ARG005
    raw_cursor.MOST_DOCUMENTS = raw_cursor.FIRST_DOCUMENTS = at_once
    wrong = [skew]
    current, steady, slept = clock.current, clock.steady, [0.0]
    clock.current = lambda: current() + timedelta(seconds=wrong[0])
    clock.steady = lambda: steady() + slept[0]
    if host is not None:
        socket.gethostname = lambda: host
        machine.machine_boot_id = lambda: host

    def step(name: str) -> None:
        _passed[name] += 1
        if (_passed.total() if isinstance(at, int) else name) != at:
            return
        if not isinstance(at, int) and _passed[name] > 1:
            return
        if leap is not None:
            wrong[0] += leap
            return
        assert told is not None
        Path(told).write_text(f"{os.getpid()} {name}")
        os.kill(os.getpid(), signal.SIGSTOP)

    def woke(*_: object) -> None:
        slept[0] += asleep

    signal.signal(signal.SIGCONT, woke)
    if told is not None and at is None:
        Path(told).write_text(str(os.getpid()))
    _meet_transactions(step)
    for store in (FileStore, S3Store):
        for operation in ("put_bytes", "delete"):
            _meet(store, operation, step)


def _meet_transactions(step: Callable[[str], None]) -> None:
    for module, what in _TRANSACTIONS.items():
        inner = importlib.import_module(module).transaction

        def transaction(
            database: Any, guard: Any, do: Callable[[Any], Any], inner: Any = inner, what: str = what
        ) -> Any:
            def done(session: Any) -> Any:
                found = do(session)
                step(f"{what}: before its commit")
                return found

            step(f"before {what}")
            found = inner(database, guard, done)
            step(f"after {what}")
            return found

        setattr(importlib.import_module(module), "transaction", transaction)  # noqa: B010


def _meet(store: type, operation: str, step: Callable[[str], None]) -> None:
    inner = getattr(store, operation)

    def met(self: Any, key: Any, *given: Any, **named: Any) -> Any:
        what = f"{operation.partition('_')[0]} {_kind(key)}{_IN_COPY * self.url.endswith('/b')}"
        step(f"before {what}")
        found = inner(self, key, *given, **named)
        step(f"after {what}")
        return found

    setattr(store, operation, met)


def _kind(key: str | list[str]) -> str:
    first = key if isinstance(key, str) else next(iter(key), "")
    for part, name in (("/manifests/", "manifest"), ("/buckets/", "buckets"), ("/data/", "part")):
        if part in first:
            return name
    return "note"
