"""Waits until a test process has ended, however it ended; then ends what it started, and removes its folder.

It runs as a process of its own, and its input ends with the test process. What that started is known by its
TMPDIR, which lies in the folder: children, what these have started, and what nobody waits for any more.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

_PATIENCE = 30


def processes_in(folder: str) -> set[int]:
    """Returns the living processes whose temporary files go into the folder."""
    inside, found = os.fsencode(f"TMPDIR={folder}/"), set()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if any((it + b"/").startswith(inside) for it in path.read_bytes().split(b"\0")):
                found.add(int(path.parent.name))
    return found - {os.getpid()}


def end(folder: str) -> None:
    """Kills these processes, until there are no new ones; unmounts what they mounted; removes the folder."""
    deadline, seen_none = time.monotonic() + _PATIENCE, 0
    while seen_none < 2 and time.monotonic() < deadline:  # one may have been about to start another
        found = processes_in(folder)
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        seen_none = 0 if found else seen_none + 1
        time.sleep(0.02)
    with suppress(OSError):
        for line in Path("/proc/self/mounts").read_text().splitlines():
            if (place := line.split()[1]).startswith(f"{folder}/"):
                subprocess.run(["umount", "-l", place], check=False, capture_output=True)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.stdin.read()
    end(sys.argv[1])
