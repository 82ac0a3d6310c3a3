"""Who does the units of work of a run: this process, further ones, or a cluster."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import connection
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from archivers.units import Here, Opened, Units
from config.errors import BucketwiseError
from config.policies import Settings
from jobs.execution.cluster import cluster
from jobs.execution.task import Outcome, Where, do, enter, promised, settle

P = ParamSpec("P")
T = TypeVar("T")
_TRIES = 3
#: As long may the executor take to see that one has died: it may be reading what another one says.
_SECONDS_TO_BE_MISSED = 2.0
#: Each worker is forked from a process that has imported all, set up its memory first, and opened nothing.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["jobs.cli"])


class Workers(Units, Protocol):
    """Units in the words of a run."""

    def check(self) -> None:
        """Raises BucketwiseError where nobody is left to do them."""


@dataclass(frozen=True)
class Alone(Here):
    """This process."""

    def check(self) -> None:
        """It is there."""


@contextmanager
def alone(opened: Opened) -> Iterator[Workers]:
    """What has no units, or few."""
    yield Alone(opened)


@contextmanager
def workers(settings: Settings, opened: Opened) -> Iterator[Workers]:
    """For one run of one policy. Raises BucketwiseError where the cluster can't be reached."""
    work = settings.work
    if work.executor is not None:
        with cluster(work.executor, Where.of(settings), work.memory) as found:
            yield found
    elif work.workers > 1:
        pool = Processes(work.workers, work.memory, Where.of(settings))
        try:
            yield pool
        finally:
            pool.close()
    else:
        yield Alone(opened, memory=work.memory)


@dataclass
class Processes:
    """Processes of this machine, started with the first unit. Units of one that dies are tried again."""

    workers: int
    memory: int
    where: Where
    _pool: _Pool | None = None
    _is_closed: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def submit(
        self, unit: Callable[Concatenate[Opened, P], T], *plain: P.args, **named: P.kwargs
    ) -> Future[T]:
        outer: Future[T] = promised()
        self._start(outer, partial(do, self.where, unit, *plain, **named), 1)
        return outer

    def check(self) -> None:
        """Where all die, new ones are started."""
        if (pool := self._pool) is not None:
            pool.see()

    def close(self) -> None:
        """Ends them, whatever they are at."""
        with self._lock:
            pool, self._pool, self._is_closed = self._pool, None, True
        if pool is not None:
            pool.close()

    def _start(self, outer: Future[T], task: Callable[[], Outcome[T]], tries: int) -> None:
        with self._lock:
            pool = self._pool = None if self._is_closed else self._pool or _Pool(self.workers)
        if pool is None:
            outer.set_exception(CancelledError())
            return
        # Without the lock: `submit` waits for one of the executor, and whoever has that may be telling us of
        # a death, for which `_again` takes ours. So the pool may end meanwhile.
        try:
            inner = pool.executor.submit(task)
        except (BrokenProcessPool, EOFError, OSError):  # or what they are forked from has died
            inner = None
        except RuntimeError:
            if not pool.executor._shutdown_thread:  # what else it can't do, for want of threads maybe
                raise
            inner = None
        if inner is None:
            self._again(pool, outer, task, tries)
        else:
            inner.add_done_callback(partial(self._ended, pool, outer, task, tries))

    def _ended(
        self,
        pool: _Pool,
        outer: Future[T],
        task: Callable[[], Outcome[T]],
        tries: int,
        inner: Future[Outcome[T]],
    ) -> None:
        if not inner.cancelled() and isinstance(inner.exception(), BrokenProcessPool):
            self._again(pool, outer, task, tries)
        else:
            settle(outer, inner)

    def _again(self, broken: _Pool, outer: Future[T], task: Callable[[], Outcome[T]], tries: int) -> None:
        with self._lock:
            if self._pool is broken:
                self._pool = None
                broken.leave()
        if tries < _TRIES or self._is_closed:  # then it is cancelled
            self._start(outer, task, tries + 1)
            return
        outer.set_exception(
            BucketwiseError(
                f"worker processes ended in the midst of their work, or did not start, {_TRIES} times. Were "
                "they out of memory? Name fewer --workers, or make work.memory smaller. It is safe to run "
                "again"
            )
        )


class _Pool:
    """Processes, and the pipe whose end tells them to leave: also where this process is killed."""

    def __init__(self, count: int) -> None:
        # Both ends: a process is started when there is work for it.
        self._theirs, self._ours = _CONTEXT.Pipe(duplex=False)
        self.executor = ProcessPoolExecutor(
            count, mp_context=_CONTEXT, initializer=enter, initargs=(self._theirs,)
        )
        self._dead_since: float | None = None

    def see(self) -> None:
        """The executor does not miss one that died in the midst of an answer: it waits for the rest."""
        processes = list((self.executor._processes or {}).values())
        if not connection.wait([it.sentinel for it in processes], 0):
            self._dead_since = None
        elif self._dead_since is None:
            self._dead_since = time.monotonic()
        elif time.monotonic() > self._dead_since + _SECONDS_TO_BE_MISSED:
            self._hear_no_more()

    def _hear_no_more(self) -> None:
        """Once all have left, nobody can write to the pipe of answers: the executor finds its end."""
        self.leave()
        self.executor._result_queue._writer.close()  # type: ignore[attr-defined]

    def leave(self) -> None:
        """Says so to all that still live. What they are at counts for nothing before the run takes it."""
        self._ours.close()

    def close(self) -> None:
        self._hear_no_more()
        self.executor.shutdown(wait=True, cancel_futures=True)
        self._theirs.close()
