"""Which processes another one has started, and those of these."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

_PATIENCE = 240


def descendants(pid: int) -> set[int]:
    """The living children of a process, and theirs."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            parents[int(stat.parent.name)] = int(fields[1])
    found: set[int] = set()
    new = {pid}
    while new := {child for child, parent in parents.items() if parent in new} - found:
        found |= new
    return found


def forkservers(pid: int) -> list[int]:
    """What the workers of a process are forked from. It may have started a browser, or a server, as well."""
    return [it for it in descendants(pid) if "multiprocessing.forkserver" in _command(it) and descendants(it)]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


def workers_of(pid: int) -> list[int]:
    """The processes that do the tasks of a run: children of one that it forks them from."""
    return sorted(it for server in forkservers(pid) for it in descendants(server))


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"after {_PATIENCE} s: {what}"
        os.sched_yield()
        time.sleep(0.01)
