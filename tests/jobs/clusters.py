"""A real dask cluster on this machine: a scheduler and two workers, processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import free_port
from tests.jobs.command import ROOT
from tests.jobs.processes import wait_until

Process = subprocess.Popen[bytes]


@dataclass(frozen=True)
class Cluster:
    url: str  # as --executor takes it
    scheduler: Process
    workers: list[Process]
    folder: Path

    def logs(self) -> str:
        """All that scheduler and workers have written."""
        return "".join(path.read_text() for path in sorted(self.folder.glob("*.log")))


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """What they log, they log in full."""
    folder.mkdir()
    port = free_port()
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "HOME": str(folder),
        "DASK_LOGGING__DISTRIBUTED": "debug",
        "DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD": "spawn",
    }
    with ExitStack() as stack:

        def start(name: str, module: str, *arguments: str) -> Process:
            log = stack.enter_context((folder / f"{name}.log").open("wb"))
            command = [sys.executable, "-m", f"distributed.cli.{module}", *arguments, "--no-dashboard"]
            process = subprocess.Popen(
                command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
            stack.callback(_end, process)
            return process

        address = ["--host", "127.0.0.1", "--port", str(port)]
        scheduler = start("scheduler", "dask_scheduler", *address)
        there = [f"tcp://127.0.0.1:{port}", "--host", "127.0.0.1", "--nthreads", "1", "--no-nanny"]
        there += ["--local-directory", str(folder)]
        workers = [start(f"worker {number}", "dask_worker", *there) for number in (1, 2)]
        it = Cluster(f"dask://127.0.0.1:{port}", scheduler, workers, folder)
        wait_until(lambda: it.logs().count("Registered to:") == 2, "the workers have found no scheduler")
        yield it


def _end(process: Process) -> None:
    process.kill()
    process.wait()
