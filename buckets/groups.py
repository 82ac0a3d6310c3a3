"""Documents sorted into groups that share a layout; each is in just one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from buckets.layout import Bytes2D, Group, Layout, Path, slabs
from buckets.merge import union_of
from buckets.raw import Docs

#: A layout that fewer than one in so many documents share.
_FEW = 128
#: Documents that fewer are like look for a union.
_COMPANY = 4
#: After so many lengths without company, the rest look for a union first.
_FRUITLESS = 8
#: So few documents are walked one by one sooner than a union is made for them.
_LEAST = 8
#: A union that takes a smaller share of the documents is the last.
_SHARE = 1 / 32

#: All padded documents together take at most so many times their bytes.
_MOST = 4

Members = NDArray[np.int64]


class Loose(NamedTuple):
    """Where documents of one policy may be irregular, and what a layout must keep to for a union."""

    containers: frozenset[Path]  # inside these, elements may be absent or of several types
    is_sound: Callable[[Layout], bool]


def group(docs: Docs, loose: Loose | None = None) -> Iterator[Group]:
    """The documents by their layouts. Where they are `loose`, those that are like few others are tried
    together; what fits into no union is walked one by one."""
    everything = np.arange(len(docs))
    if loose is None or len(docs) < _LEAST:
        yield from _by_length(docs, everything)
        return
    lonely: list[Members] = []
    yield from _by_length(docs, everything, lonely)
    rest = np.sort(np.concatenate(lonely)) if lonely else everything[:0]
    most = _MOST * len(docs.data)
    while len(rest) >= _LEAST:
        found = _united(docs, rest, loose, most)
        if found is None:
            break
        yield found
        most -= found.matrix.size
        rest = np.setdiff1d(rest, found.members, assume_unique=True)
        if len(found.members) < _SHARE * len(rest):
            break
    yield from _by_length(docs, rest)


def _by_length(docs: Docs, members: Members, lonely: list[Members] | None = None) -> Iterator[Group]:
    """The most frequent lengths first. What finds no company is left in `lonely`, where that is given."""
    lengths = np.diff(docs.offsets)[members]
    by_length = members[np.argsort(lengths, kind="stable")]
    found, counts = np.unique(lengths, return_counts=True)
    starts, fruitless = np.cumsum(counts) - counts, 0
    for i in np.argsort(-counts, kind="stable").tolist():
        alike = by_length[starts[i] : starts[i] + counts[i]]
        if lonely is not None and (len(alike) < _COMPANY or fruitless >= _FRUITLESS):
            lonely.append(alike)
            continue
        chosen = docs if len(alike) == len(docs) else docs.take(alike.tolist())
        matrix = np.frombuffer(chosen.data, dtype=np.uint8).reshape(len(alike), int(found[i]))
        before = len(lonely or ())
        yield from _of_one_length(alike, matrix, lonely)
        fruitless += len(lonely or ()) > before


def _of_one_length(members: Members, matrix: Bytes2D, lonely: list[Members] | None) -> Iterator[Group]:
    while len(members):
        layout = Layout(matrix[0].tobytes())
        alike = _alike(matrix, layout)
        if alike.all():
            yield Group(layout, members, matrix)
            return
        count = np.count_nonzero(alike)
        if lonely is not None and (count < _COMPANY or count * _FEW < len(members)):
            lonely.append(members)
            return
        yield Group(layout, members[alike], matrix[alike])
        members, matrix = members[~alike], matrix[~alike]
        if lonely is None and count * _FEW < len(members):
            break
    # So few are alike that to compare each with all others takes longer than to walk each.
    layouts: dict[bytes, tuple[Layout, list[int]]] = {}
    for row, document in enumerate(matrix):
        layout = Layout(document.tobytes())
        layouts.setdefault(layout.skeleton.tobytes(), (layout, []))[1].append(row)
    for layout, rows in layouts.values():
        yield Group(layout, members[rows], matrix[rows])


def _alike(matrix: Bytes2D, layout: Layout) -> NDArray[np.bool_]:
    """Which rows equal the layout in every byte outside its holes."""
    return np.concatenate(
        [
            ((matrix[slab] ^ layout.skeleton) & layout.mask).max(axis=1) == 0
            for slab in slabs(len(matrix), layout.size)
        ]
    )


def _united(docs: Docs, members: Members, loose: Loose, most: int) -> Group | None:
    """Those that fit into one union, made by some of them; None where none does."""
    chosen = docs if len(members) == len(docs) else docs.take(members.tolist())
    union = union_of(chosen, loose.containers, loose.is_sound, most)
    if union is None:
        return None
    rows, present, matrix = union.take(chosen)
    return Group(union.layout, members[rows], matrix, present) if len(rows) else None
