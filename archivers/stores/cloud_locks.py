"""Locks of objects in Azure and Google, and the versions that they keep.

An object is put and locked by one request, which obstore sends with a few headers more. What it has no call
for, the cloud's own client is asked: how an object is locked, which older versions there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from typing import NamedTuple, Protocol


class Lock(NamedTuple):
    """A lock of an object: before `until`, nobody removes it; but if the mode is `governance`, those who
    have a special right."""

    mode: str
    until: datetime

    def holds(self, other: Lock) -> bool:
        """Returns whether an object that is locked so is locked as `other` asks, or more."""
        return self.until >= other.until and self.mode in (other.mode, "compliance")


class Older(NamedTuple):
    """A version of an object that was deleted or replaced. `locked_until`: it can't be removed before; None:
    it can. `is_soft_deleted`: it goes by itself, once its time is over."""

    locked_until: datetime | None
    is_soft_deleted: bool


class Container(NamedTuple):
    """What a container is set up to do; None: it can't be told."""

    keeps_versions: bool | None
    has_locks: bool


class Inquiry(Protocol):
    """What is asked of a container, each time once. Each method raises Failure."""

    def container(self) -> Container:
        """Returns what it does with objects that go."""

    def lock(self, name: str) -> Lock | None:
        """Returns the lock of an object; None where it has none."""

    def older(self, prefix: str) -> Iterator[Older]:
        """Yields what it keeps of objects whose names begin with `prefix` and that were deleted or
        replaced."""


def require(*modules: str) -> None:
    """Raises ImportError where a module is not installed. Imports none: these take long."""
    for it in modules:
        if find_spec(it) is None:
            raise ModuleNotFoundError(f"No module named {it!r}", name=it)


@dataclass(frozen=True)
class CloudLocks:
    """How a cloud locks objects. `headers`: those of a put that locks what it puts. `inquire`: takes the name
    of a container, an endpoint, and for how long an answer is waited for, in seconds."""

    headers: Callable[[Lock], dict[str, str]]
    inquire: Callable[[str, str | None, float], Inquiry]
    modes: Mapping[str, str]  # what it calls them
    right: str  # which a put with a lock needs besides
    absent: str  # what is said where there are no locks
    remedy: str  # what to do about that
    unversioned: str  # what is said where no versions are kept, and what to do
