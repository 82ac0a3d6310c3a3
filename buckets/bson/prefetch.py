"""Fetches the next items while the caller works on one."""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar, cast

T = TypeVar("T")
#: Seconds: the server closes the cursors of a session that was idle for half an hour.
IDLE = 600.0


def _count_one(_: object) -> int:
    return 1


def prefetch(
    items: Iterator[T],
    may_continue: Callable[[], bool],
    size: Callable[[T], int] = _count_one,
    limit: int = 1,
) -> Generator[T, None, None]:
    """Yields the same items in the same order, and fetches the next ones meanwhile.

    Once `may_continue` is true after an item, a thread fetches those after it while the caller works, until
    those that wait have a size of `limit`. Where the caller takes long, it now and then fetches one more, so
    that a cursor stays open. An error is raised in place of the item that it kept from coming. Closing this
    iterator waits for the fetch under way; nothing is read after that."""
    reader: _Reader[T] | None = None
    try:
        while (it := next(items, None)) is not None:
            if may_continue():
                reader = _Reader(items, size, limit)
                reader.begin()
            yield it
            del it
            if reader is not None and reader.ident is not None:
                yield from reader.read()
    finally:
        if reader is not None:
            reader.close()


class _Reader(threading.Thread, Generic[T]):
    """A daemon: a process that is told to end does not wait for the server.

    The two threads speak by queues alone. An exception that a signal raises in one leaves no lock held that
    the other waits for."""

    def __init__(self, items: Iterator[T], size: Callable[[T], int], limit: int) -> None:
        super().__init__(name="bucketwise-ahead", daemon=True)
        self._items, self._size, self._limit = items, size, limit
        self._context = contextvars.copy_context()  # the driver keeps time limits there
        self._waiting: SimpleQueue[tuple[int, T] | None] = SimpleQueue()  # with their sizes; None: the end
        self._taken: SimpleQueue[int | None] = SimpleQueue()  # sizes; None: no more is wanted
        self._error: BaseException | None = None

    def begin(self) -> None:
        """Starts, unless the machine has no thread left."""
        before = sys.exception()
        try:
            self.start()
        except RuntimeError as error:
            if error.__context__ is before:
                return
            # What a signal raised met it with a lock in its hand, which was then let go twice. The thread may
            # be at work: who took it for none, and read on by himself, would miss what it reads.
            raise cast(BaseException, error.__context__) from None

    def run(self) -> None:
        try:
            self._fetch()
        except BaseException as error:  # noqa: BLE001 - it is raised by who reads
            self._error = error
        self._waiting.put(None)

    def _fetch(self) -> None:
        held = 0
        while True:
            while held >= self._limit or not self._taken.empty():
                try:
                    taken = self._taken.get(timeout=IDLE)
                except Empty:
                    break
                if taken is None:
                    return
                held -= taken
            if (it := self._context.run(next, self._items, None)) is None:
                return
            size = self._size(it)
            held += size
            self._waiting.put((size, it))
            del it

    def read(self) -> Iterator[T]:
        while (sized := self._waiting.get()) is not None:
            self._taken.put(sized[0])
            yield sized[1]
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        self._taken.put(None)
        if self.is_alive():
            self.join()
