"""Layouts: what all documents of one shape have in common.

A layout is a document with the bytes of its scalar values (its holes) cut out. Buckets of one policy mostly
share a few layouts, so that the structure is read once, and numpy reads and writes the values of all
documents at fixed offsets. Two documents share a layout only when every byte outside the holes is the same;
nothing is assumed. A union is also a layout, of which parts may be absent: see `buckets/layouts/union.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.bson.types import ARRAY, DOCUMENT, STRING, extent

Path = tuple[str, ...]
Bytes2D = NDArray[np.uint8]
Flags = NDArray[np.bool_]

#: The flag of what is always there.
ALWAYS = -1
#: Bytes that are worked on at once: they fit into a cache, and few calls suffice for many.
SLAB = 1 << 21


class Element(NamedTuple):
    """One field: where its value lies, and the part of it that may differ within a layout (its hole)."""

    path: Path
    type: int
    start: int  # of the value
    size: int  # of the value
    hole: int  # offset
    width: int  # 0: nothing may differ
    flag: int = ALWAYS  # of a union: which flag of a document says that the element is there


#: The elements of one place: one, or none; in a union, several alternatives.
Cell = tuple[Element, ...]


class Variants(NamedTuple):
    """The elements of a union that may be absent."""

    #: Of the document and each element in it: its flag; may its length differ? Then that is part of its hole.
    marks: list[tuple[int, bool]]
    flag: NDArray[np.int32]  # of each byte
    flags: int  # how many there are
    optional: set[Path]  # what may be absent from a sub-document that is there


class NamesIn(NamedTuple):
    """Texts in the documents of an array that name what is beside them."""

    array: Path
    key: Path  # inside each document

    def has(self, path: Path) -> bool:
        """Returns whether the path is that of such a name, in any element of the array."""
        depth = len(self.array)
        return path[:depth] == self.array and path[depth + 1 :] == self.key


class Layout:
    """The structure of one document, and of all that share it."""

    def __init__(
        self, document: bytes, variants: Variants | None = None, names: NamesIn | None = None
    ) -> None:
        """`names`: texts that are part of the layout, as if they were names of fields."""
        self.elements: list[Element] = []
        self.size = len(document)
        self.variants = variants
        self.repeated: set[Path] = set()
        self._names = names
        self._cells: dict[Path, Cell] = {}
        self._children: dict[Path, list[Element]] = {}
        self._walk(document, 4, len(document) - 1, ())
        if variants is not None:
            self._vary(variants)
        #: h × 2, in the order of the elements: offset and width.
        holes = [(it.hole, it.width) for it in self.elements if it.width]
        self.holes = np.array(holes, dtype=np.int32).reshape(-1, 2)
        self.mask = np.full(self.size, 0xFF, dtype=np.uint8)  # of the bytes outside the holes
        self.mask[positions_in(*self.holes.T)] = 0
        self.skeleton = np.frombuffer(document, dtype=np.uint8) & self.mask

    def fits(self, document: bytes) -> bool:
        """Returns whether a document has this layout: it is equal in every byte outside the holes."""
        if len(document) != self.size:
            return False
        wrong = (np.frombuffer(document, dtype=np.uint8) ^ self.skeleton) & self.mask
        return not wrong.any()

    def alike(self, matrix: Bytes2D) -> Flags:
        """Returns which of n documents of its size, (n, size), equal it in every byte outside its holes.
        Mostly all do: then the bits that are set in any of them, and those set in all, are the layout's."""
        alike = np.ones(len(matrix), dtype=np.bool_)
        for slab in row_slices(len(matrix), self.size):
            rows = matrix[slab]
            in_any, in_all = np.bitwise_or.reduce(rows, axis=0), np.bitwise_and.reduce(rows, axis=0)
            if (((in_any ^ self.skeleton) | (in_all ^ self.skeleton)) & self.mask).any():
                alike[slab] = ((rows ^ self.skeleton) & self.mask).max(axis=1) == 0
        return alike

    def get(self, path: Path) -> Element | None:
        """Returns the element at this path; the first where a field is repeated, None where there is none."""
        return self._cells[path][0] if path in self._cells else None

    def cell(self, path: Path) -> Cell:
        """Returns the element at this path; in a union, all that may stand there."""
        return self._cells.get(path, ())

    def may_lack(self, parent: Path, path: Path) -> bool:
        """Returns whether some documents lack this element where its parent is there."""
        optional = self.variants.optional if self.variants else ()
        return any(path[:depth] in optional for depth in range(len(parent) + 1, len(path) + 1))

    def text(self, element: Element) -> str:
        """Returns a text that is part of the layout."""
        raw = self.skeleton[element.start + 4 : element.start + element.size - 1].tobytes()
        return raw.decode("utf-8", "backslashreplace")

    def children(self, path: Path) -> list[Element]:
        """Returns the elements of the document or array at this path; none where there is no such path."""
        return self._children.get(path, [])

    def _walk(self, document: bytes, position: int, end: int, parent: Path) -> None:
        children = self._children.setdefault(parent, [])
        while position < end:
            kind = document[position]
            stop = document.index(0, position + 1)
            path = _path(parent, document[position + 1 : stop])
            start = stop + 1
            element = Element(path, kind, start, *extent(document, kind, start))
            if self._names is not None and kind == STRING and self._names.has(path):
                element = element._replace(width=0)
            self.elements.append(element)
            children.append(element)
            if path in self._cells:
                self.repeated.add(path)
            else:
                self._cells[path] = (element,)
            position = start + element.size
            if kind in (DOCUMENT, ARRAY):
                self._walk(document, start + 4, position - 1, path)

    def _vary(self, variants: Variants) -> None:
        """Applies variants: repeated fields are alternatives, and lengths that may differ are holes."""
        whole = Element((), DOCUMENT, 0, self.size, 0, 0)
        self.elements = [
            it._replace(flag=flag, hole=it.start, width=it.width + 4) if varies else it._replace(flag=flag)
            for it, (flag, varies) in zip([whole, *self.elements], variants.marks, strict=True)
        ]
        self.repeated.clear()
        self._cells.clear()
        self._children.clear()
        for it in self.elements[1:]:
            self._cells[it.path] = (*self._cells.get(it.path, ()), it)
            self._children.setdefault(it.path[:-1], []).append(it)


