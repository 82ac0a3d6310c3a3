"""Executes tasks on a dask.distributed cluster."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, ParamSpec, TypeVar
from urllib.parse import urlsplit

from bucketwise.archivers.context import Task
from bucketwise.config.checks.locations import SCHEMES
from bucketwise.config.errors import BucketwiseError, UsageError
from bucketwise.jobs.core import clock
from bucketwise.jobs.core.workers import Outcome, WorkerSettings, do
from bucketwise.rollups.context import complete

T = TypeVar("T")
P = ParamSpec("P")

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
def cluster(url: str, where: WorkerSettings, memory: int) -> Iterator[DaskExecutor]:
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
        found = DaskExecutor(url, client, where, memory)
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
        inner = self._executor.submit(partial(do, self.where, task, *plain, **named))
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
            return done.result().get()
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
