"""The next one is fetched while one is worked on."""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


def ahead(found: Iterator[T], may_go_on: Callable[[], bool]) -> Iterator[T]:
    """The same, in the same order. After each one that leaves `may_go_on` true, a thread fetches the next,
    and no more, while the caller works on it. An error comes out in its place. Who leaves off early waits for
    what is under way: once this iterator is closed, nothing is read any more."""
    coming: _Coming[T] | None = None
    try:
        while (it := coming.wait() if coming else next(found, None)) is not None:
            coming = _start(found) if may_go_on() else None
            yield it
    finally:
        if coming is not None:
            coming.join()


def _start(found: Iterator[T]) -> _Coming[T] | None:
    """None where the machine has no thread left: then the next one is fetched when it is asked for."""
    with contextlib.suppress(RuntimeError):
        return _Coming(found)
    return None


class _Coming(threading.Thread, Generic[T]):
    """A daemon: a process that is told to end does not wait for the server."""

    def __init__(self, found: Iterator[T]) -> None:
        super().__init__(name="bucketwise-ahead", daemon=True)
        self._next: Callable[[], T | None] = lambda: next(found, None)
        self._context = contextvars.copy_context()  # the driver keeps time limits there
        self._found: T | None = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._found = self._context.run(self._next)
        except BaseException as error:  # noqa: BLE001 - it is raised by who waits
            self._error = error

    def wait(self) -> T | None:
        self.join()
        if self._error is not None:
            raise self._error
        return self._found
