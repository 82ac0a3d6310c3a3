"""Seconds that a run spends in each phase of its work, for who asks what bounds it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from time import perf_counter
from typing import Final, Literal, TypeVar, get_args

Phase = Literal["read", "decode", "sum", "write", "encode", "put", "read_back", "compare", "commit", "delete"]
PHASES: Final[tuple[Phase, ...]] = get_args(Phase)

T = TypeVar("T")


@dataclass
class PhaseTimes:
    """Seconds by phase, of all threads that work for a run. Of phases within one another, a second counts for
    the inner one alone."""

    seconds: dict[Phase, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _present: threading.local = field(default_factory=threading.local)

    def enter(self, phase: Phase | None) -> Phase | None:
        """Ends the present phase of this thread, and begins another one, or none. Returns the one before."""
        now = perf_counter()
        before: Phase | None = getattr(self._present, "phase", None)
        if before is not None:
            with self._lock:
                self.seconds[before] += now - self._present.since
        self._present.phase, self._present.since = phase, now
        return before


_timed: ContextVar[PhaseTimes | None] = ContextVar("phases", default=None)


@contextmanager
def profiled() -> Iterator[PhaseTimes]:
    """Times the phases of what the block does, also in threads that have its context."""
    times = PhaseTimes()
    token = _timed.set(times)
    try:
        yield times
    finally:
        _timed.reset(token)


@contextmanager
def phase(name: Phase) -> Iterator[None]:
    """Counts the block, or each call of a function that this decorates, for a phase, where a run is
    profiled."""
    times = _timed.get()
    if times is None:
        yield
        return
    before = times.enter(name)
    try:
        yield
    finally:
        times.enter(before)


def waiting(name: Phase, items: Iterable[T]) -> Iterator[T]:
    """Yields the same items. What it takes to get each counts for a phase."""
    each = iter(items)
    while True:
        with phase(name):
            it = next(each, _END)
        if it is _END:
            return
        yield it  # type: ignore[misc]
        del it


_END = object()
