"""The parts of a commit: a Parquet file for each UTC day. How its files are read."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bucketwise.archivers.format import parquet
from bucketwise.archivers.format.manifest import DamagedError, Part, StoredFile
from bucketwise.archivers.format.names import day
from bucketwise.archivers.stores.base import Corrupt, NotFound, ObjectStore
from bucketwise.buckets.fields.times import DAY_MS, as_date
from bucketwise.buckets.packing.pack import Packed


def write_parts(
    packed: Packed, key_of: Callable[[str], str], types: dict[str, str], written: dict[str, bytes]
) -> Iterator[Part]:
    """Yields a part for each UTC day, under the key of that day; into `written`: what its file holds, by its
    key."""
    for start, end in itertools.pairwise(_edges_of_days(packed.rows.time)):
        times = packed.rows.time[start:end]
        dt, first, last = day(int(times[0])), int(times.min()), int(times.max())
        if {day(first), day(last)} != {dt}:  # whoever looks for a day would miss some
            raise ValueError(f"the rows of {dt} are not contiguous")
        key = key_of(dt)
        written[key] = parquet.write_part(packed.rows, slice(start, end), types)
        yield Part(
            **stored(key, written[key]).model_dump(),
            dt=date.fromisoformat(dt),
            rows=end - start,
            first=as_date(first),
            last=as_date(last),
        )


def _edges_of_days(time: NDArray[np.int64]) -> list[int]:
    """Returns where the rows of each day start, and where the last end. Rows are sorted by day only, which is
    enough for that."""
    edges = [0]
    while edges[-1] < len(time):
        rest = time[edges[-1] :]
        edges.append(edges[-1] + int(np.searchsorted(rest, (rest[0] // DAY_MS + 1) * DAY_MS)))
    return edges


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
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, MemoryError) or getattr(error, "errno", None):
            raise  # a fault of this machine, not damage
        place = f"{store.url}/{file.key}"
        raise DamagedError("part-differs", place, f"this or a part of its commit: {error}") from None
