"""Units of work: what may be done here or elsewhere, by several at once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
_SECONDS_BETWEEN_CHECKS = 0.2


def at_once(function: Callable[P, T], *given: P.args, **named: P.kwargs) -> Future[T]:
    """The future of what is done here and now."""
    future: Future[T] = Future()
    try:
        future.set_result(function(*given, **named))
    except Exception as error:  # noqa: BLE001  # raised again where the result is asked for
        future.set_exception(error)
    return future


def result_of(future: Future[T], check: Callable[[], None]) -> T:
    """Waits for it; `check` is called meanwhile, and raises where the run must stop."""
    while not wait([future], _SECONDS_BETWEEN_CHECKS).done:
        check()
    return future.result()
