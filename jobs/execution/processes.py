"""Executes tasks in further processes on this machine."""

from __future__ import annotations

import multiprocessing
import pickle
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from queue import LifoQueue
from typing import ParamSpec, TypeVar, cast

from bucketwise.archivers.tasks import Task
from bucketwise.config.errors import BucketwiseError
from bucketwise.jobs.execution.worker import Outcome, WorkerSettings, do, serve

P = ParamSpec("P")
T = TypeVar("T")
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
        return self._threads.submit(self._do, partial(do, self.where, task, *plain, **named))

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
                return cast(Outcome[T], pickle.loads(answer)).get()
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
