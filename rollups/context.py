"""The context of a run: what all work on one policy uses; transactions under its lease; tasks."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn, ParamSpec, Protocol, TypeVar

from pymongo import ReadPreference, WriteConcern
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.read_concern import ReadConcern

from bucketwise.config.errors import HaltedError
from bucketwise.config.policies import Policy

Document = dict[str, Any]
#: Raises, inside the transaction, where another run has the lease by now.
Guard = Callable[[ClientSession], None]
T = TypeVar("T")


def majority(database: Database[Document]) -> WriteConcern:
    """Returns the write concern for a majority. The client says how long that is waited for."""
    return WriteConcern("majority", database.write_concern.document.get("wtimeout"))


def dry_run_guard(_session: ClientSession) -> NoReturn:
    """Replaces the guard in a dry run, which must not start transactions. Always raises."""
    raise HaltedError("a dry run was about to write; it was stopped and nothing was changed")


def transaction(database: Database[Document], guard: Guard, step: Callable[[ClientSession], T]) -> T:
    """Runs `step` in a transaction that fails where `guard` does. `step` may run more than once."""
    tries = 0

    def guarded(session: ClientSession) -> T:
        nonlocal tries
        tries += 1
        guard(session)
        return step(session)

    with database.client.start_session() as session:
        done = session.with_transaction(
            guarded,
            read_concern=ReadConcern("snapshot"),
            write_concern=majority(database),
            read_preference=ReadPreference.PRIMARY,
        )
    if tries > 1:  # the driver's error refers to itself, and to all local variables of its callers
        gc.collect()
    return done


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


P = ParamSpec("P")
_SECONDS_BETWEEN_CHECKS = 0.2


def complete(future: Future[T], task: Callable[P, T], *given: P.args, **named: P.kwargs) -> Future[T]:
    """Runs the task and sets the future to its result or exception, unless the future was cancelled."""
    if future.set_running_or_notify_cancel():
        try:
            future.set_result(task(*given, **named))
        except Exception as error:  # noqa: BLE001  # raised again where the result is asked for
            future.set_exception(error)
    return future


def run_now(task: Callable[P, T], *given: P.args, **named: P.kwargs) -> Future[T]:
    """Runs the task at once. Returns its future."""
    return complete(Future(), task, *given, **named)


def result_of(future: Future[T], check: Callable[[], None]) -> T:
    """Waits for the result. Calls `check` meanwhile, which raises if the run must stop."""
    while not wait([future], _SECONDS_BETWEEN_CHECKS).done:
        check()
    return future.result()
