"""The context of a run: what all work on one policy uses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from pymongo.database import Database

from bucketwise.config.policies import Policy
from bucketwise.rollups.guarded import Guard

Document = dict[str, Any]
#: Raises where the run must stop.
Check = Callable[[], None]


#: Takes how many buckets, and bytes of them, were read from MongoDB or deleted.
Spend = Callable[[int, int], None]


class ProgressListener(Protocol):
    """Takes what was done since the last call, and its count: ("rolled-up readings", 3600). `share`: how much
    of all that is to be done is done, from 0 to 1; None: not known."""

    def __call__(self, what: str, count: int, share: float | None = None, /) -> None:
        """Takes what was done, its count since the last call, and the share of all that is done."""


class SummaryListener(Protocol):
    """Takes summaries before they are written: the collection, the `_id`s of those that are put, and of those
    that are deleted; BSON."""

    def __call__(self, collection: str, put: Iterable[bytes], deleted: Iterable[bytes], /) -> None:
        """Takes a collection, and the `_id`s (BSON) of the summaries to be put and to be deleted."""


def no_listener(_collection: str, _put: Iterable[bytes], _deleted: Iterable[bytes], /) -> None:
    """Ignores which summaries are written."""


def no_progress(_what: str, _count: int, _share: float | None = None, /) -> None:
    """Reports no progress."""


def no_limit(_buckets: int, _size: int, /) -> None:
    """Counts nothing: there is no limit."""


def share_of(at: int, span: tuple[int, int]) -> float:
    """Returns how much of a span of time lies before an instant, from 0 to 1."""
    start, end = span
    return min(max((at - start) / (end - start), 0.0), 1.0) if end > start else 1.0


@dataclass(frozen=True)
class RunContext:
    """What one run of one policy works with.

    `now` is the run's present. `guard` raises inside a transaction, and `check` between steps, once the run
    has lost its lease or was asked to stop. `check` also waits where the run exceeds its limits, by what
    `spend` counted: it is called outside of transactions only.
    """

    database: Database[Document]
    policy: Policy
    now: datetime
    guard: Guard
    check: Check
    progress: ProgressListener = no_progress
    listener: SummaryListener = no_listener
    spend: Spend = no_limit
