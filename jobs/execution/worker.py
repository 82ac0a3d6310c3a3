"""Runs in the process that executes tasks: connects to MongoDB and the store once, then executes each
task."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from multiprocessing.connection import Connection
from typing import Any, Generic, TypeVar, cast

from bucketwise import __version__
from bucketwise.archivers.format.parquet import WRITTEN_BY
from bucketwise.archivers.stores import open_store
from bucketwise.archivers.tasks import Connections
from bucketwise.buckets import heap
from bucketwise.config.errors import BucketwiseError
from bucketwise.config.policies import Settings
from bucketwise.config.tables import MongoDB, Store
from bucketwise.jobs import connect
from bucketwise.jobs.failures import explain
from bucketwise.jobs.running.lease import fence_of

T = TypeVar("T")
_SECONDS_TO_LEAVE = 3
#: Versions that decide on the bytes of a part: a task that is executed twice writes the same files.
_VERSIONS = f"bucketwise {__version__} with {WRITTEN_BY}"


@dataclass(frozen=True)
class WorkerSettings:
    """The settings that a worker needs. Their text hides the password. The signing key is not among
    them: only the run signs."""

    mongodb: MongoDB
    store: Store | None
    version: str

    @classmethod
    def of(cls, settings: Settings) -> WorkerSettings:
        """Returns what a worker needs of the settings, without signing keys."""
        store = settings.store and settings.store.model_copy(update={"signing_key": ()})
        return cls(settings.mongodb, store, _VERSIONS)


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """The result or the error of a task. It is returned and not raised, because a cluster logs what is
    raised."""

    value: T | None = None
    error: BucketwiseError | None = None

    @classmethod
    def of_error(cls, error: Exception, where: WorkerSettings) -> Outcome[T]:
        """Puts the error into words here: an exception of another library need not be fit to travel, and
        might say more than it may."""
        if isinstance(error, BucketwiseError):
            return cls(error=error)
        failure = explain(error, connect.hosts(where.mongodb))
        error = BucketwiseError(failure.message)
        error.exit_code = failure.exit_code
        return cls(error=error)

    def get(self) -> T:
        """Returns what the task returned, in the run that submitted it. Raises what it raised."""
        if self.error is not None:
            raise self.error
        return cast(T, self.value)


def do(where: WorkerSettings, task: Callable[..., T], *plain: Any, **named: Any) -> Outcome[T]:
    """Does a task: this is what a worker calls."""
    try:
        if where.version != _VERSIONS:
            raise BucketwiseError(
                f"a worker has {_VERSIONS}, and this run {where.version}: install the same versions "
                "everywhere. It is safe to run again"
            )
        return Outcome(task(_connections(where), *plain, **named))
    except Exception as error:  # noqa: BLE001  # reported by the run
        return Outcome.of_error(error, where)


@lru_cache(maxsize=4)
def _connections(where: WorkerSettings) -> Connections:
    database = connect.connect(where.mongodb)[where.mongodb.database]
    store = None if where.store is None else open_store(where.store)
    return Connections(database, store, partial(fence_of, database))


def serve(where: WorkerSettings, calls: Connection, parent: Connection) -> None:
    """Executes the tasks that come over `calls`, one after another, until the process is told to leave."""
    become_worker(parent)
    try:
        while True:
            try:
                calls.send(calls.recv()())
            except (EOFError, OSError):
                break  # the run is no more
            except Exception as error:  # noqa: BLE001  # it can't be pickled: nothing was sent
                calls.send(Outcome.of_error(error, where))
    finally:
        os._exit(1)


def become_worker(parent: Connection) -> None:
    """Turns a process into a worker. It exits when the other end of `parent` is closed, or when its
    owner dies. It ignores signals from the terminal, which the parent handles."""
    heap.keep_freed_memory()
    heap.freeze_objects()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _exit_cleanly)
    sys.unraisablehook = _exit_if_unraisable
    threading.Thread(target=_exit_with_parent, args=[parent], name="parent", daemon=True).start()


def _exit_cleanly(*_: object) -> None:
    """Leaves through what the task has open, temporary files for one."""
    raise SystemExit(1)


def _exit_if_unraisable(found: sys.UnraisableHookArgs) -> None:
    """Exits if an exception was raised where Python cannot raise it, such as in `__del__`. The worker
    would otherwise log it and work on."""
    if issubclass(found.exc_type, SystemExit):
        os._exit(1)
    sys.__unraisablehook__(found)


def _exit_with_parent(parent: Connection) -> None:
    with suppress(EOFError, OSError):
        parent.recv_bytes()
    os.kill(os.getpid(), signal.SIGTERM)  # handled by the main thread
    threading.Event().wait(_SECONDS_TO_LEAVE)
    os._exit(1)
