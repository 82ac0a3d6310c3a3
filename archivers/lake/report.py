"""What was registered in a policy's Iceberg table, and what kept it from being done."""

from __future__ import annotations

from typing import NamedTuple

from bucketwise.config.errors import BucketwiseError


class LakeError(BucketwiseError):
    """A table could not be read or written. The archive is as it was."""


class LakeReport(NamedTuple):
    """How many parts were added to a table, how many were removed, and its snapshot then. `metadata`: the URL
    of the metadata file. Both are None where there is no table."""

    added: int = 0
    removed: int = 0
    snapshot: int | None = None
    metadata: str | None = None


class LakeDifference(NamedTuple):
    """How a table differs from the archive. `is_behind`: the next sync is due, and nothing is wrong."""

    place: str
    message: str
    is_behind: bool