@lru_cache(maxsize=1 << 16)
def _path(parent: Path, name: bytes) -> Path:
    """Returns a path that all layouts share: there may be one a document."""
    return (*parent, name.decode("utf-8", "backslashreplace"))


def positions_in(starts: NDArray[np.integer], widths: NDArray[np.integer]) -> NDArray[np.int64]:
    """Returns every position in these spans."""
    ends = np.cumsum(widths, dtype=np.int64)
    return np.repeat(starts - ends + widths, widths) + np.arange(ends[-1] if len(ends) else 0)


def bits_of(flags: Flags) -> bytes:
    """Returns the flags of n documents, (n, f), flag by flag."""
    return np.packbits(np.ascontiguousarray(flags.T), axis=1).tobytes()


def flags_of(bits: bytes, count: int, documents: int) -> Flags:
    """Returns so many flags of n documents, (n, f): reverses `bits_of`."""
    rows = np.frombuffer(bits, dtype=np.uint8).reshape(count, -1)
    return np.ascontiguousarray(np.unpackbits(rows, axis=1, count=documents).T).view(np.bool_)


class Group(NamedTuple):
    """Documents that share a layout, as a matrix of bytes with a row a document."""

    layout: Layout
    members: NDArray[np.int64]  # n: their indices
    matrix: Bytes2D  # n × layout.size; zeros where something is absent
    present: Flags | None = None  # of a union, n × (its flags and a last one for what is always there)

    def raw(self, row: int, element: Element) -> bytes:
        """Returns the bytes of an element's value in one document."""
        span = slice(element.start, element.start + element.size)
        if self.present is None or self.layout.variants is None:
            return self.matrix[row, span].tobytes()
        present = self.present[row, self.layout.variants.flag[span]]
        return bytes(self.matrix[row, span][present])

    def holds(self, cells: Sequence[Cell]) -> Flags | None:
        """Returns where a cell has a value, (n, cells); None where all have one."""
        if self.present is None or all(element.flag == ALWAYS for cell in cells for element in cell):
            return None if all(cells) else np.tile([bool(cell) for cell in cells], (len(self.members), 1))
        if all(len(cell) == 1 for cell in cells):
            return self.present[:, steps([cell[0].flag for cell in cells])]
        found = np.zeros((len(self.members), len(cells)), dtype=np.bool_)
        for alternative in range(max(map(len, cells), default=0)):
            at = [i for i, cell in enumerate(cells) if len(cell) > alternative]
            found[:, at] |= self.present[:, [cells[i][alternative].flag for i in at]]
        return found

    def where(self, cell: Cell) -> Flags:
        """Returns which documents have a value in the cell, (n,)."""
        found = self.holds([cell])
        return np.ones(len(self.members), dtype=np.bool_) if found is None else found[:, 0]

    def read(self, elements: Sequence[Element], dtype: str) -> NDArray[Any]:
        """Returns the values of elements, (n, k), in a little-endian numpy type."""
        return read_holes(self.matrix, np.array([it.hole for it in elements], dtype=np.int64), dtype)

    def of_one_type(self, cells: Sequence[Cell]) -> tuple[int, list[Element]] | None:
        """Returns the type, and an element for each cell, where every document has one of this type in each;
        else None."""
        types = by_type(cells)
        if self.present is not None or len(types) != 1 or len(types[0][1]) < len(cells):
            return None
        kind, _, elements = types[0]
        return kind, elements

    def put(self, target: NDArray[Any], at: list[int], values: NDArray[Any], elements: list[Element]) -> None:
        """Writes values into columns of (n, k), where the elements are there."""
        columns = steps(at)
        if self.present is None or all(element.flag == ALWAYS for element in elements):
            target[:, columns] = values
        else:
            present = self.present[:, steps([element.flag for element in elements])]
            if isinstance(columns, slice):
                np.copyto(target[:, columns], values, where=present)
            else:
                target[:, columns] = np.where(present, values, target[:, columns])


