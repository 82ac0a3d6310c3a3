"""The errors of bucketwise: one class for each exit code but 0, which it has as `exit_code`.

All are a BucketwiseError, whose own code is 1: it failed, and is safe to do again."""

from __future__ import annotations

from bucketwise.config.errors import (
    BucketwiseError,
    HaltedError,
    InterruptedRun,
    LeaseHeldError,
    UsageError,
)
from bucketwise.config.problems import ConfigError

__all__ = [
    "BucketwiseError",
    "ConfigError",
    "HaltedError",
    "InterruptedRun",
    "LeaseHeldError",
    "LeftSomethingError",
    "NotKeptError",
    "UsageError",
]


class LeftSomethingError(BucketwiseError):
    """All was done but what was left alone: quarantined or changing buckets."""

    exit_code = 3


class NotKeptError(BucketwiseError):
    """An audit found a policy that is not kept."""

    exit_code = 4


_CLASSES: dict[int, type[BucketwiseError]] = {
    it.exit_code: it
    for it in (
        BucketwiseError,
        UsageError,
        LeftSomethingError,
        NotKeptError,
        HaltedError,
        LeaseHeldError,
        InterruptedRun,
    )
}


def of_code(exit_code: int, message: str) -> BucketwiseError:
    """Returns the error of an exit code."""
    return _CLASSES[exit_code](message)
