"""Keeps track of the buckets that a run has copied and that are still in the source."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from tempfile import SpooledTemporaryFile
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.bson.raw import Batch

#: Bytes of names that are kept in memory, without a file.
MOST_IN_MEMORY = 1 << 20


class _Unsettled(NamedTuple):
    """The buckets of a commit that is being copied, or whose delete has not been decided."""

    first: int  # the span of its buckets, milliseconds
    last: int
    names: NDArray[np.uint64]  # sorted


class _NamesInFile(NamedTuple):
    """Where the file holds the names of a commit's buckets."""

    first: int
    last: int
    at: int
    bytes: int
    are_gone: bool


class CopiedBuckets:
    """Buckets that this run has copied and not deleted: not yet, or not at all, or somebody else has. There
    may be as many as the collection has, so their names, eight bytes each, are kept in a file, and only those
    of commits of the same time are read back."""

    def __init__(self) -> None:
        self._unsettled: deque[_Unsettled] = deque()
        self._settled: list[_NamesInFile] = []
        self._file = SpooledTemporaryFile(MOST_IN_MEMORY, prefix="bucketwise-")  # noqa: SIM115 - see `close`

    def begin(self, batch: Batch, first_ms: int, last_ms: int) -> None:
        """Notes the buckets of a commit whose copy begins. They span first to last, milliseconds."""
        self._unsettled.append(_Unsettled(first_ms, last_ms, np.sort(batch.main.id_hashes)))

    def settle(self, *, stay: bool) -> None:
        """Settles the commit that was begun first. `stay`: its buckets stay in the source."""
        commit = self._unsettled.popleft()
        if stay:
            self._write(commit, are_gone=False)

    def miss(self, gone: Batch, first_ms: int, last_ms: int) -> None:
        """Notes that somebody else has deleted these buckets, of a commit that spans first to last."""
        self._write(_Unsettled(first_ms, last_ms, np.sort(gone.main.id_hashes)), are_gone=True)

    def _write(self, commit: _Unsettled, *, are_gone: bool) -> None:
        self._file.seek(0, os.SEEK_END)
        self._settled.append(
            _NamesInFile(commit.first, commit.last, self._file.tell(), commit.names.nbytes, are_gone)
        )
        self._file.write(commit.names.tobytes())

    def unsettled(self, batch: Batch, first_ms: int, last_ms: int) -> NDArray[np.bool_]:
        """Returns which of these buckets, which span first to last, are in a commit that is not settled,
        (n,)."""
        return _among(
            batch, [commit.names for commit in self._unsettled if _touches(commit, first_ms, last_ms)]
        )

    def staying(self, batch: Batch, first_ms: int, last_ms: int) -> NDArray[np.bool_]:
        """Returns which of these buckets are in a settled commit, and stayed, (n,)."""
        return self._found(batch, first_ms, last_ms, are_gone=False)

    def gone(self, batch: Batch, first_ms: int, last_ms: int) -> NDArray[np.bool_]:
        """Returns which of these buckets somebody else has deleted, (n,)."""
        return self._found(batch, first_ms, last_ms, are_gone=True)

    def _found(self, batch: Batch, first_ms: int, last_ms: int, *, are_gone: bool) -> NDArray[np.bool_]:
        near = (it for it in self._settled if it.are_gone == are_gone and _touches(it, first_ms, last_ms))
        return _among(batch, map(self._read, near))

    def _read(self, commit: _NamesInFile) -> NDArray[np.uint64]:
        self._file.seek(commit.at)
        return np.frombuffer(self._file.read(commit.bytes), np.uint64)

    def close(self) -> None:
        """Removes the file. Holds no names from then on."""
        with suppress(OSError):  # a full disk: the names are no longer needed
            self._file.close()


def _touches(commit: _Unsettled | _NamesInFile, first_ms: int, last_ms: int) -> bool:
    return commit.first <= last_ms and commit.last >= first_ms


def _among(batch: Batch, names: Iterable[NDArray[np.uint64]]) -> NDArray[np.bool_]:
    found = np.zeros(len(batch), dtype=np.bool_)
    for there in names:
        order = np.argsort(batch.main.id_hashes)
        mine = batch.main.id_hashes[order]  # these find their places one after another
        at = np.searchsorted(there, mine)
        found[order] |= there[np.minimum(at, len(there) - 1)] == mine
    return found
