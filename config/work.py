"""What executes the tasks of a run, and how much memory it may take."""

from __future__ import annotations

from urllib.parse import urlsplit

from config.amounts import SIZE_REMEDY, format_size
from config.problems import Fault, ProblemReport
from config.tables import Workers

#: URL schemes of clusters, and the schemes of their client.
SCHEMES = {"dask": "tcp", "tls": "tls"}
MOST_WORKERS = 256
LEAST_MEMORY = 50_000_000
EXECUTOR_REMEDY = 'write the scheduler\'s address: "dask://host:8786", or "tls://host:8786" for TLS'
BOTH = "workers are processes on this machine, an executor is a cluster: use one of the two"


def executor_fault(url: str) -> str | None:
    """Returns what is wrong with the address of a cluster; None where nothing is."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "not a valid URL"
    if parts.scheme not in SCHEMES:
        return "it is not a dask:// or tls:// address"
    if "@" in url:
        return "credentials do not belong in this address: a scheduler takes none"
    if not host or port is None or parts.path or parts.query or parts.fragment:
        return "it has to be a host and a port, and nothing else"
    return None


def check_work(work: Workers, report: ProblemReport) -> None:
    """Reports a number of workers, an executor or a memory limit that can't be used."""
    if not 1 <= work.workers <= MOST_WORKERS:
        fault = Fault(f"it must be between 1 and {MOST_WORKERS}", "write the number of worker processes")
        report.add(("work", "workers"), fault)
    if work.executor is not None and (message := executor_fault(work.executor)):
        report.add(("work", "executor"), Fault(message, EXECUTOR_REMEDY))
    if work.executor is not None and work.workers > 1:
        fault = Fault(BOTH, "remove one of the two")
        report.add(("work", "executor"), fault, rests_on=[("work", "workers")])
    if work.memory < LEAST_MEMORY:
        fault = Fault(f"less than {format_size(LEAST_MEMORY)} is too little to work with", SIZE_REMEDY)
        report.add(("work", "memory"), fault)
