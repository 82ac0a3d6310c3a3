"""Further processes that read and copy for a run."""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from queue import LifoQueue
from typing import Any, Generic, ParamSpec, TypeVar, cast
from urllib.parse import urlsplit

from pymongo.database import Database

from bucketwise.archivers.context import Connections, Executor, LocalExecutor, Task
from bucketwise.archivers.records.changes import StoreJournal
from bucketwise.archivers.stores import open_store
from bucketwise.buckets import heap
from bucketwise.config import VERSION
from bucketwise.config.checks.locations import SCHEMES
from bucketwise.config.errors import BucketwiseError, UsageError
from bucketwise.config.policies import Settings
from bucketwise.config.tables import MongoDB, Store
from bucketwise.jobs.core import clock, connect
from bucketwise.jobs.core.failures import failure_of
from bucketwise.jobs.core.lease import fence_of
from bucketwise.rollups.context import complete

T = TypeVar("T")
P = ParamSpec("P")
#: The database of the run that gives tasks; None where nothing else reads there.
RunDatabase = Database[dict[str, Any]] | None

_SECONDS_TO_CONNECT, _SECONDS_WITHOUT_WORKERS, _SECONDS_BETWEEN_CHECKS = 10, 60, 5
_TLS = ("CA_FILE", "CLIENT__CERT", "CLIENT__KEY")


