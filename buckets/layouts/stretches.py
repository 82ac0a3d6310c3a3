"""Converts documents of a union between their two forms: back to back, and padded to one row each.

In a padded document, bytes that it has alternate with bytes that it lacks. The bounds of these stretches are
found by comparing flags, and the stretches are copied whole, by Arrow, as strings of an array of strings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.layouts.layout import Bytes2D, Flags

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
