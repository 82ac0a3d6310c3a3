"""Series in portions: where a slice has more of them than fit in memory, those that wait lie in a file.

Each series is in one portion, by a hash of its key, and so are its summaries, whatever its fields hold and
whichever process reads it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from struct import Struct
from tempfile import TemporaryFile
from typing import Any

PORTIONS = 256
ALL_PORTIONS = range(PORTIONS)
#: Bytes of a portion's records that are written together.
BLOCK_BYTES = 1 << 14
_LENGTH = Struct("<I")


def portion_of(key: bytes) -> int:
    """Returns which portion a series is in: the same in each process."""
    return zlib.crc32(key) % PORTIONS


class SpillFile:
    """Records by portion, compressed, in a temporary file that has no name and goes with this object. It can
    be pickled, with all that it holds."""

    def __init__(self) -> None:
        self._file = TemporaryFile(prefix="bucketwise-")  # noqa: SIM115 - it goes with this
        self._places: list[list[tuple[int, int]]] = [[] for _ in ALL_PORTIONS]  # offset, length
        self._waiting: list[list[bytes]] = [[] for _ in ALL_PORTIONS]
        self._sizes = [0] * PORTIONS

    def put(self, portion: int, record: bytes) -> None:
        """Adds a record to a portion. Writes the portion to the file once enough of it waits."""
        self._waiting[portion] += (_LENGTH.pack(len(record)), record)
        self._sizes[portion] += _LENGTH.size + len(record)
        if self._sizes[portion] >= BLOCK_BYTES:
            self._write(portion)

    def get(self, portion: int) -> Iterator[bytes]:
        """Yields its records in the order in which they were put."""
        self._write(portion)
        for offset, length in self._places[portion]:
            self._file.seek(offset)
            data, at = zlib.decompress(self._file.read(length)), 0
            while at < len(data):
                (size,) = _LENGTH.unpack_from(data, at)
                at += _LENGTH.size + size
                yield data[at - size : at]

    def take(self, other: SpillFile) -> None:
        """Adds all records of another file."""
        for portion in ALL_PORTIONS:
            for record in other.get(portion):
                self.put(portion, record)

    def _write(self, portion: int) -> None:
        if not self._waiting[portion]:
            return
        data = zlib.compress(b"".join(self._waiting[portion]), 1)
        self._waiting[portion].clear()
        self._sizes[portion] = 0
        self._places[portion].append((self._file.seek(0, 2), len(data)))
        self._file.write(data)

    def __getstate__(self) -> dict[str, Any]:
        for portion in ALL_PORTIONS:
            self._write(portion)
        self._file.seek(0)
        return {"data": self._file.read(), "places": self._places}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]
        self._file.write(state["data"])
        self._places = state["places"]


class SpilledRecords:
    """Records that are read once and then given portion by portion. `portion` returns the portion of a
    record."""

    def __init__(self, portion: Callable[[bytes], int]) -> None:
        self._portion = portion
        self._files: dict[object, SpillFile] = {}

    def of(self, name: object, read: Callable[[], Iterable[bytes]], portions: range) -> Iterable[bytes]:
        """Returns the records of some portions, of those that `read` gives, or gave under this name
        before."""
        if portions == ALL_PORTIONS:
            return read()
        if name not in self._files:
            file = SpillFile()
            for record in read():
                file.put(self._portion(record), record)
            self._files[name] = file
        return chain.from_iterable(map(self._files[name].get, portions))

    def clear(self) -> None:
        """Drops all records: from now on, names mean something else."""
        self._files.clear()
