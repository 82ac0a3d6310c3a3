"""pyiceberg's files in the policy's own store: with its settings, its retries and its counts of requests."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from pyiceberg.io import FileIO, InputFile, OutputFile

from bucketwise.archivers.lake.records import LakeError
from bucketwise.archivers.stores.base import AlreadyExists, NotFound, ObjectStore

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
