"""A cache of recent objects, bounded by their bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar


class Sized(Protocol):
    """Anything that knows its size."""

    @property
    def size(self) -> int:
        """Returns the size in bytes."""


T = TypeVar("T", bound=Sized)


class ByteLimitedCache(Generic[T]):
    """The last ones, the latest first, as many as have no more than `limit` bytes together.

    Threads may share it. What is held is never changed but replaced, so that of two that are put at once one
    may be forgotten, and nothing else can happen."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: tuple[T, ...] = ()

    def __iter__(self) -> Iterator[T]:
        return iter(self._kept)

    def put(self, item: T) -> None:
        """Adds an item to the front, or moves it there."""
        kept, room = [], self._limit
        for other in (item, *(other for other in self._kept if other is not item)):
            if other.size <= room:
                kept.append(other)
                room -= other.size
        self._kept = tuple(kept)
