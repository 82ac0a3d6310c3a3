"""Tasks: work that is done here or elsewhere, by several processes at once, and the futures of their
results."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
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
