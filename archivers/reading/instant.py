"""Reads MongoDB as it was at one instant, and the store after it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, TypeVar

from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.errors import OperationFailure

from bucketwise.archivers.format.manifest import DamagedError
from bucketwise.archivers.stores.base import NotFound

T = TypeVar("T")
#: Error codes: the instant is too long ago for MongoDB, or too close to a change of its collections.
_SNAPSHOT_GONE = (239, 246)
#: In the message of the second of these where there is no such instant at all.
_CAPPED = "capped collections"
_TRIES = 3


def at_one_instant(database: Database[dict[str, Any]], read: Callable[[ClientSession], T]) -> T:
    """Returns what `read` returns in a session that sees one instant. Of a capped collection there is none:
    `read` then sees each query's own; nothing is moved out of such a collection meanwhile.

    A run that takes changed buckets out of a commit replaces its files, maybe while they are read here. Then
    a file is missing, and the second attempt finds the commit that took its place."""
    is_capped = False
    for attempt in itertools.count(1):
        try:
            with database.client.start_session(snapshot=not is_capped) as session:
                return read(session)
        except (NotFound, DamagedError):
            if attempt == _TRIES:
                raise
        except OperationFailure as error:
            if error.code not in _SNAPSHOT_GONE or attempt == _TRIES:
                raise
            is_capped = _CAPPED in str(error)
    raise AssertionError("unreachable")
