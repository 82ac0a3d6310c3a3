"""All errors that a user can meet, one class for each outcome; the class has the exit code."""

from __future__ import annotations

from datetime import datetime
from typing import Any


class BucketwiseError(Exception):
    """A command failed. It is safe to run it again."""

    exit_code = 1

    def __reduce__(self) -> tuple[Any, ...]:
        # Those made from more than their text can't be made from it again where they were pickled.
        return _rebuild, (type(self), self.args, vars(self))


def _rebuild(kind: type[BucketwiseError], args: tuple[Any, ...], state: dict[str, Any]) -> BucketwiseError:
    error = kind.__new__(kind, *args)
    vars(error).update(state)
    return error


class UsageError(BucketwiseError):
    """The command line is invalid. Nothing was changed."""

    exit_code = 2


class HaltedError(BucketwiseError):
    """An integrity check failed. Nothing was deleted, and a person must look."""

    exit_code = 5


class LeaseHeldError(BucketwiseError):
    """Another run holds the policy's lease."""

    exit_code = 11


class LeaseLostError(BucketwiseError):
    """The lease went to another run while this one worked; it stopped before its next step."""

    exit_code = 11


class InterruptedRun(BucketwiseError):
    """A signal asked the run to stop. It finished the current step and ended."""

    exit_code = 130


class PausedError(InterruptedRun):
    """The policy is paused. `paused`: its `reason`, `since` and `by`. A run that is under way ends as if
    interrupted; one that would begin has nothing to do."""

    def __init__(self, message: str, paused: dict[str, Any]) -> None:
        super().__init__(message)
        self.paused = paused


class WindowOverError(InterruptedRun):
    """The window in which runs may work is over; the next one begins at `opens_at`. A run that is under
    way ends as if interrupted, and has not failed."""

    def __init__(self, message: str, opens_at: datetime) -> None:
        super().__init__(message)
        self.opens_at = opens_at
