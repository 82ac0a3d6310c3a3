"""What MongoDB keeps of a policy's Iceberg table: which commits are in it, and at which snapshot that was so.

A commit that is in the table has `lake` in its receipt, and keeps it when it is dropped. So an index finds
what has to be added or removed, however large the archive is. That holds as long as the table is at the
recorded snapshot.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

from pyiceberg.io import FileIO, InputFile, OutputFile
from pymongo import ASCENDING
from pymongo.client_session import ClientSession

from bucketwise.archivers.format.names import Commit
from bucketwise.archivers.records.receipts import HELD, REPLACED, Receipts, commit_of
from bucketwise.archivers.stores.base import AlreadyExists, NotFound, ObjectStore
from bucketwise.config.errors import BucketwiseError

Document = dict[str, Any]


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


_NAME, _PAGE = "lake", 1000


class LakeState(NamedTuple):
    """A table, its snapshot, and the URL of its metadata, as of the last sync."""

    table: str
    snapshot: int | None
    metadata: str


class LakeRecords:
    """The records of one policy's table."""

    def __init__(self, receipts: Receipts) -> None:
        self._receipts = receipts

    def prepare(self) -> None:
        """Makes the index that finds what has changed."""
        keys = [(name, ASCENDING) for name in ("_id.policy", "kind", "lake")]
        self._receipts.collection.create_index(keys)

    def state(self) -> LakeState | None:
        """Returns the record of the last sync; None where there was none."""
        found = self._receipts.get(_NAME)
        return None if found is None else LakeState(found["table"], found["snapshot"], found["metadata"])

    def lacking(self) -> list[Commit]:
        """Returns the commits that stand and are not in the table, by their numbers."""
        return self._commits({**self._receipts.is_current, "lake": None})

    def leaving(self) -> list[Commit]:
        """Returns the commits in the table that do not stand any more."""
        mine = {"_id.policy": self._receipts.policy, "lake": True}
        replaced = {**mine, "kind": "offline", "state": {"$in": [REPLACED, HELD]}}
        return [*self._commits({**mine, "kind": "dropped"}), *self._commits(replaced)]

    def current(self) -> list[tuple[Commit, list[str]]]:
        """Returns all commits that stand, by their numbers, with the keys of their parts."""
        wanted = {"seal": 1, "sequence": 1, "parts": 1}
        found = self._receipts.collection.find(self._receipts.is_current, wanted)
        named = [(commit, it["parts"]) for it in found if (commit := commit_of(it)) is not None]
        return sorted(named, key=lambda it: it[0].sequence)

    def note(
        self, state: LakeState, added: Sequence[Commit], removed: Iterable[Commit], session: ClientSession
    ) -> None:
        """Notes where the table is, and which commits came into it or left it."""
        self._receipts.update(_NAME, {"$set": {"kind": "lake", **state._asdict()}}, session)
        self._mark(added, {"$set": {"lake": True}}, session)
        self._mark(list(removed), {"$unset": {"lake": ""}}, session)

    def _mark(self, commits: Sequence[Commit], update: Document, session: ClientSession) -> None:
        names = [self._receipts.identity(it.name) for it in commits]
        for at in range(0, len(names), _PAGE):
            query = {"_id": {"$in": names[at : at + _PAGE]}}
            self._receipts.collection.update_many(query, update, session=session)

    def _commits(self, query: Document) -> list[Commit]:
        wanted = {"seal": 1, "sequence": 1}
        found = self._receipts.collection.find({**query, "seal": {"$exists": True}}, wanted)
        return sorted(filter(None, map(commit_of, found)), key=lambda it: it.sequence)


#: How to fix a table that is not of this archive.
ANOTHER = "The table is another archive's: give [lake] another namespace or catalog"


#: The property that passes the store to pyiceberg.
STORE = "bucketwise.store"


def location(store: ObjectStore, key: str) -> str:
    """Returns the URL of an object as readers of Iceberg take it: they take a `%` for what it is."""
    return f"{unquote(store.url)}/{key}"


class StoreFiles(FileIO):
    """Made by pyiceberg, from the properties of a catalog. `written`: the URLs of what was written."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        super().__init__(dict(properties))
        self.written: set[str] = set()

    def new_input(self, location: str) -> InputFile:
        """Returns a file to read. Raises LakeError where it is not in the store."""
        return _Input(location, *self._at(location))

    def new_output(self, location: str) -> OutputFile:
        """Returns a file to write; raises as `new_input`."""
        output = _Output(location, *self._at(location))
        self.written.add(location)
        return output

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Removes a file, if it is there; raises as `new_input`."""
        store, key = self._at(location if isinstance(location, str) else location.location)
        store.delete([key])

    def _at(self, url: str) -> tuple[ObjectStore, str]:
        store: ObjectStore = self.properties[STORE]
        root = location(store, "")
        if not url.startswith(root):
            raise LakeError(f"{url}: this is not in the store {store.url}. {ANOTHER}")
        return store, url.removeprefix(root)


class _Input(InputFile):
    def __init__(self, location: str, store: ObjectStore, key: str) -> None:
        super().__init__(location)
        self._store, self._key = store, key

    def __len__(self) -> int:
        found = self._store.head(self._key)
        if found is None:
            raise FileNotFoundError(self.location)
        return found.size

    def exists(self) -> bool:
        return self._store.head(self._key) is not None

    def open(self, seekable: bool = True) -> Any:  # noqa: ARG002 - it always is
        try:
            return io.BytesIO(self._store.get_bytes(self._key))
        except NotFound:
            raise FileNotFoundError(self.location) from None


class _Output(OutputFile):
    def __init__(self, location: str, store: ObjectStore, key: str) -> None:
        super().__init__(location)
        self._store, self._key = store, key
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def exists(self) -> bool:
        return self.to_input_file().exists()

    def to_input_file(self) -> InputFile:
        return _Input(self.location, self._store, self._key)

    def create(self, overwrite: bool = False) -> Any:
        return _Stream(self, overwrite)

    def put(self, data: bytes, *, overwrite: bool) -> None:
        try:
            self._store.put_bytes(self._key, data, if_absent=not overwrite)
        except AlreadyExists:
            raise FileExistsError(self.location) from None
        self._size = len(data)


class _Stream(io.BytesIO):
    """Is put when it is closed; not where an error has ended the writing."""

    def __init__(self, file: _Output, overwrite: bool) -> None:
        super().__init__()
        self._file, self._overwrite = file, overwrite

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is not None:
            super().close()
        self.close()

    def close(self) -> None:
        if not self.closed:
            data = self.getvalue()
            super().close()
            self._file.put(data, overwrite=self._overwrite)
