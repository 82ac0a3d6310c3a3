"""Chooses what executes the tasks of a run: this process, further ones, or a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from archivers.tasks import Connections, Executor, LocalExecutor
from config.policies import Settings
from jobs.execution.cluster import cluster
from jobs.execution.processes import ProcessExecutor
from jobs.execution.worker import WorkerSettings


@contextmanager
def executor_for(settings: Settings, connections: Connections) -> Iterator[Executor]:
    """Yields an executor for one run of one policy, as its settings say. Raises BucketwiseError where the
    cluster can't be reached."""
    work = settings.work
    if work.executor is not None:
        with cluster(work.executor, WorkerSettings.of(settings), work.memory) as found:
            yield found
    elif work.workers > 1:
        with closing(ProcessExecutor(work.workers, work.memory, WorkerSettings.of(settings))) as processes:
            yield processes
    else:
        yield LocalExecutor(connections, memory=work.memory)
