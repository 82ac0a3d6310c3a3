"""A unit of work, in the process that does it: opens MongoDB and the store, once, and reads."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from multiprocessing.connection import Connection
from typing import Any, Generic, TypeVar, cast

from archivers.format.parquet import WRITTEN_BY
from archivers.stores import open_store
from archivers.units import Opened
from buckets import heap
from config.errors import BucketwiseError
from config.policies import MongoDB, Settings, Store
from jobs import connect
from jobs.failures import explain
from jobs.running.lease import fence_of
from jobs.version import VERSION

T = TypeVar("T")
_SECONDS_TO_LEAVE = 3
_AT_WORK = threading.Event()


@dataclass(frozen=True)
class Where:
    """All that a worker has to know. Its text hides the password; the signing key is not in it: what is
    signed, the run signs."""

    mongodb: MongoDB
    store: Store | None
    version: str

    @classmethod
    def of(cls, settings: Settings) -> Where:
        store = settings.store and settings.store.model_copy(update={"signing_key": ()})
        return cls(settings.mongodb, store, _versions())


class WorkerFailure(BucketwiseError):
    """What failed in a worker, told there: an exception of another library need not be fit to travel, and
    might say more than it may."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message, exit_code)
        self.exit_code = exit_code

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """What a unit gave or raised. It is handed back, not raised: a cluster logs what is raised."""

    value: T | None = None
    error: BucketwiseError | None = None


def _versions() -> str:
    """Of what decides on the bytes of a part: a unit that is done twice writes the same files."""
    return f"bucketwise {VERSION} with {WRITTEN_BY}"


def do(where: Where, unit: Callable[..., T], *plain: Any) -> Outcome[T]:
    """What a worker calls."""
    _AT_WORK.set()
    try:
        if where.version != (ours := _versions()):
            raise BucketwiseError(
                f"a worker has {ours}, and this run {where.version}: install the same versions everywhere. "
                "It is safe to run again"
            )
        return Outcome(unit(_opened(where), *plain))
    except BucketwiseError as error:
        return Outcome(error=error)
    except Exception as error:  # noqa: BLE001  # told by the run
        failure = explain(error, connect.hosts(where.mongodb))
        return Outcome(error=WorkerFailure(failure.message, failure.exit_code))
    except SystemExit:
        os._exit(1)
    finally:
        _AT_WORK.clear()


def promised() -> Future[Any]:
    """A future that is there to be settled: who asked for it can't cancel it, and need not hear of it."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    return future


def settle(outer: Future[T], inner: Future[Outcome[T]]) -> None:
    """The outcome of a unit as that of the future that the run waits for."""
    if inner.cancelled():
        outer.set_exception(CancelledError())
    elif error := inner.exception():
        outer.set_exception(error)
    elif (outcome := inner.result()).error is not None:
        outer.set_exception(outcome.error)
    else:
        outer.set_result(cast(T, outcome.value))


@lru_cache(maxsize=4)
def _opened(where: Where) -> Opened:
    client = connect.connect(where.mongodb)
    database = client[where.mongodb.database]
    store = None if where.store is None else open_store(where.store)
    return Opened(database, store, partial(fence_of, database))


def enter(parent: Connection) -> None:
    """Makes a process a worker: it leaves when the other end of `parent` is closed, or its owner dies. What
    a terminal sends to all, the parent answers."""
    heap.keep()
    heap.freeze()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    sys.unraisablehook = _leave_from_where_nothing_is_raised
    threading.Thread(target=_leave_with, args=[parent], name="parent", daemon=True).start()


def _leave(*_: object) -> None:
    if not _AT_WORK.is_set():
        os._exit(1)
    raise SystemExit(1)  # through what the unit has open, temporary files for one


def _leave_from_where_nothing_is_raised(found: sys.UnraisableHookArgs) -> None:
    """In an object's `__del__`, for one, where the worker would tell of the exit and work on."""
    if issubclass(found.exc_type, SystemExit):
        os._exit(1)
    sys.__unraisablehook__(found)


def _leave_with(parent: Connection) -> None:
    with suppress(EOFError, OSError):
        parent.recv_bytes()
    os.kill(os.getpid(), signal.SIGTERM)  # heard by the main thread
    threading.Event().wait(_SECONDS_TO_LEAVE)
    os._exit(1)
