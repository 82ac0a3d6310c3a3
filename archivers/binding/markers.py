"""The marker of a store: one object at its root, which each database that uses the store remembers.

A mount that is absent, or a store that was moved away, has none, or another one. Then no policy writes there,
however new it is.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pymongo import ReturnDocument

from bucketwise.archivers.records.receipts import Receipts
from bucketwise.archivers.stores.base import AlreadyExists, Corrupt, NotFound, ObjectStore
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


KEY = "bucketwise.json"
_VERSION = 1


def record_name(url: str) -> str:
    """Returns the name of the database's record of the store at a URL."""
    return f"store-{hashlib.sha256(url.encode()).hexdigest()[:16]}"


def read_marker(store: ObjectStore) -> str | None:
    """Returns the id of the store's marker; None where there is none. Raises HaltedError where the object is
    no marker."""
    try:
        return marker_of(store.get_bytes(KEY), f"{store.url}/{KEY}")
    except NotFound:
        return None


def marker_of(data: bytes, place: str) -> str:
    """Returns the id that the bytes of a marker have. Raises HaltedError where they are no marker's."""
    try:
        return str(json.loads(data)["id"])
    except (ValueError, RecursionError, TypeError, KeyError):
        raise HaltedError(
            f"{place} is not the marker of a store of bucketwise: {data[:80]!r}. Nothing was "
            "changed. Find out who wrote it; restore it from a backup or give the archive another place"
        ) from None


def _is_marker(data: bytes) -> bool:
    return bool(marker_of(data, KEY))


def marker_difference(found: str | None, remembered: str | None) -> str | None:
    """Returns what shows that a store is not the one that is remembered; None where nothing does."""
    if remembered is None or found == remembered:
        return None
    if found is None:
        return f"its marker {KEY} is gone, which had the id {remembered}"
    return f"its marker {KEY} has the id {found}, and not {remembered}"


@dataclass(frozen=True)
class Markers:
    """The marker of a store, and what the database has recorded of it. `records`: those of no policy."""

    store: ObjectStore
    records: Receipts
    policy: str

    def claimed(self, mine: str | None, known: str | None) -> str:
        """Returns the marker of the store, which is made where the store is new to the database. Raises
        HaltedError as `check` does."""
        found = self.check(mine, known)
        return found if found is not None and found == known else self.taken(known)

    def check(self, mine: str | None, known: str | None) -> str | None:
        """Returns the marker that the store has. `mine`: the one that the policy has used; `known`: the one
        of this URL. Raises HaltedError where the store is not the one that was used."""
        found = read_marker(self.store)
        if reason := marker_difference(found, mine or known):
            raise HaltedError(
                f"policy {self.policy}: {self.store.url} is not the store that was used before: {reason}. "
                "Nothing was archived or deleted. A disk may not be mounted, or the store was moved: mount "
                "it, or correct store.url. If it is right as it is, take it over: bucketwise adopt "
                "--reason TEXT"
            )
        return found

    def taken(self, known: str | None) -> str:
        """Returns the marker of the store as it is, remembered from now on. Two runs that make one agree on
        it in the database first, so that both put the same object. Two databases that make one at once may
        replace it, where the store can't refuse that: so it is asked for again when a claim ends."""
        name, found = record_name(self.store.url), read_marker(self.store)
        if found is None:
            agreed = self.records.collection.find_one_and_update(
                {"_id": self.records.identity(name)},
                {"$setOnInsert": {"kind": "store", "intended": uuid.uuid4().hex}},
                upsert=True,
                return_document=ReturnDocument.AFTER,
            )
            assert agreed is not None
            data = json.dumps({"bucketwise": "store", "version": _VERSION, "id": agreed["intended"]})
            put = put_checked(self.store, KEY, data.encode(), if_absent=True, is_others=_is_marker)
            found = marker_of(put, f"{self.store.url}/{KEY}")
        if found != known:
            facts = {"kind": "store", "url": self.store.url, "marker": found, "intended": found}
            self.records.update(name, {"$set": facts})
        return found
