"""One action in a process of its own: seconds, CPU on both sides, peak memory."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from importlib import import_module
from importlib.abc import MetaPathFinder
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import NamedTuple
from unittest.mock import patch

import pyarrow as pa

from bench import engines, peers
from bench.testbed import Action, Testbed
from bucketwise.buckets import heap

#: Modules that only one action needs: imported by its process, and not timed.
_LIBRARIES = {
    "minutes_by_pymongoarrow": ["pymongoarrow.api"],
    "summaries_by_duckdb_json": ["duckdb"],
    "parquet_by_duckdb_json": ["duckdb"],
    "summaries_by_duckdb_bson": ["duckdb"],
    "summaries_by_chdb": ["chdb.session"],
    "parquet_by_chdb": ["chdb.session"],
    "summaries_by_polars": ["polars", "pymongoarrow.api"],
    "summaries_by_dask": ["distributed"],
    "parquet_by_dask": ["distributed"],
}


#: What the jobs import once they begin, and what that brings.
_JOBS = [
    "bucketwise.archivers.format.parquet",
    "bucketwise.archivers.kinds.offline",
    "bucketwise.archivers.mirroring.changes",
    "bucketwise.archivers.moving.offline",
    "bucketwise.archivers.preconditions",
    "bucketwise.archivers.restoring.restore",
    "bucketwise.archivers.stores.file",
    "bucketwise.archivers.upkeep",
    "bucketwise.config.load",
    "bucketwise.jobs.core.fit",
    "bucketwise.jobs.core.known_series",
    "bucketwise.jobs.core.ranges",
    "bucketwise.jobs.core.runner",
    "bucketwise.jobs.core.workers",
]


class Measured(NamedTuple):
    """Time and memory that one action took."""

    seconds: float
    cpu: float  # seconds of this process, user and system, all threads
    server_cpu: float  # of mongod, meanwhile
    peak_mb: float  # of this process, from its start on


def measure(action: Action, testbed: Testbed) -> Measured:
    """Returns what one action took. Raises RuntimeError where it failed: its traceback is on stderr."""
    # Started as cron starts one. In a forked process, each page that it touches would be copied first.
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_run, args=(action, testbed, sender))
    with patch.dict(os.environ, _memory(action)):
        child.start()
    sender.close()
    try:
        measured: Measured = receiver.recv()
    except EOFError:
        raise RuntimeError(f"{action.__name__} failed") from None
    finally:
        child.join()
    return measured


def _memory(action: Action) -> dict[str, str]:
    """Returns the memory settings of the environment: for jobs and bounds as the program sets it up; for a
    script that somebody else runs, as Arrow and the C library do by themselves."""
    if _is_script(action):
        return {"ARROW_DEFAULT_MEMORY_POOL": pa.supported_memory_backends()[0]}
    return {name: str(value) for options in heap.OPTIONS for name, (_, value) in options.items()}


def _is_script(action: Action) -> bool:
    return action.__module__ in (engines.__name__, peers.__name__)


class _NoPandas(MetaPathFinder):
    """Hides pandas, which came with a peer and which nothing here needs. Where pyarrow finds it, it imports
    it: a third of a second."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ImportError(name)


def _run(action: Action, testbed: Testbed, answer: Connection) -> None:
    sys.meta_path.insert(0, _NoPandas())
    import_module("bench.cases")  # imports are nobody's time; their memory counts
    for module in _LIBRARIES.get(action.__name__, _JOBS):
        import_module(module)
    if not _is_script(action):  # one that makes many dicts is a fifth slower where what it imported is frozen
        heap.freeze_objects()  # as the program does
    testbed.database.command("ping")
    server, cpu, started = _server_cpu(testbed.server), time.process_time(), time.perf_counter()
    action(testbed)
    seconds = time.perf_counter() - started
    cpu, server = time.process_time() - cpu, _server_cpu(testbed.server) - server
    answer.send(Measured(seconds, cpu, server, _peak_mb()))


def _peak_mb() -> float:
    """Returns the peak memory. `getrusage` would include what this process had before it began: its parent's
    memory."""
    status = Path("/proc/self/status").read_text().partition("VmHWM:")[2]
    return int(status.split()[0]) / 1024


def _server_cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def medians(measured: list[Measured]) -> Measured:
    """Returns the median of each figure."""
    return Measured(*map(median, zip(*measured, strict=True)))
