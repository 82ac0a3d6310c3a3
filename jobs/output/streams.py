"""Keeps a run working if stdout or stderr is no longer read, lies on a full disk, or was closed from
the start."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TextIO

from bucketwise.config.errors import UsageError


def protect_streams() -> None:
    """Makes sure that both streams exist, and that writing to stderr never raises."""
    if sys.stdout is None:
        sys.stdout = _null_stream()
    sys.stderr = _ErrorIgnoringStream(sys.stderr or _null_stream())


def discard_buffer(stream: TextIO) -> None:
    """Discards the buffer of a stream, which Python would otherwise try to write at exit."""
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


def _null_stream() -> TextIO:
    return Path(os.devnull).open("w")


class _ErrorIgnoringStream:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError:
            discard_buffer(self._stream)
            return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            discard_buffer(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def check_folder(option: str, path: Path) -> None:
    """Raises UsageError where the folder of a file to be written is missing."""
    if not path.absolute().parent.is_dir():
        raise UsageError(f"{option} {path}: there is no folder {path.parent}")


def check_output(path: Path) -> None:
    """Raises UsageError where --output names no file that can be written and replaced."""
    check_folder("--output", path)
    if path.exists() and not path.is_file():
        raise UsageError(
            f"--output {path}: that is not a file; name one, or leave it out and redirect stdout"
        )


@contextmanager
def write_atomically(path: Path) -> Iterator[IO[bytes]]:
    """Yields a file that gets its name only when it is complete. A link, a pipe or a device is written
    directly."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        with path.open("wb") as file:
            yield file
        return
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with unfinished.open("w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
