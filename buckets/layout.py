"""Layouts: what all documents of one shape have in common.

A layout is a document with the bytes of its scalar values (its holes) cut out. Buckets of one policy
mostly share a few layouts, so that the structure is walked once and numpy reads and writes the values
of all documents at fixed offsets. Two documents share a layout only when every byte outside the holes is
the same; nothing is assumed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from buckets.bsontypes import ARRAY, DOCUMENT, extent
from buckets.raw import Docs

Path = tuple[str, ...]
Bytes2D = NDArray[np.uint8]

#: A layout that fewer than one in so many documents share.
_FEW = 128
#: So many bytes are compared at once.
_SLAB = 1 << 18


class Element(NamedTuple):
    """One field: where its value lies, and the part of it that may differ within a layout (its hole)."""

    path: Path
    type: int
    start: int  # of the value
    size: int  # of the value
    hole: int  # offset
    width: int  # 0: nothing may differ


class Layout:
    """The structure of one document, and of all that share it."""

    def __init__(self, document: bytes) -> None:
        self.elements: list[Element] = []
        self.size = len(document)
        self.repeated: set[Path] = set()
        self._by_path: dict[Path, Element] = {}
        self._children: dict[Path, list[Element]] = {}
        self._walk(document, 4, len(document) - 1, ())
        holes = np.array([(e.hole, e.width) for e in self.elements if e.width], dtype=np.int64).reshape(-1, 2)
        self.mask = np.full(self.size, 0xFF, dtype=np.uint8)  # of the bytes outside the holes
        self.mask[spread(holes[:, 0], holes[:, 1])] = 0
        self.skeleton = np.frombuffer(document, dtype=np.uint8) & self.mask

    def get(self, path: Path) -> Element | None:
        return self._by_path.get(path)

    def children(self, path: Path) -> list[Element]:
        return self._children.get(path, [])

    def _walk(self, document: bytes, position: int, end: int, parent: Path) -> None:
        children = self._children.setdefault(parent, [])
        while position < end:
            kind = document[position]
            stop = document.index(0, position + 1)
            path = _path(parent, document[position + 1 : stop])
            start = stop + 1
            element = Element(path, kind, start, *extent(document, kind, start))
            self.elements.append(element)
            children.append(element)
            if self._by_path.setdefault(path, element) is not element:
                self.repeated.add(path)
            position = start + element.size
            if kind in (DOCUMENT, ARRAY):
                self._walk(document, start + 4, position - 1, path)


@lru_cache(maxsize=1 << 16)
def _path(parent: Path, name: bytes) -> Path:
    """Shared by all layouts: there may be one a document."""
    return (*parent, name.decode("utf-8", "backslashreplace"))


def spread(starts: NDArray[np.integer], widths: NDArray[np.integer]) -> NDArray[np.int64]:
    """Every position in these spans."""
    ends = np.cumsum(widths, dtype=np.int64)
    return np.repeat(starts - ends + widths, widths) + np.arange(ends[-1] if len(ends) else 0)


class Group(NamedTuple):
    """Documents that share a layout, as a matrix of bytes with a row a document."""

    layout: Layout
    members: NDArray[np.int64]  # n: their indices
    matrix: Bytes2D  # n × layout.size


def group(docs: Docs) -> Iterator[Group]:
    """The documents sorted into layouts; each is in just one group."""
    lengths = np.diff(docs.offsets)
    for length in np.unique(lengths):
        members = np.flatnonzero(lengths == length)
        chosen = docs if len(members) == len(docs) else docs.take(members.tolist())
        matrix = np.frombuffer(chosen.data, dtype=np.uint8).reshape(len(members), int(length))
        yield from _of_one_length(members, matrix)


def _of_one_length(members: NDArray[np.int64], matrix: Bytes2D) -> Iterator[Group]:
    while len(members):
        layout = Layout(matrix[0].tobytes())
        alike = _alike(matrix, layout)
        if alike.all():
            yield Group(layout, members, matrix)
            return
        yield Group(layout, members[alike], matrix[alike])
        members, matrix = members[~alike], matrix[~alike]
        if np.count_nonzero(alike) * _FEW < len(members):
            break
    # So few are alike that to compare each with all others takes longer than to walk each.
    layouts: dict[bytes, tuple[Layout, list[int]]] = {}
    for row, document in enumerate(matrix):
        layout = Layout(document.tobytes())
        layouts.setdefault(layout.skeleton.tobytes(), (layout, []))[1].append(row)
    for layout, rows in layouts.values():
        yield Group(layout, members[rows], matrix[rows])


def _alike(matrix: Bytes2D, layout: Layout) -> NDArray[np.bool_]:
    """Which rows equal the layout in every byte outside its holes (some rows at a time, for the cache)."""
    slab = max(1, _SLAB // max(1, layout.size))
    return np.concatenate(
        [
            ((matrix[i : i + slab] ^ layout.skeleton) & layout.mask).max(axis=1) == 0
            for i in range(0, len(matrix), slab)
        ]
    )


def read_holes(matrix: Bytes2D, holes: NDArray[np.int64], dtype: str) -> NDArray[np.generic]:
    """The holes at these offsets as n × k values of a little-endian numpy type."""
    values = np.empty((len(matrix), len(holes)), dtype)
    for at, view in _views(matrix, holes, values.dtype):
        values[:, at] = view
    return values


def write_holes(matrix: Bytes2D, holes: NDArray[np.int64], values: NDArray[np.generic]) -> None:
    """The reverse of `read_holes`; values are n × k, already of the holes' type."""
    for at, view in _views(matrix, holes, values.dtype):
        view[:] = values[:, at]


def _views(
    matrix: Bytes2D, holes: NDArray[np.int64], dtype: np.dtype[Any]
) -> Iterator[tuple[slice, NDArray[Any]]]:
    """The holes as they lie in the matrix. Those of a bucket mostly lie equally far apart, but where a key
    takes another digit, so that a few strides say where all are."""
    steps = np.diff(holes)
    at = 0
    for end in [*(np.flatnonzero(np.diff(steps)) + 1).tolist(), len(holes) - 1]:
        if at <= end:  # else the view before took it already
            step = int(steps[at]) if end > at else 0
            shape, strides = (len(matrix), end + 1 - at), (matrix.strides[0], step)
            yield slice(at, end + 1), np.ndarray(shape, dtype, matrix, int(holes[at]), strides)
            at = end + 1
