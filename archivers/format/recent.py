"""Caches of what was read last from an archive."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

from bucketwise.archivers.format.manifest import Section
from bucketwise.buckets.bson.raw import Batch

#: Bytes of buckets that are cached, besides those of the last section.
_MOST_BUCKETS = 8_000_000
#: Bytes of parts that are cached.
_MOST_PARTS = 12 << 20
#: Bytes that each entry takes besides its own, about.
_OVERHEAD = 2_000

T = TypeVar("T")


class Cache(Generic[T]):
    """Holds the last thing that was put or asked for, and before it as many as `most` bytes allow. What one
    costs doesn't depend on how many there are."""

    def __init__(self, most: int, size_of: Callable[[T], int]) -> None:
        self._most, self._size_of = most, size_of
        self._held: OrderedDict[str, T] = OrderedDict()
        self._size = 0
        self._lock = Lock()  # a run copies in two threads

    def get(self, key: str) -> T | None:
        """Returns what was put under a key; None where it is not held."""
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
            return self._held.get(key)

    def put(self, key: str, value: T) -> None:
        """Holds a value, and drops the oldest others beyond the limit."""
        with self._lock:
            if (old := self._held.pop(key, None)) is not None:
                self._size -= self._cost(old)
            while self._size > self._most:
                self._size -= self._cost(self._held.popitem(last=False)[1])
            self._held[key] = value
            self._size += self._cost(value)

    def _cost(self, value: T) -> int:
        return _OVERHEAD + self._size_of(value)


class Recent:
    """Caches the last section of a commit that was read, and small ones before it: callers go by days, and
    commits span some. Also caches the files of parts of which rows were read, since several commits may
    overlap in time."""

    def __init__(self) -> None:
        self.parts = Cache[bytes](_MOST_PARTS, len)  # by their SHA-256
        self.sections = Cache[Batch](_MOST_BUCKETS, lambda it: it.size)  # by `section_key`


def section_key(section: Section) -> str:
    """Returns a section's key in the cache. The key of its buckets file names the commit and the section."""
    return f"{section.buckets_file.key} {section.documents_sha256}"
