"""Small objects beside an archive: JSON, read back once it is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from bucketwise.archivers.stores.base import AlreadyExists, Corrupt, ObjectStore
from bucketwise.config.errors import HaltedError


def encoded(told: dict[str, Any]) -> bytes:
    """Returns the bytes of an object. Its times are in UTC, and say so."""
    return json.dumps(told, default=_in_utc).encode()


def _in_utc(at: datetime) -> str:
    return at.replace(tzinfo=UTC).isoformat(timespec="milliseconds")


def nobodys(_data: bytes) -> bool:
    """Returns that an object can't be another writer's: the `is_others` of keys that one run alone puts."""
    return False


def put_checked(
    store: ObjectStore,
    key: str,
    data: bytes,
    *,
    if_absent: bool,
    is_others: Callable[[bytes], bool] = nobodys,
) -> bytes:
    """Puts an object, unless one is there and `if_absent`. Returns what lies there now: it may be another
    writer's, where the store can't refuse to replace one. `is_others`: whether it is; it raises HaltedError
    where it can't be read. Raises HaltedError where it is neither, and removes it."""
    try:
        store.put_bytes(key, data, if_absent=if_absent)
    except AlreadyExists:
        return store.get_bytes(key)
    with suppress(Corrupt, HaltedError):
        found = store.get_bytes(key)
        if found == data or is_others(found):
            return found
    store.delete([key])  # written here, and damaged: every later run would halt at it
    raise HaltedError(
        f"{store.url}/{key}: read back, it is not what was written. Nothing was changed. Look at the "
        "store, then run again"
    )
