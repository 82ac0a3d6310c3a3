"""Hosts with clocks of their own, as libfaketime gives them: whatever a process reads of the time is off, not
just what bucketwise asks for. A clock is a file, and can be set while a process works."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen

from tests.faults.scene import CREDENTIALS, NOW, Scene
from tests.jobs.command import Ran, started

_LIBRARIES = "*/faketime/libfaketimeMT.so.1"


def library() -> str:
    """The file of libfaketime."""
    found = [*Path("/usr/lib").glob(_LIBRARIES)]
    assert found, "install faketime, as .ci/test-programs proof does"
    return str(found[0])


@dataclass
class Host:
    """A machine, on which runs of a scene start."""

    scene: Scene
    name: str

    def __post_init__(self) -> None:
        self.set(0)

    @property
    def _clock(self) -> Path:
        return self.scene.folder / f"clock of {self.name}"

    def set(self, seconds: float) -> None:
        """So much later than it is, from now on."""
        new = self._clock.with_suffix(".new")
        new.write_text(f"{seconds:+.0f}\n")
        new.rename(self._clock)

    def run(self, verb: str = "run", *, by_clock: bool = False) -> Ran:
        with self.begun(verb, by_clock=by_clock) as process:
            return ended(process)

    @contextmanager
    def begun(
        self, verb: str = "run", *, at: str | None = None, by_clock: bool = False
    ) -> Iterator[Popen[str]]:
        """`at`: the step at which it stands still in the block. `by_clock`: it goes by its clock, and is not
        told what is now."""
        told = self.scene.folder / f"told by {self.name}"
        told.unlink(missing_ok=True)
        given = {"host": self.name, "at": at, "told": str(told), "asleep": 0, "pieces": 5, "at_once": 3}
        present = [] if by_clock else ["--now", NOW.isoformat()]
        faked = {
            "LD_PRELOAD": library(),
            "FAKETIME_TIMESTAMP_FILE": str(self._clock),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DISABLE_SHM": "1",  # which would stay in /dev/shm
            "GIVEN": json.dumps(given),
        }
        arguments = [verb, "--json", *present]
        environment = {**CREDENTIALS, **faked}
        with started(
            *arguments, cwd=self.scene.folder, module="tests.faults.faked_process", **environment
        ) as it:
            while at is not None and it.poll() is None and not _stands_still(it.pid):
                time.sleep(0.01)
            yield it


def ended(process: Popen[str]) -> Ran:
    """How it ends, once it goes on."""
    os.kill(process.pid, signal.SIGCONT)
    out, err = process.communicate()
    return Ran(process.returncode, out, err, [])


def _stands_still(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