def distributed() -> Any:
    """Returns the library. Raises UsageError where it is not installed."""
    try:
        import distributed
    except ImportError as error:
        raise UsageError(
            f"--executor: dask.distributed is not installed here ({error}). Install it: pip install "
            "'bucketwise[dask]'; or work with --workers. Nothing was changed"
        ) from error
    for name in ("distributed", "distributed.client", "tornado", "tornado.application", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what it has to say, we say
    return distributed


def check_client(url: str) -> None:
    """Raises UsageError where this process could not speak to that cluster."""
    library = distributed()
    if urlsplit(url).scheme != "tls":
        return
    try:
        context = library.Security().get_connection_args("client").get("ssl_context")
    except (OSError, ValueError) as error:
        raise UsageError(f"--executor {url}: dask's TLS settings don't work: {error}") from error
    if context is None:
        variables = ", ".join(f"DASK_DISTRIBUTED__COMM__TLS__{it}" for it in _TLS)
        raise UsageError(
            f"--executor {url}: dask's settings name no certificates. Set {variables}. Nothing was changed"
        )


@contextmanager
def cluster(url: str, where: WorkerSettings, memory: int, database: RunDatabase) -> Iterator[DaskExecutor]:
    """Yields an executor on a dask cluster. Raises BucketwiseError where no scheduler with workers
    answers."""
    library, parts = distributed(), urlsplit(url)
    address = f"{SCHEMES[parts.scheme]}://{parts.netloc}"
    try:
        client = library.Client(address, timeout=_SECONDS_TO_CONNECT, set_as_default=False, name="bucketwise")
    except Exception as error:
        raise _failure(
            url,
            f"no dask scheduler answers there ({_first_line(error)}). Start one with `dask scheduler`, or "
            "leave --executor out. Nothing was changed",
        ) from error
    try:
        found = DaskExecutor(url, client, where, memory, database)
        found.wait_for_workers()
        yield found
    finally:
        with suppress(Exception):  # it may be gone
            client.close(timeout=_SECONDS_BETWEEN_CHECKS)


@dataclass
class DaskExecutor:
    """Executes tasks on a cluster. If a worker dies, the scheduler gives its tasks to others."""

    url: str
    client: Any
    where: WorkerSettings
    memory: int
    database: RunDatabase = None
    workers: int = 2
    _seen_at: float = 0.0
    _asked_at: float = 0.0

    def __post_init__(self) -> None:
        # Not pure: dask would take equal tasks for one, whose result may be from an earlier roll-up.
        self._executor = self.client.get_executor(pure=False)

    def wait_for_workers(self) -> None:
        """Waits for a worker, and counts their threads. Raises where none comes."""
        try:
            self.client.wait_for_workers(1, timeout=_SECONDS_TO_CONNECT)
            threads = sum(self.client.nthreads().values())
        except Exception as error:
            message = "the cluster has no workers. Start some with `dask worker`. Nothing was changed"
            raise _failure(self.url, message) from error
        self.workers = max(2, threads)
        self._seen_at = self._asked_at = clock.steady()

    def submit(self, task: Task[P, T], *plain: P.args, **named: P.kwargs) -> Future[T]:
        """Sends the task to the cluster. Returns a future of its outcome."""
        outer: Future[T] = Future()
        seen = connect.seen_by(self.database)
        inner = self._executor.submit(partial(do, self.where, seen, task, *plain, **named))
        inner.add_done_callback(lambda inner: complete(outer, self._result, inner))
        return outer

    def check(self) -> None:
        """Raises an error if all workers, or the scheduler, are gone: tasks would wait forever."""
        now = clock.steady()
        if now - self._asked_at < _SECONDS_BETWEEN_CHECKS:
            return
        self._asked_at = now
        try:
            if self.client.nthreads():
                self._seen_at = now
        except Exception as error:
            raise self._gone() from error
        if now - self._seen_at >= _SECONDS_WITHOUT_WORKERS:
            message = f"the cluster had no workers for {_SECONDS_WITHOUT_WORKERS} s. What was done is kept"
            raise _failure(self.url, message)

    def _result(self, done: Future[Outcome[T]]) -> T:
        """Raises the error of the task, or of the cluster."""
        error = CancelledError() if done.cancelled() else done.exception()
        if error is None:
            return done.result().get(self.database)
        if isinstance(error, CancelledError | OSError):
            raise self._gone()
        if type(error).__name__ == "KilledWorker":
            raise _failure(
                self.url,
                "workers of the cluster died in the middle of a task, one after another. Were they out of "
                "memory? Their logs may say",
            )
        raise _failure(
            self.url,
            f"a worker can't do the work ({type(error).__name__}: {_first_line(error)}). Install "
            f"{self.where.version}, and the same Python, there as well",
        )

    def _gone(self) -> BucketwiseError:
        return _failure(self.url, "the connection to the scheduler is lost. What was done is kept")


def _failure(url: str, what: str) -> BucketwiseError:
    return BucketwiseError(f"--executor {url}: {what}. It is safe to run again")


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


_SECONDS_TO_LEAVE = 3


@cache
def _versions() -> str:
    """Returns the versions that decide on the bytes of a part: a task that is executed twice writes the same
    files."""
    from bucketwise.archivers.format.parquet import WRITTEN_BY

    return f"bucketwise {VERSION} with {WRITTEN_BY}"


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
        return cls(settings.mongodb, store, _versions())


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """The result or the error of a task. It is returned and not raised, because a cluster logs what is
    raised."""

    value: T | None = None
    error: BucketwiseError | None = None
    seen: connect.Seen = field(default_factory=connect.Seen)

    @classmethod
    def of_error(cls, error: Exception, where: WorkerSettings) -> Outcome[T]:
        """Puts the error into words here: an exception of another library need not be fit to travel, and
        might say more than it may."""
        if isinstance(error, BucketwiseError):
            return cls(error=error)
        failure = failure_of(error, connect.hosts(where.mongodb))
        error = BucketwiseError(failure.message)
        error.exit_code = failure.exit_code
        return cls(error=error)

    def get(self, database: RunDatabase = None) -> T:
        """Returns what the task returned, in the run that submitted it, which reads nothing older than what
        the worker has seen from then on. Raises what it raised."""
        if database is not None:
            connect.read_on(database, self.seen)
        if self.error is not None:
            raise self.error
        return cast(T, self.value)


def do(
    where: WorkerSettings, seen: connect.Seen, task: Callable[..., T], *plain: Any, **named: Any
) -> Outcome[T]:
    """Does a task: this is what a worker calls. `seen`: by the run, until it gave the task."""
    try:
        if where.version != _versions():
            raise BucketwiseError(
                f"a worker has {_versions()}, and this run {where.version}: install the same versions "
                "everywhere. It is safe to run again"
            )
        connections = _connections(where)
        connect.read_on(connections.database, seen)
        return Outcome(task(connections, *plain, **named), seen=connect.seen_by(connections.database))
    except Exception as error:  # noqa: BLE001  # reported by the run
        return Outcome.of_error(error, where)


@lru_cache(maxsize=4)
def _connections(where: WorkerSettings) -> Connections:
    database = connect.connect(where.mongodb)[where.mongodb.database]
    journal = StoreJournal(clock.current, database)
    store = None if where.store is None else open_store(where.store, journal)
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


_TRIES = 3
#: Longer than a worker takes to end by itself.
SECONDS_TO_LEAVE = 5
#: Each worker is forked from a process that has set up its memory, imported everything, and opened nothing.
_CONTEXT = multiprocessing.get_context("forkserver")


_CONTEXT.set_forkserver_preload(["bucketwise.jobs.cli"])


@dataclass(frozen=True)
class _Worker:
    """A process, and the pipe that sends it calls and returns outcomes. No other process holds the far
    end, so that the pipe ends whenever the process does, even in the middle of an outcome."""

    process: ForkServerProcess
    pipe: Connection

    @classmethod
    def start(cls, where: WorkerSettings, parent: Connection) -> _Worker:
        ours, theirs = _CONTEXT.Pipe()
        with theirs:
            process = _CONTEXT.Process(target=serve, args=(where, theirs, parent), daemon=True)
            process.start()
        return cls(process, ours)

    def ask(self, call: bytes) -> bytes:
        """Raises EOFError or OSError where the process has ended."""
        self.pipe.send_bytes(call)
        return self.pipe.recv_bytes()

    def end(self) -> None:
        """Waits for the process to exit; kills it if it does not."""
        self.process.join(SECONDS_TO_LEAVE)
        self.process.kill()


@dataclass
class ProcessExecutor:
    """Executes tasks in processes of this machine, started when there is work for them. If one dies, its task
    is tried again.

    A thread waits for each task that is under way; one more has the next task ready while an outcome is
    unpickled. Workers end when the other end of a pipe is closed: also where this process is killed.
    """

    workers: int
    memory: int
    where: WorkerSettings
    database: RunDatabase = None
    _idle: LifoQueue[_Worker | None] = field(default_factory=LifoQueue)  # None: to be started
    _started: list[_Worker] = field(default_factory=list)
    _is_closed: bool = False

    def __post_init__(self) -> None:
        self._theirs, self._ours = _CONTEXT.Pipe(duplex=False)
        self._threads = ThreadPoolExecutor(self.workers + 1, "bucketwise-worker")
        for _ in range(self.workers):
            self._idle.put(None)

    def submit(self, task: Task[P, T], *plain: P.args, **named: P.kwargs) -> Future[T]:
        """Queues the task for a worker process. Returns a future of its outcome."""
        call = partial(do, self.where, connect.seen_by(self.database), task, *plain, **named)
        return self._threads.submit(self._do, call)

    def check(self) -> None:
        """Does nothing: if all workers die, new ones are started."""

    def close(self) -> None:
        """Ends the workers, whatever they are at."""
        self._is_closed = True
        self._ours.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in self._started.copy():
            worker.end()
        self._threads.shutdown()
        self._theirs.close()

    def _do(self, call: partial[Outcome[T]]) -> T:
        """Raises what the task raises."""
        pickled = pickle.dumps(call)
        for _ in range(_TRIES):
            answer = self._ask(pickled)
            if answer is not None:
                return cast(Outcome[T], pickle.loads(answer)).get(self.database)
        raise BucketwiseError(
            f"worker processes ended in the middle of their work, or did not start, {_TRIES} times. Were "
            "they out of memory? Name fewer --workers, or make work.memory smaller. It is safe to run again"
        )

    def _ask(self, call: bytes) -> bytes | None:
        """Returns the answer of a worker; None if it died or did not start."""
        worker = self._idle.get()
        try:
            if self._is_closed:
                raise CancelledError
            if worker is None:
                worker = _Worker.start(self.where, self._theirs)
                self._started.append(worker)
            answer = worker.ask(call)
        except BaseException as error:
            self._idle.put(None)  # what else it says would be taken for the answer to another call
            if worker is not None:
                worker.end()
                self._started.remove(worker)
            if isinstance(error, EOFError | OSError):
                return None
            raise
        self._idle.put(worker)
        return answer


@contextmanager
def executor_for(settings: Settings, connections: Connections) -> Iterator[Executor]:
    """Yields an executor for one run of one policy, as its settings say. Raises BucketwiseError where the
    cluster can't be reached."""
    work, database = settings.work, connections.database
    if work.executor is not None:
        with cluster(work.executor, WorkerSettings.of(settings), work.memory, database) as found:
            yield found
    elif work.workers > 1:
        where = WorkerSettings.of(settings)
        with closing(ProcessExecutor(work.workers, work.memory, where, database)) as processes:
            yield processes
    else:
        yield LocalExecutor(connections, memory=work.memory)
