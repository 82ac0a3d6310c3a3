"""Long buckets cut up: each of their samples becomes a document of its own, so that those of one shape are
read at once.

The structure of a document is read element by element. For a bucket with hundreds of thousands of samples
that takes far longer than all else, and no other bucket shares it. Its samples mostly share a few.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.bson.raw import Batch, Docs
from bucketwise.buckets.bson.types import ARRAY, FIXED, elements, extent
from bucketwise.buckets.layouts.groups import Unions, group_by_layout, groups_of_one_length
from bucketwise.buckets.layouts.layout import Bytes2D, Group, Layout
from bucketwise.buckets.models import model_of
from bucketwise.config.policies import Policy

#: Bytes from which on a bucket is cut up, where fewer than so many in a batch are as long: others share their
#: structure.
LONG, _FEW = 1 << 18, 16
#: Rows that are gathered at once.
_ROWS = 1 << 15
_INT = struct.Struct("<i")
#: An array with nothing in it, and what begins one with a single element.
_EMPTY = _INT.pack(5) + b"\0"
_FIRST_KEY = b"0\0"


class CutBucket(NamedTuple):
    """A bucket without its samples, and these: in the order of `positions` a document each, by their
    lengths."""

    head: bytes
    samples: int
    parts: list[tuple[NDArray[np.int64], Bytes2D]]

    @property
    def group(self) -> Group:
        """Returns what is left of the bucket as a group of its own."""
        matrix = np.frombuffer(self.head, dtype=np.uint8).reshape(1, -1)
        return Group(Layout(self.head), np.zeros(1, dtype=np.int64), matrix)

    def groups(self) -> Iterator[Group]:
        """Yields the samples by their layouts. Members are their places in the bucket."""
        for positions, matrix in self.parts:
            yield from groups_of_one_length(positions, matrix)


class _Elements(NamedTuple):
    """The elements of an array: where the value of each lies, and its type."""

    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    kinds: NDArray[np.int64]

    def take(self, rows: NDArray[np.int64]) -> _Elements:
        return _Elements(self.starts[rows], self.sizes[rows], self.kinds[rows])


def cut_buckets(batch: Batch, policy: Policy, cut_from: int | None) -> dict[int, CutBucket]:
    """Returns the buckets of a batch that are cut up, by their indices: those that take so many bytes or
    more. None: none."""
    model = model_of(policy)
    is_apart = policy.overflow is None and policy.local_offset_field is None
    names = [it[0] for it in model.holders if len(it) == 1]
    if cut_from is None or model.array is None or not is_apart or len(names) < len(model.holders):
        return {}
    lengths = np.diff(batch.main.offsets)
    long = np.flatnonzero(lengths >= cut_from)
    distinct, counts = np.unique(lengths[long], return_counts=True)
    few = long[np.isin(lengths[long], distinct[counts < _FEW])]
    found = {unit: _cut(batch.main[unit], [it.encode() for it in names]) for unit in few.tolist()}
    return {unit: cut for unit, cut in found.items() if cut is not None}


def groups_of(
    docs: Docs, policy: Policy, unions: Unions | None, cuts: dict[int, CutBucket]
) -> Iterator[tuple[Group, CutBucket | None]]:
    """Yields documents by their layouts, each of those that are cut up without its samples and by itself."""
    rules = model_of(policy).union_rules
    if not cuts:
        yield from ((group, None) for group in group_by_layout(docs, rules, unions))
        return
    others = np.setdiff1d(np.arange(len(docs)), list(cuts))
    for group in group_by_layout(docs.take(others), rules, unions):
        yield group._replace(members=others[group.members]), None
    for unit, cut in cuts.items():
        yield cut.group._replace(members=np.array([unit])), cut


def _cut(document: bytes, names: Sequence[bytes]) -> CutBucket | None:
    """Returns a bucket with its arrays cut up; None where the first of them, that of the times, is none, or
    they are unlike."""
    arrays: dict[bytes, tuple[int, int]] = {}
    for start, value, end in elements(document):
        name = document[start + 1 : value - 1]
        if name in names and document[start] == ARRAY:
            if name in arrays:
                return None
            arrays[name] = value, end
    if names[0] not in arrays:
        return None
    found = {name: _scanned(document, *span) for name, span in arrays.items()}
    held = {name: it for name, it in found.items() if it is not None}
    count = len(held[names[0]].starts) if names[0] in held else 0
    if not count or len(held) < len(found) or any(len(it.starts) != count for it in held.values()):
        return None
    return CutBucket(_head(document, list(arrays.values())), count, list(_parts(document, held, count)))


def _scanned(document: bytes, start: int, end: int) -> _Elements | None:
    """Returns the elements of an array; None where its keys do not count from 0 on."""
    starts, sizes, kinds = [], [], []
    position, number, width, limit = start + 4, 0, 1, 10
    index, fixed = document.index, FIXED
    while position < end - 1:
        if number == limit:
            width, limit = width + 1, limit * 10
        kind, value = document[position], position + width + 2
        if index(0, position + 1) != value - 1:
            return None
        size = fixed.get(kind)
        if size is None:
            size = extent(document, kind, value)[0]
        starts.append(value)
        sizes.append(size)
        kinds.append(kind)
        position, number = value + size, number + 1
    data = np.frombuffer(document, dtype=np.uint8)
    held = _Elements(*(np.array(it, dtype=np.int64) for it in (starts, sizes, kinds)))
    return held if _counts(data, held.starts) else None


def _counts(data: NDArray[np.uint8], starts: NDArray[np.int64]) -> bool:
    """Returns whether the keys before these values are "0", "1", "2" and so on."""
    low, width = 0, 1
    while low < len(starts):
        numbers = np.arange(low, min(10**width, len(starts)))
        for digit in range(width):
            shown = data[starts[numbers] - 2 - digit]
            if (shown != ord("0") + numbers // 10**digit % 10).any():
                return False
        low, width = 10**width, width + 1
    return True


def _head(document: bytes, spans: list[tuple[int, int]]) -> bytes:
    """Returns a document with nothing in the arrays at these places."""
    pieces, position = [], 4
    for start, end in sorted(spans):
        pieces += [document[position:start], _EMPTY]
        position = end
    body = b"".join([*pieces, document[position:]])
    return _INT.pack(len(body) + 4) + body


def _parts(
    document: bytes, held: dict[bytes, _Elements], count: int
) -> Iterator[tuple[NDArray[np.int64], Bytes2D]]:
    """Yields documents of one sample each, by their types and lengths."""
    kind = np.zeros(count, dtype=np.int64)
    for it in held.values():
        distinct, number = np.unique(it.sizes * 256 + it.kinds, return_inverse=True)
        kind = np.unique(kind * len(distinct) + number.reshape(-1), return_inverse=True)[1].reshape(-1)
    order = np.argsort(kind, kind="stable")
    edges = [0, *(np.flatnonzero(np.diff(kind[order])) + 1).tolist(), count]
    data = np.frombuffer(document, dtype=np.uint8)
    for start, end in itertools.pairwise(edges):
        rows = order[start:end]
        yield rows, _documents(data, {name: it.take(rows) for name, it in held.items()})


def _documents(data: NDArray[np.uint8], held: dict[bytes, _Elements]) -> Bytes2D:
    """Returns documents of one sample each, all alike in types and lengths."""
    pieces: list[bytes | _Elements] = []
    for name, it in held.items():
        kind, size = int(it.kinds[0]), int(it.sizes[0])
        array = _INT.pack(4 + 1 + len(_FIRST_KEY) + size + 1) + bytes([kind]) + _FIRST_KEY
        pieces += [bytes([ARRAY]) + name + b"\0" + array, it, b"\0"]
    sizes = [len(it) if isinstance(it, bytes) else int(it.sizes[0]) for it in pieces]
    length, count = 4 + sum(sizes) + 1, len(next(iter(held.values())).starts)
    matrix = np.zeros((count, length), dtype=np.uint8)
    matrix[:, :4] = np.frombuffer(_INT.pack(length), dtype=np.uint8)
    at = 4
    for piece, size in zip(pieces, sizes, strict=True):
        if isinstance(piece, bytes):
            matrix[:, at : at + size] = np.frombuffer(piece, dtype=np.uint8)
        else:
            for low in range(0, count, _ROWS):
                starts = piece.starts[low : low + _ROWS]
                matrix[low : low + _ROWS, at : at + size] = data[starts[:, None] + np.arange(size)]
        at += size
    return matrix
