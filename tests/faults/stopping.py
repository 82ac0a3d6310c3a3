"""Runs that stand still at a step of their work (SIGSTOP), and go on."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

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
def stopped(it: Scene, at: str | int) -> Iterator[Stopped]:
    """A run on the host "first" that stands still in the block, and goes on after it."""
    told = it.folder / "told"
    told.unlink(missing_ok=True)
    given = {"host": "first", "at": at, "told": str(told), "pieces": 5}
    command = it.begin(meddle=("tests.faults.other_host", given))
    found = Stopped()
    waiter = threading.Thread(target=lambda: setattr(found, "ran", command.end()))
    waiter.start()
    try:
        while waiter.is_alive() and found.step is None:
            if told.exists() and (text := told.read_text()) and _stands_still(int(text.split()[0])):
                found.pid, found.step = int(text.split()[0]), text.partition(" ")[2]
            time.sleep(0.005)
        yield found
    finally:
        if found.pid:
            os.kill(found.pid, signal.SIGCONT)
        waiter.join()


def _stands_still(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
