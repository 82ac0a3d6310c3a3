"""Unions: one layout for documents that each lack something else.

Where slots are missing here and there, or ints stand among doubles, nearly every document has a layout of its
own. A union has room for all that any of them holds: each element that may be absent, and each type that it
may have, at its own place. A document is *padded* to the union: its bytes in their places, zeros where
something is absent. Then a matrix with holes at fixed offsets holds all of them, as with documents that are
alike, and flags say what is there.

The flags of a document are a guess, made by comparing names and types step by step in all documents at once.
The proof follows: every byte that is there, outside the holes, equals the union's. Lengths of sub-documents
are holes, since they differ, and each is compared with what lies there. A document that does not fit to the
last byte is not taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.bson.raw import Docs
from bucketwise.buckets.layouts.layout import Bytes2D, Flags, Layout, row_slices
from bucketwise.buckets.layouts.plan import WORD, MatchStep, Walk

if TYPE_CHECKING:
    import pyarrow as pa


class _Stretches(NamedTuple):
    """Stretches of padded documents, one after another."""

    edges: NDArray[np.int64]  # s + 1: where each begins, and the last ends
    is_present: Flags  # s: by turns

    @classmethod
    def of(cls, present: Flags, flag: NDArray[np.integer]) -> _Stretches:
        starts = np.flatnonzero(np.diff(flag, prepend=flag[0] - 1))  # of bytes of one flag
        is_present = present.take(flag[starts], axis=1).reshape(-1)
        turns = np.flatnonzero(is_present[1:] != is_present[:-1]) + 1
        row, at = np.divmod(turns, len(starts))
        edges = np.zeros(len(turns) + 2, dtype=np.int64)
        edges[1:-1] = row * len(flag) + starts[at]
        edges[-1] = len(present) * len(flag)
        by_turns = np.zeros(len(edges) - 1, dtype=np.bool_)
        by_turns[0 if is_present[:1].any() else 1 :: 2] = True
        return cls(edges, by_turns)


def pad(data: NDArray[np.uint8], present: Flags, flag: NDArray[np.integer], empty: Bytes2D) -> Bytes2D:
    """Writes n documents that lie back to back into the n `empty` ones, each by its flags. Raises ValueError
    where their length is not what their flags say."""
    import pyarrow as pa
    import pyarrow.compute as pc

    edges, is_present = _Stretches.of(present, flag)
    within = np.zeros(len(edges), dtype=np.int64)
    np.cumsum(np.diff(edges) * is_present, out=within[1:])
    if within[-1] != data.size or edges[-1] != empty.size:
        raise ValueError(f"{data.size} bytes where the flags of {len(present)} documents say {within[-1]}")
    bits = pa.py_buffer(np.packbits(is_present, bitorder="little"))
    chosen = pa.Array.from_buffers(pa.bool_(), len(is_present), [None, bits])
    padded = pc.if_else(chosen, _texts(data, within), _texts(empty, edges))
    return _bytes_of(padded, empty.size).reshape(empty.shape)


def cut(matrix: Bytes2D, present: Flags, flag: NDArray[np.integer]) -> NDArray[np.uint8]:
    """Returns what is there of padded documents, back to back: reverses `pad`. Raises ValueError where these
    are no documents with such flags."""
    import pyarrow as pa
    import pyarrow.compute as pc

    edges, is_present = _Stretches.of(present, flag)
    if edges[-1] != matrix.size:
        raise ValueError(f"{matrix.size} bytes where {len(present)} documents of {len(flag)} are to be cut")
    chosen = pa.array(np.flatnonzero(is_present))
    held = int((np.diff(edges) * is_present).sum())
    return _bytes_of(pc.take(_texts(matrix, edges), chosen, boundscheck=False), held)


def _texts(data: NDArray[np.uint8], edges: NDArray[np.int64]) -> pa.Array:
    import pyarrow as pa

    buffers = [None, pa.py_buffer(edges), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(edges) - 1, buffers)


def _bytes_of(texts: pa.Array, size: int) -> NDArray[np.uint8]:
    return np.frombuffer(texts.buffers()[2], dtype=np.uint8, count=size)


#: Documents that are matched at once; of longer ones, as many as take so many bytes.
AT_ONCE, _BYTES = 4096, 1 << 23


class Union(NamedTuple):
    """A layout of which parts may be absent, with the steps that match documents against it."""

    layout: Layout
    steps: Sequence[MatchStep]

    @property
    def size(self) -> int:
        """Returns the size of its layout in bytes, for caches."""
        return self.layout.size

    def take(self, docs: Docs) -> tuple[NDArray[np.int64], Flags, Bytes2D]:
        """Returns the rows of the documents that fit, the flags of each, and each one padded."""
        variants, size = self.layout.variants, self.layout.size
        assert variants is not None
        fits, present = self._guess(docs)
        rows = np.flatnonzero(fits)
        chosen, present = (docs, present) if fits.all() else (docs.take(rows), present[rows])
        data = np.frombuffer(chosen.data, dtype=np.uint8)
        matrix = np.empty((len(rows), size), dtype=np.uint8)
        proven = np.zeros(len(rows), dtype=np.bool_)
        empty = matrix[:0]
        for slab in row_slices(len(rows), size):
            edges = chosen.offsets[slab.start : slab.stop + 1]
            if not len(empty):  # in the first, which is the largest
                empty = np.tile(self.layout.skeleton, (len(edges) - 1, 1))
            held = data[edges[0] : edges[-1]]
            matrix[slab] = pad(held, present[slab], variants.flag, empty[: len(edges) - 1])
            wrong = (matrix[slab] ^ self.layout.skeleton) & self.layout.mask
            proven[slab] = wrong.max(axis=1) == 0
        if proven.all():
            return rows, present, matrix
        return rows[proven], present[proven], matrix[proven]

    def _guess(self, docs: Docs) -> tuple[Flags, Flags]:
        """Returns which documents seem to fit, and the flags of all."""
        count = self.layout.variants.flags if self.layout.variants else 0
        present = np.empty((len(docs), count + 1), dtype=np.bool_)
        fits = np.empty(len(docs), dtype=np.bool_)
        beyond = bytes(self.layout.size + WORD)  # no guess reads so far beyond a document's end
        step = min(max(1, _BYTES // self.size), AT_ONCE)
        for start in range(0, len(docs), step):
            slab, edges = slice(start, start + step), docs.offsets[start : start + step + 1]
            data, at, stop = docs.data, int(edges[0]), int(edges[-1]) + len(beyond)
            if stop > len(data):  # there is no more behind: in a copy there is
                data, at, stop = data[at:] + beyond, 0, stop - at
            words = np.ndarray((stop - at - WORD + 1,), "<u8", data, at, (1,))
            walk = Walk(words, edges[:-1] - edges[0], edges[1:] - edges[0], count)
            fits[slab], flags = walk.through(self.steps)
            present[slab] = flags.T
        return fits, present
