"""The folder of a test process, where all its temporary files lie; and what its tests may start.

A test that starts a process, or opens a connection, is marked `process`; one that uses a server is by itself.
`make quick` runs the others. That no other does so is seen at each of them, in every run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager
from multiprocessing import util
from pathlib import Path

from tests import watcher

#: Fixtures that start a process. What they are used by, uses them as well.
SERVERS = {
    "asking_mongod",
    "azurite_server",
    "bucketwise",
    "elsewhere",
    "google_server",
    "moto_server",
    "mongod",
    "rclone_server",
    "started_browser",
    "three",
}
_OUTSIDE = {
    "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen",
    "socket.bind", "socket.connect",
}  # fmt: skip
_IN_MEMORY = Path("/dev/shm")
_ENOUGH = 4 * 2**30


class Session:
    """What a test process starts ends with it, and its files are gone then, however it ends."""

    def __init__(self) -> None:
        self.folder = os.environ["TMPDIR"] = tempfile.tempdir = _new_folder()
        # A session of its own: what ends the whole group of the tests must not end it.
        self._watcher = subprocess.Popen(
            [sys.executable, "-I", "-S", watcher.__file__, self.folder],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self._broken: list[str] | None = None
        sys.addaudithook(self._see)

    def end(self) -> None:
        """Waits until all is gone."""
        util._exit_function()  # type: ignore[attr-defined]  # else it looks for its own folder afterwards
        self._watcher.communicate()

    @contextmanager
    def inside(self) -> Generator[None]:
        """Fails where what runs in it starts a process or opens a connection, and where it hides that."""
        broken: list[str] = []
        self._broken = broken
        try:
            yield
        finally:
            self._broken = None
        assert not broken, broken

    def _see(self, event: str, given: tuple[object, ...]) -> None:
        if event == "subprocess.Popen" and isinstance(given[3], dict):
            given[3].setdefault("TMPDIR", self.folder)  # by which it is found
        if (
            event in _OUTSIDE
            and self._broken is not None
            and threading.current_thread() is threading.main_thread()
        ):
            self._broken.append(f"{event} {given} in a test that is not marked `process`")
            raise AssertionError(self._broken[-1])


def _new_folder() -> str:
    """In memory where that has room: nothing outlives a test run, so that nothing needs to reach a disk, and
    fsync costs most of the wait there. Containers often have little of it, and may not run what lies in it.
    """
    place = None
    if _IN_MEMORY.is_dir() and "TMPDIR" not in os.environ:
        found = os.statvfs(_IN_MEMORY)
        if found.f_bavail * found.f_frsize >= _ENOUGH and not found.f_flag & (os.ST_NOEXEC | os.ST_RDONLY):
            place = _IN_MEMORY
    return tempfile.mkdtemp(prefix="bw-", dir=place)  # short: a path of a socket has 107 characters
