"""Runs that stand still at a step of their work (SIGSTOP), and go on."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pymongo import MongoClient
from pymongo.database import Database

from bucketwise.jobs.core.lease import COLLECTION as LEASES
from tests.faults.scene import Scene
from tests.jobs.command import Ran


@dataclass
class Stopped:
    """`step`: where it stands still; None where it came to its end before. `ran`: how it ended at last."""

    pid: int = 0
    step: str | None = None
    ran: Ran | None = None

    @property
    def code(self) -> int:
        assert self.ran is not None
        return self.ran.code


@contextmanager
def stopped(
    it: Scene, at: str | int | Callable[[], bool], *arguments: str, asleep: float = 3600
) -> Iterator[Stopped]:
    """A run on the host "first" that stands still in the block, and goes on after it. `at`: a step, or what
    says when to stop it. `asleep`: how many seconds later it is by its clock then."""
    told = it.folder / "told"
    told.unlink(missing_ok=True)
    given = {
        "host": "first",
        "at": None if callable(at) else at,
        "told": str(told),
        "pieces": 5,
        "at_once": 3,
        "asleep": asleep,
    }
    command = it.begin("run", *arguments, meddle=("tests.faults.other_host", given))
    found = Stopped()
    waiter = threading.Thread(target=lambda: setattr(found, "ran", command.end()))
    waiter.start()
    try:
        while waiter.is_alive() and found.step is None:
            pid, _, step = told.read_text().partition(" ") if told.exists() else ("", "", "")
            if pid and callable(at) and at():
                os.kill(int(pid), signal.SIGSTOP)
            if pid and _stands_still(int(pid)):
                found.pid, found.step = int(pid), step
            time.sleep(0.005)
        yield found
    finally:
        if found.pid:
            os.kill(found.pid, signal.SIGCONT)
        waiter.join()


def _stands_still(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def expire_the_lease(database: Database[dict[str, Any]]) -> None:
    """As a minute without renewal does."""
    database[LEASES].update_many({}, {"$set": {"expires_at": datetime(1970, 1, 1, tzinfo=UTC)}})


@contextmanager
def set_parameter(client: MongoClient[dict[str, Any]], name: str, value: int) -> Iterator[None]:
    """Of the server, for the block."""
    standing = client.admin.command({"getParameter": 1, name: 1})[name]
    client.admin.command({"setParameter": 1, name: value})
    try:
        yield
    finally:
        client.admin.command({"setParameter": 1, name: standing})
