"""A dask.distributed cluster that does units of work."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import urlsplit

from archivers.units import Opened
from config.errors import BucketwiseError, UsageError
from config.work import SCHEMES
from jobs import clock
from jobs.execution.task import Outcome, Where, do, promised, settle

P = ParamSpec("P")
T = TypeVar("T")
_SECONDS_TO_CONNECT, _SECONDS_WITHOUT_WORKERS, _SECONDS_BETWEEN_CHECKS = 10, 60, 5
_TLS = ("CA_FILE", "CLIENT__CERT", "CLIENT__KEY")
_AGAIN = "It is safe to run again"


def distributed() -> Any:
    """The library. Raises UsageError where it is not installed."""
    try:
        import distributed
    except ImportError as error:
        raise UsageError(
            f"--executor: dask.distributed is not installed here ({error}). Install it: pip install "
            "'bucketwise[dask]'; or work with --workers. Nothing was touched"
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
            f"--executor {url}: dask's settings name no certificates. Set {variables}. Nothing was touched"
        )


@contextmanager
def cluster(url: str, where: Where, memory: int) -> Iterator[Cluster]:
    """Raises BucketwiseError where no scheduler with workers answers."""
    library, parts = distributed(), urlsplit(url)
    address = f"{SCHEMES[parts.scheme]}://{parts.netloc}"
    try:
        client = library.Client(address, timeout=_SECONDS_TO_CONNECT, set_as_default=False, name="bucketwise")
    except Exception as error:
        raise BucketwiseError(
            f"--executor {url}: no dask scheduler answers there ({_first_line(error)}). Start one with "
            f"`dask scheduler`, or leave --executor out. Nothing was changed. {_AGAIN}"
        ) from error
    try:
        found = Cluster(url, client, where, memory)
        found.wait_for_workers()
        yield found
    finally:
        with suppress(Exception):  # it may be gone
            client.close(timeout=_SECONDS_BETWEEN_CHECKS)


@dataclass
class Cluster:
    """Units in the words of dask. A worker that dies is none of our business: the scheduler gives its units
    to others."""

    url: str
    client: Any
    where: Where
    memory: int
    workers: int = 2
    _seen_at: float = 0.0
    _asked_at: float = 0.0

    def __post_init__(self) -> None:
        # Not pure: to dask equal units would be one, whose result may be from an earlier roll-up.
        self._executor = self.client.get_executor(pure=False)

    def wait_for_workers(self) -> None:
        try:
            self.client.wait_for_workers(1, timeout=_SECONDS_TO_CONNECT)
            threads = sum(self.client.nthreads().values())
        except Exception as error:
            raise BucketwiseError(
                f"--executor {self.url}: the cluster has no workers. Start some with `dask worker`. Nothing "
                f"was changed. {_AGAIN}"
            ) from error
        self.workers = max(2, threads)
        self._seen_at = self._asked_at = clock.steady()

    def submit(
        self, unit: Callable[Concatenate[Opened, P], T], *plain: P.args, **named: P.kwargs
    ) -> Future[T]:
        outer: Future[T] = promised()
        inner = self._executor.submit(partial(do, self.where, unit, *plain, **named))
        inner.add_done_callback(partial(self._ended, outer))
        return outer

    def check(self) -> None:
        """Units wait for ever where all workers have gone, and for nothing where the scheduler has."""
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
            raise BucketwiseError(
                f"--executor {self.url}: for {_SECONDS_WITHOUT_WORKERS} s the cluster has had no workers. "
                f"What was done stands. {_AGAIN}"
            )

    def _ended(self, outer: Future[T], inner: Future[Outcome[T]]) -> None:
        error = CancelledError() if inner.cancelled() else inner.exception()
        if error is None:
            settle(outer, inner)
        elif isinstance(error, CancelledError | OSError):
            outer.set_exception(self._gone())
        elif type(error).__name__ == "KilledWorker":
            outer.set_exception(
                BucketwiseError(
                    f"--executor {self.url}: workers of the cluster died in the midst of a unit, one after "
                    f"another. Were they out of memory? Their logs may say. {_AGAIN}"
                )
            )
        else:
            outer.set_exception(
                BucketwiseError(
                    f"--executor {self.url}: a worker can't do the work ({type(error).__name__}: "
                    f"{_first_line(error)}). Has it bucketwise {self.where.version}, and the same Python? "
                    f"{_AGAIN}"
                )
            )

    def _gone(self) -> BucketwiseError:
        return BucketwiseError(
            f"--executor {self.url}: the connection to the scheduler is lost. What was done stands. {_AGAIN}"
        )


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
