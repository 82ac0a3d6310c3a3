"""Servers that tests start, and wait for."""

from __future__ import annotations

import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_PATIENCE = 60


@contextmanager
def running(command: list[str], is_up: Callable[[], bool], **more: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a server inside the block, which begins once it is up."""
    given: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL} | more
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, **given)
    try:
        deadline = time.monotonic() + _PATIENCE
        while not is_up():
            assert process.poll() is None, f"{command} ended with code {process.returncode}"
            assert time.monotonic() < deadline, f"no answer from {command} in {_PATIENCE} s"
            time.sleep(0.02)
        yield process
    finally:
        process.kill()  # they keep nothing that a test looks at later, and some would wait for their clients
        process.wait()


def answers(url: str) -> bool:
    """Whether something is there; that it wants a signature is right."""
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except urllib.error.HTTPError as error:
        return error.code < 500
    except OSError:
        return False
