"""The `_id`s of documents that lie back to back: the type and the bytes of each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.bson.types import (
    ARRAY,
    BINARY,
    CODE,
    DOCUMENT,
    FIXED,
    OBJECT_ID,
    STRING,
    SYMBOL,
    first_at,
)

#: Bytes of an ObjectId, with its type.
OBJECT_ID_SIZE = 13
_ODD_FACTOR = np.uint64(0x9E3779B97F4A7C15)
#: Where the `_id` comes first: its type lies here in the document, behind the length; its value here; and
#: where that begins with its length, this ends here.
_TYPE, _VALUE, _LENGTH_END = 4, 9, 13
_NAME = np.frombuffer(b"_id\0", np.uint8)
#: Sizes of values by their types; of those that begin with a length: what they have beyond it.
_SIZES, _BEYOND = np.full(256, -1), np.full(256, -1)
_SIZES[list(FIXED)] = list(FIXED.values())
_BEYOND[[STRING, CODE, SYMBOL, BINARY, DOCUMENT, ARRAY]] = [4, 4, 4, 5, 0, 0]


def raw_ids(data: bytes, offsets: NDArray[np.int64]) -> list[bytes]:
    """Returns the type and bytes of each document's `_id`; empty bytes where it has none. Where it comes
    first in all, as in ordinary collections, finds all at once."""
    starts = offsets[:-1]
    sizes = _sizes_of_first(np.frombuffer(data, np.uint8), starts, np.diff(offsets))
    ends = np.where(sizes < 0, offsets[1:], starts + _VALUE + sizes)
    found = zip(starts.tolist(), ends.tolist(), (sizes < 0).tolist(), strict=True)
    return [
        first_at(data[start:end], ("_id",))
        if is_elsewhere
        else data[start + _TYPE : start + _TYPE + 1] + data[start + _VALUE : end]
        for start, end, is_elsewhere in found
    ]


def _sizes_of_first(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Returns the size of each `_id` that comes first, and lies inside its document; else -1."""
    if not len(starts):
        return lengths
    heads = data[np.minimum(starts[:, None] + np.arange(_TYPE, _LENGTH_END), len(data) - 1)]
    kinds, length_fields = heads[:, 0], np.ascontiguousarray(heads[:, _VALUE - _TYPE :]).view("<i4")[:, 0]
    has_length = (_BEYOND[kinds] >= 0) & (length_fields >= 0) & (lengths > _LENGTH_END)
    sizes = np.where(has_length, length_fields + _BEYOND[kinds], _SIZES[kinds])
    is_named = (heads[:, 1 : _VALUE - _TYPE] == _NAME).all(axis=1)
    return np.where(is_named & (_VALUE + sizes < lengths), sizes, -1)


def are_object_ids(raw_ids: Sequence[bytes]) -> bool:
    """Returns whether all of these `_id`s are ObjectIds."""
    return all(map(is_object_id, raw_ids))


def is_object_id(raw_id: bytes) -> bool:
    """Returns whether an `_id` is an ObjectId. `raw_id`: its type and bytes."""
    return len(raw_id) == OBJECT_ID_SIZE and raw_id[0] == OBJECT_ID


def mixed(object_ids: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Returns a number for each ObjectId, (n, 12) → (n,): by odd factors, each bit affects those above it.
    MongoDB holds the numbers of archived buckets whose originals stay, so they have to stay as they are."""
    first = np.ascontiguousarray(object_ids[:, :8]).view("<u8")[:, 0] * _ODD_FACTOR
    last = np.ascontiguousarray(object_ids[:, 8:]).view("<u4")[:, 0].astype(np.uint64)
    return np.asarray((((first >> np.uint64(32)) ^ first) + last) * _ODD_FACTOR)
