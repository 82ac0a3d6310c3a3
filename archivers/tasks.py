"""Executors of tasks: functions of plain values that read MongoDB and a store, give plain values, and write
nothing to MongoDB. They are done here, or in other processes that connect to both by the settings."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from pymongo.database import Database

from bucketwise.archivers.format.keys import UNSIGNED, Keys
from bucketwise.archivers.stores.base import ObjectStore
from bucketwise.config.tables import USUAL_MEMORY
from bucketwise.rollups.context import run_now

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Connections:
    """What a task works with, in the process that executes it."""

    database: Database[dict[str, Any]]
    store: ObjectStore | None
    #: Returns the present fence of a policy's lease; None where it was never acquired.
    fence_of: Callable[[str], int | None] = lambda _policy: None
    keys: Keys = UNSIGNED  # with any, commits must be signed by one of them


#: A function of a module.
Task = Callable[Concatenate[Connections, P], T]


class Executor(Protocol):
    """Executes tasks, for one run of one policy."""

    @property
    def workers(self) -> int:
        """Returns how many tasks are done at once."""

    @property
    def memory(self) -> int:
        """Returns how many bytes a run may take, for results that wait for their turn and for what is
        copied."""

    def submit(self, task: Task[P, T], *plain: P.args, **named: P.kwargs) -> Future[T]:
        """Returns the future of the task. What it raises, `result()` raises."""

    def check(self) -> None:
        """Raises BucketwiseError where no worker is left."""


@dataclass(frozen=True)
class LocalExecutor:
    """Executes tasks in this process, one after another, each when it is submitted."""

    connections: Connections
    workers: int = 1
    memory: int = USUAL_MEMORY

    def submit(self, task: Task[P, T], *plain: P.args, **named: P.kwargs) -> Future[T]:
        """Does the task now, and returns its outcome as a future that is done."""
        return run_now(task, self.connections, *plain, **named)

    def check(self) -> None:
        """Does nothing: this process is there."""
