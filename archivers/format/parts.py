"""The parts of a commit: a Parquet file for each UTC day. How its files are read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

from bucketwise.archivers.format.manifest import DamagedError, StoredFile
from bucketwise.archivers.stores.base import Corrupt, NotFound, ObjectStore


def stored(key: str, data: bytes) -> StoredFile:
    """Returns the entry of a manifest for a file."""
    return StoredFile(key=key, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())


def fetch(store: ObjectStore, file: StoredFile) -> bytes:
    """Returns the bytes of a file. Raises DamagedError where it is missing, or not as its manifest says."""
    place = f"{store.url}/{file.key}"
    with damage_at(place):
        data = store.get_bytes(file.key, file.bytes)
    found = stored(file.key, data)
    if (found.bytes, found.sha256) != (file.bytes, file.sha256):
        raise DamagedError(
            "part-differs",
            place,
            f"the file has {found.bytes} bytes with SHA-256 {found.sha256[:16]}…, its manifest says "
            f"{file.bytes} bytes with {file.sha256[:16]}…",
        )
    return data


def check_file(store: ObjectStore, file: StoredFile) -> None:
    """Raises DamagedError as `fetch` does. Reads the file only where the store can't tell."""
    with damage_at(f"{store.url}/{file.key}"):
        store.check(file.key, file.bytes, file.sha256)


@contextmanager
def damage_at(place: str) -> Iterator[None]:
    """Raises DamagedError where the store does not have a file as it was put there."""
    try:
        yield
    except NotFound:
        raise DamagedError("part-missing", place, "the file is missing, though a manifest names it") from None
    except Corrupt as error:
        raise DamagedError("part-differs", place, error.reason) from None


@contextmanager
def decoding(store: ObjectStore, file: StoredFile) -> Iterator[None]:
    """Raises DamagedError where files of a commit can't be decoded, and names this one."""
    from pyarrow import ArrowException

    try:
        yield
    except (ArrowException, OSError) as error:
        if isinstance(error, MemoryError) or getattr(error, "errno", None):
            raise  # a fault of this machine, not damage
        place = f"{store.url}/{file.key}"
        raise DamagedError("part-differs", place, f"this or a part of its commit: {error}") from None
