"""The metrics in a file, for node_exporter's textfile collector: runs that cron starts add up in it.

The file is read, the run is added, and a new file takes its place: a reader sees one or the other. Runs that
end together wait for each other. Series of policies that this run did not work on stay as they are.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bucketwise.jobs.core import clock
from bucketwise.jobs.core.metrics import Metrics
from bucketwise.jobs.output.report import Result

#: Seconds; another run is at it for some milliseconds.
_PATIENCE = 10.0


_MODE = 0o644  # node_exporter is another user


def add(file: Path, verb: str, results: Sequence[Result]) -> str | None:
    """Adds how a run of `verb` went. Returns a complaint where that can't be written: nothing else depends on
    it."""
    try:
        path = file.resolve()
        with _folder_lock(path.parent):
            metrics, mode = Metrics(), _MODE
            if path.exists():
                found = path.stat()
                if not stat.S_ISREG(found.st_mode):
                    return _complaint(file, "it is not a regular file")
                mode = stat.S_IMODE(found.st_mode)
                metrics.restore(path.read_text(encoding="utf-8"))
            for result in results:
                metrics.record(verb, result)
            _replace(path, metrics.text(), mode)
    except ValueError as error:
        remedy = "bucketwise overwrites nothing else: move it away, or name another"
        return _complaint(file, f"it contains something other than metrics of bucketwise ({error}). {remedy}")
    except OSError as error:
        return _complaint(file, error.strerror or str(error))
    return None


def _complaint(file: Path, reason: str) -> str:
    return f"the metrics could not be written to {file}: {reason}. The run is not affected"


@contextmanager
def _folder_lock(folder: Path) -> Iterator[None]:
    """Keeps other runs from writing metrics into the folder inside the block. Raises OSError; TimeoutError
    after a while."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        until = clock.steady() + _PATIENCE
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if clock.steady() > until:
                    raise TimeoutError(f"another process has locked {folder}") from None
                time.sleep(0.02)
        yield
    finally:
        os.close(handle)


def _replace(path: Path, data: bytes, mode: int) -> None:
    """Puts `data` in the file's place, whole. Others don't read what is not called `.prom`."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)  # of a run that was killed
    try:
        with temporary.open("xb") as sink:
            os.fchmod(sink.fileno(), mode)
            sink.write(data)
            sink.flush()
            os.fsync(sink.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
