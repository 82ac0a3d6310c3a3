"""A store that is claimed before the first write to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime

from bucketwise.archivers.stores.base import ObjectStore, OlderVersions, StoreObject, Versioning
from bucketwise.archivers.stores.requests import Requests


class ClaimingStore:
    """The store behind it, whose objects are written and removed only once `claim` has returned."""

    def __init__(self, store: ObjectStore, claim: Callable[[], None]) -> None:
        """`claim` is called before each write, and raises where there must be none."""
        self._store = store
        self._claim = claim

    @property
    def url(self) -> str:
        """Returns the store's URL."""
        return self._store.url

    @property
    def requests(self) -> Requests:
        """Returns the requests so far."""
        return self._store.requests

    def check_there(self) -> None:
        """Raises Missing where the store is not there."""
        self._store.check_there()

    def put_bytes(
        self,
        key: str,
        data: bytes,
        *,
        if_absent: bool = False,
        storage_class: str | None = None,
        locked_from: datetime | None = None,
    ) -> None:
        """Writes an object."""
        self._claim()
        self._store.put_bytes(
            key, data, if_absent=if_absent, storage_class=storage_class, locked_from=locked_from
        )

    def get_bytes(self, key: str, size: int | None = None) -> bytes:
        """Returns the bytes of an object."""
        return self._store.get_bytes(key, size)

    def head(self, key: str) -> StoreObject | None:
        """Returns what is known of an object; None where there is none."""
        return self._store.head(key)

    def check(self, key: str, size: int | None, sha256: str) -> None:
        """Raises where the store does not hold an object of this size and digest, as far as it tells."""
        self._store.check(key, size, sha256)

    def list(self, prefix: str = "", after: str = "") -> Iterator[StoreObject]:
        """Yields objects, sorted by key."""
        return self._store.list(prefix, after)

    def delete(self, keys: Iterable[str]) -> None:
        """Removes objects; claims nothing where there are none."""
        if named := list(keys):
            self._claim()
            self._store.delete(named)

    def older_versions(self, prefix: str) -> OlderVersions:
        """Returns what the store keeps of objects that are gone."""
        return self._store.older_versions(prefix)

    def versioning(self) -> Versioning:
        """Returns what the store does with objects that go."""
        return self._store.versioning()

    def clean_temporaries(self, before: datetime | None, folder: str | None = None) -> int:
        """Removes what writes have left unfinished."""
        self._claim()
        return self._store.clean_temporaries(before, folder)

    def unfinished(self, folder: str) -> Sequence[str]:
        """Returns the places of unfinished writes."""
        return self._store.unfinished(folder)

    def probe(self) -> bool:
        """Tries every right."""
        return self._store.probe()
