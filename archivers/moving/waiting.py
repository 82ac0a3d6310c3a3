"""Buckets that a run has copied, and that are still in the source."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from tempfile import SpooledTemporaryFile
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from buckets.bson.raw import Batch

#: Bytes of names that are kept in memory, without a file.
MOST_IN_MEMORY = 1 << 20


class _UnderWay(NamedTuple):
    """A lot that is not committed yet."""

    first: int  # the span of its buckets, milliseconds
    last: int
    names: NDArray[np.uint64]  # sorted


class _Names(NamedTuple):
    """Where the names of a lot's buckets lie in the file."""

    first: int
    last: int
    at: int
    bytes: int
    are_gone: bool


class Waiting:
    """Buckets that this run has copied and that are not deleted: not yet, kept, or gone by somebody else. As
    many may stay as the collection has, so that their names, eight bytes each, are kept in a file, and those
    of lots of the same time are read back."""

    def __init__(self) -> None:
        self._under_way: deque[_UnderWay] = deque()
        self._lots: list[_Names] = []
        self._file = SpooledTemporaryFile(MOST_IN_MEMORY, prefix="bucketwise-")  # noqa: SIM115 - see `close`

    def begin(self, batch: Batch, first_ms: int, last_ms: int) -> None:
        """Notes the buckets of a lot whose copy begins. The lot spans first to last, milliseconds."""
        self._under_way.append(_UnderWay(first_ms, last_ms, np.sort(batch.main.id_hashes)))

    def settle(self, *, stay: bool) -> None:
        """Settles the lot that was begun first. `stay`: its buckets stay in the source."""
        lot = self._under_way.popleft()
        if stay:
            self._write(lot, are_gone=False)

    def miss(self, gone: Batch, first_ms: int, last_ms: int) -> None:
        """Notes that somebody else has deleted these buckets, of a lot that spans first to last."""
        self._write(_UnderWay(first_ms, last_ms, np.sort(gone.main.id_hashes)), are_gone=True)

    def _write(self, lot: _UnderWay, *, are_gone: bool) -> None:
        self._file.seek(0, os.SEEK_END)
        self._lots.append(_Names(lot.first, lot.last, self._file.tell(), lot.names.nbytes, are_gone))
        self._file.write(lot.names.tobytes())

    def under_way(self, batch: Batch, first_ms: int, last_ms: int) -> NDArray[np.bool_]:
        """Returns which of these buckets, which span first to last, are in a lot that is not settled,
        (n,)."""
        return _among(batch, [lot.names for lot in self._under_way if _touches(lot, first_ms, last_ms)])

    def staying(self, batch: Batch, first_ms: int, last_ms: int) -> NDArray[np.bool_]:
        """Returns which of these buckets are in a settled lot, and stayed, (n,)."""
        return self._found(batch, first_ms, last_ms, are_gone=False)

    def gone(self, batch: Batch, first_ms: int, last_ms: int) -> NDArray[np.bool_]:
        """Returns which of these buckets somebody else has deleted, (n,)."""
        return self._found(batch, first_ms, last_ms, are_gone=True)

    def _found(self, batch: Batch, first_ms: int, last_ms: int, *, are_gone: bool) -> NDArray[np.bool_]:
        near = (it for it in self._lots if it.are_gone == are_gone and _touches(it, first_ms, last_ms))
        return _among(batch, map(self._read, near))

    def _read(self, lot: _Names) -> NDArray[np.uint64]:
        self._file.seek(lot.at)
        return np.frombuffer(self._file.read(lot.bytes), np.uint64)

    def close(self) -> None:
        """Removes the file. Holds no names from then on."""
        with suppress(OSError):  # a full disk: the names are no longer needed
            self._file.close()


def _touches(lot: _UnderWay | _Names, first_ms: int, last_ms: int) -> bool:
    return lot.first <= last_ms and lot.last >= first_ms


def _among(batch: Batch, lots: Iterable[NDArray[np.uint64]]) -> NDArray[np.bool_]:
    found = np.zeros(len(batch), dtype=np.bool_)
    for there in lots:
        order = np.argsort(batch.main.id_hashes)
        mine = batch.main.id_hashes[order]  # these find their places one after another
        at = np.searchsorted(there, mine)
        found[order] |= there[np.minimum(at, len(there) - 1)] == mine
    return found
