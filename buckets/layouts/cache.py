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
    """The last ones, the latest first, as many as have no more than `most` bytes together.

    Threads may share it. What is held is never changed but replaced, so that of two that are put at once one
    may be forgotten, and nothing else can happen."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: tuple[T, ...] = ()

    def __iter__(self) -> Iterator[T]:
        return iter(self._held)

    def put(self, it: T) -> None:
        """Adds an item to the front, or moves it there."""
        held, left = [], self._most
        for other in (it, *(other for other in self._held if other is not it)):
            if other.size <= left:
                held.append(other)
                left -= other.size
        self._held = tuple(held)