def steps(numbers: list[int]) -> list[int] | slice:
    """Returns numbers that are equally far apart as a slice, which numpy takes without a copy; others as they
    are."""
    step = numbers[1] - numbers[0] if len(numbers) > 1 else 1
    if step < 1 or numbers[0] < 0 or any(b - a != step for a, b in itertools.pairwise(numbers)):
        return numbers
    return slice(numbers[0], numbers[-1] + 1, step)


#: All that may stand in some cells by its type: type, cells, elements; each cell once in each.
ByType = list[tuple[int, list[int], list[Element]]]


class ReadingCells(list[Cell]):
    """The cells of all readings of a layout, prepared once for reading many batches."""

    @cached_property
    def by_type(self) -> ByType:
        """Returns the cells by their BSON type, computed once."""
        return _by_type(self)


def by_type(cells: Sequence[Cell]) -> ByType:
    """Returns cells by their BSON type, in the form in which columns are read."""
    return cells.by_type if isinstance(cells, ReadingCells) else _by_type(cells)


def _by_type(cells: Sequence[Cell]) -> ByType:
    found: dict[tuple[int, int], tuple[list[int], list[Element]]] = {}
    for i, cell in enumerate(cells):
        for rank, element in enumerate(cell):
            before = sum(other.type == element.type for other in cell[:rank])
            at, elements = found.setdefault((element.type, before), ([], []))
            at.append(i)
            elements.append(element)
    return [(kind, at, elements) for (kind, _), (at, elements) in found.items()]


def by_size(elements: Sequence[Element]) -> dict[int, list[int]]:
    """Returns which of the elements have values of so many bytes."""
    found: dict[int, list[int]] = {}
    for i, element in enumerate(elements):
        found.setdefault(element.size, []).append(i)
    return found


def read_bytes(matrix: Bytes2D, starts: Sequence[int], width: int) -> Bytes2D:
    """Returns so many bytes from each of these offsets on, as n × k × width."""
    read = read_holes(matrix, np.array(starts, dtype=np.int64), f"V{width}")
    return read.view(np.uint8).reshape(len(matrix), len(starts), width)


def row_slices(rows: int, size: int) -> Iterator[slice]:
    """Yields slices of rows that fit into the processor's cache. `size`: bytes of a row."""
    step = max(1, SLAB // max(1, size))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def read_holes(matrix: Bytes2D, holes: NDArray[np.int64], dtype: str) -> NDArray[np.generic]:
    """Returns the holes at these offsets as n × k values of a little-endian numpy type."""
    values = np.empty((len(matrix), len(holes)), dtype)
    for at, view in _views(matrix, holes, values.dtype):
        values[:, at] = view
    return values


def write_holes(matrix: Bytes2D, holes: NDArray[np.int64], values: NDArray[np.generic]) -> None:
    """Writes values, (n, k), already of the holes' type, into the holes at these offsets. Reverses
    `read_holes`."""
    for at, view in _views(matrix, holes, values.dtype):
        view[:] = values[:, at]


def _views(
    matrix: Bytes2D, holes: NDArray[np.int64], dtype: np.dtype[Any]
) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Yields the holes as they lie in the matrix. Those of a bucket mostly lie equally far apart, except
    where a key takes another digit, so that a few strides say where all are."""
    steps = np.diff(holes)
    at = 0
    for end in [*(np.flatnonzero(np.diff(steps)) + 1).tolist(), len(holes) - 1]:
        if at <= end:  # else the view before took it already
            step = int(steps[at]) if end > at else 0
            shape, strides = (len(matrix), end + 1 - at), (matrix.strides[0], step)
            yield slice(at, end + 1), np.ndarray(shape, dtype, matrix, int(holes[at]), strides)
            at = end + 1
