"""Every error a user can meet, one class an outcome; the class gives the exit code."""

from __future__ import annotations


class BucketwiseError(Exception):
    """Something failed; it is safe to run again."""

    exit_code = 1


class UsageError(BucketwiseError):
    """The command line asks for what cannot be; nothing was touched."""

    exit_code = 2


class HaltedError(BucketwiseError):
    """An integrity check failed; nothing was deleted; a person must look."""

    exit_code = 5


class LeaseHeldError(BucketwiseError):
    """Another run holds the policy's lease."""

    exit_code = 11


class LeaseLostError(BucketwiseError):
    """The lease went to another run while this one worked; it stopped before its next step."""

    exit_code = 11


class InterruptedRun(BucketwiseError):
    """A signal asked the run to stop; it finished the step in hand and left."""

    exit_code = 130
