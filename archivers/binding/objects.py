"""Small objects beside an archive: JSON, read back once it is written."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from bucketwise.archivers.stores.base import AlreadyExists, ObjectStore
from bucketwise.config.errors import HaltedError


def encoded(told: dict[str, Any]) -> bytes:
    """Returns the bytes of an object."""
    return json.dumps(told, default=datetime.isoformat).encode()


def put_checked(store: ObjectStore, key: str, data: bytes, *, if_absent: bool) -> bytes:
    """Puts an object, unless one is there and `if_absent`. Returns what lies there now. Raises HaltedError
    where it is not what was written."""
    is_ours = True
    try:
        store.put_bytes(key, data, if_absent=if_absent)
    except AlreadyExists:
        is_ours = False
    found = store.get_bytes(key)
    if is_ours and found != data:
        store.delete([key])  # written here, and damaged: every later run would halt at it
        raise HaltedError(
            f"{store.url}/{key}: read back, it is not what was written. Nothing was changed. Look at the "
            "store, then run again"
        )
    return found
