"""Sorts documents into groups that share a layout. Each document is in exactly one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.bson.raw import Docs
from bucketwise.buckets.bson.types import DOCUMENT, elements
from bucketwise.buckets.layouts.layout import Bytes2D, Group, Layout, NamesIn, Path
from bucketwise.buckets.layouts.union import ByteLimitedCache, Containers, Union, is_number, union_of

#: A layout is rare if fewer than one in so many documents share it.
_RARE_LAYOUT = 128
#: Documents with fewer like them are tried as a union.
_MIN_ALIKE = 4
#: So are those of a length that fewer than this share have; and, after so many lone lengths, all.
_RARE_LENGTH, _MAX_FRUITLESS = 1 / 32, 4
#: Reading one document's structure takes as long as decoding so many.
_WALK_COST = 64
#: Fewer documents are read one by one faster than a union is made for them.
_MIN_UNION = 8
#: Fewer documents are not read in another order; and so many tell whether that helps.
_MIN_ORDERED, _SAMPLE = 64, 16
#: If a union takes a smaller share of the documents, it is the last.
_MIN_SHARE = 1 / 32

#: All padded documents together may take so many times their bytes.
_MAX_PADDING = 4
#: Bytes of the layouts, and of the unions, that are cached. Their elements take some sixty times as much.
_LAYOUT_BYTES, _UNION_BYTES = 3 << 18, 1 << 15
#: Bytes of documents whose structure takes long to read.
_LONG = 1 << 15

Members = NDArray[np.int64]


class UnionRules:
    """Where documents of one policy may be irregular, and what a layout must keep to for a union.

    Remembers layouts that many documents shared: what would be made of the next one is the same."""

    def __init__(self, containers: Containers, is_sound: Callable[[Layout], bool]) -> None:
        self.containers = containers
        self.is_sound = is_sound
        self.layouts: ByteLimitedCache[Layout] = ByteLimitedCache(_LAYOUT_BYTES)
        self._lone = 0

    def remember(self, layout: Layout, count: int) -> None:
        """Remembers a layout that so many documents share; of long documents also one that few share, once
        two in succession are as long: a series may have one a day."""
        if count >= _MIN_ALIKE or layout.size == self._lone >= _LONG:
            self.layouts.put(layout)
        self._lone = layout.size


class Unions:
    """Unions that have fitted, to be tried before others are made.

    With these, the groups of some documents depend on what was grouped before. Their columns don't, but what
    is packed does, and has to be the same wherever and whenever it is made: nothing that is packed may come
    of these."""

    def __init__(self) -> None:
        self._by_rules: WeakKeyDictionary[UnionRules, ByteLimitedCache[Union]] = WeakKeyDictionary()

    def of(self, rules: UnionRules) -> ByteLimitedCache[Union]:
        """Returns the cache of the unions that were made under these rules."""
        return self._by_rules.setdefault(rules, ByteLimitedCache(_UNION_BYTES))


def group_by_layout(
    docs: Docs, rules: UnionRules | None = None, unions: Unions | None = None
) -> Iterator[Group]:
    """Yields the documents by their layouts. With `rules`, documents that few others are like are tried
    together as a union; what fits into no union is read one by one."""
    everything = np.arange(len(docs))
    names = rules.containers.names if rules else None
    if rules is None or not rules.containers.paths or len(docs) < _MIN_UNION:
        is_long = rules is not None and docs.size >= _LONG
        yield from _by_length(docs, everything, rules if is_long else None, names=names)
        return
    unmatched: list[Members] = []
    yield from _by_length(docs, everything, rules, unmatched)
    rest = np.sort(np.concatenate(unmatched)) if unmatched else everything[:0]
    known: ByteLimitedCache[Union] = unions.of(rules) if unions else ByteLimitedCache(0)
    rest = yield from _in_unions(docs, rest, rules, known)
    if unions and len(rest) >= _MIN_ORDERED:
        rest = yield from _ordered(docs, rest, rules, unions)
    yield from _by_length(docs, rest)


def _by_length(
    docs: Docs,
    members: Members,
    rules: UnionRules | None = None,
    unmatched: list[Members] | None = None,
    names: NamesIn | None = None,
) -> Iterator[Group]:
    """Yields groups, the most frequent lengths first. Documents that are like no others are left in
    `unmatched`, if it is given."""
    lengths = np.diff(docs.offsets)[members]
    by_length = members[np.argsort(lengths, kind="stable")]
    distinct, counts = np.unique(lengths, return_counts=True)
    starts, fruitless = np.cumsum(counts) - counts, 0
    limit = min(_MAX_FRUITLESS, 1 + len(members) // _WALK_COST)
    for i in np.argsort(-counts, kind="stable").tolist():
        alike = by_length[starts[i] : starts[i] + counts[i]]
        few = len(alike) < max(_MIN_ALIKE, len(members) * _RARE_LENGTH)
        if unmatched is not None and (few or fruitless >= limit):
            unmatched.append(alike)
            continue
        selected = docs if len(alike) == len(docs) else docs.take(alike)
        matrix = np.frombuffer(selected.data, dtype=np.uint8).reshape(len(alike), int(distinct[i]))
        before = len(unmatched or ())
        yield from _of_one_length(alike, matrix, rules, unmatched, names)
        fruitless += len(unmatched or ()) > before


def groups_of_one_length(members: Members, matrix: Bytes2D) -> Iterator[Group]:
    """Yields documents of one length, a row each, by their layouts."""
    yield from _of_one_length(members, matrix, None, None, None)


def _of_one_length(
    members: Members,
    matrix: Bytes2D,
    rules: UnionRules | None,
    unmatched: list[Members] | None,
    names: NamesIn | None,
) -> Iterator[Group]:
    while len(members):
        layout = _layout_of(matrix[0].tobytes(), rules, names)
        alike = layout.alike(matrix)
        count = int(np.count_nonzero(alike))
        if rules is not None:
            rules.remember(layout, count)
        if count == len(members):
            yield Group(layout, members, matrix)
            return
        if unmatched is not None and (count < _MIN_ALIKE or count * _RARE_LAYOUT < len(members)):
            unmatched.append(members)
            return
        yield Group(layout, members[alike], matrix[alike])
        members, matrix = members[~alike], matrix[~alike]
        if unmatched is None and count * _RARE_LAYOUT < len(members):
            break
    # So few are alike that comparing each with all others takes longer than reading each.
    layouts: dict[bytes, tuple[Layout, list[int]]] = {}
    for row, document in enumerate(matrix):
        layout = Layout(document.tobytes(), names=names)
        layouts.setdefault(layout.skeleton.tobytes(), (layout, []))[1].append(row)
    for layout, rows in layouts.values():
        yield Group(layout, members[rows], matrix[rows])


def _layout_of(document: bytes, rules: UnionRules | None, names: NamesIn | None) -> Layout:
    known = (layout for layout in rules.layouts if layout.fits(document)) if rules else iter(())
    return next(known, None) or Layout(document, names=names)


def _in_unions(
    docs: Docs, rest: Members, rules: UnionRules, known: ByteLimitedCache[Union]
) -> Generator[Group, None, Members]:
    """Yields groups of documents that fit into unions: known ones first, then new ones made from some
    of the documents. Returns the others."""
    candidates, budget = iter(known), _MAX_PADDING * docs.size
    used: list[tuple[int, Union]] = []
    while len(rest) >= _MIN_UNION:
        selected = docs if len(rest) == len(docs) else docs.take(rest)
        union = next(candidates, None)
        is_new = union is None
        if union is None:
            union = union_of(selected, rules.containers, rules.is_sound, budget)
        elif union.size * len(rest) > budget:
            continue
        if union is None:
            break
        rows, present, matrix = union.take(selected)
        if len(rows):
            used.append((len(rows), union))
            yield Group(union.layout, rest[rows], matrix, present)
        budget -= matrix.size
        rest = np.delete(rest, rows)
        if is_new and len(rows) < max(1, _MIN_SHARE * len(rest)):
            break
    for _, union in sorted(used, key=lambda it: it[0]):  # that which took most is the first to be tried
        known.put(union)
    return rest


def _ordered(docs: Docs, rest: Members, rules: UnionRules, unions: Unions) -> Generator[Group, None, Members]:
    """Yields groups of documents whose slots were written in any order, as if they had been in that of their
    numbers. Returns the others. The columns are the same; but what is packed has to be as it lies."""
    some, _ = _in_order_of_slots(docs, rest[:_SAMPLE], rules)
    if 2 * sum(1 for _ in group_by_layout(some, rules)) >= len(some):
        return rest
    ordered, rows = _in_order_of_slots(docs, rest, rules)
    for group in group_by_layout(ordered, rules, unions):
        yield group._replace(members=rows[group.members])
    return np.setdiff1d(rest, rows)


def _in_order_of_slots(docs: Docs, rows: Members, rules: UnionRules) -> tuple[Docs, Members]:
    """Returns those of these documents that are in another order then, and which these are."""
    made = [in_order(docs[row], rules.containers.paths) for row in rows.tolist()]
    found = [it for it in made if it is not None]
    return Docs.of(found), rows[[it is not None for it in made]]


def in_order(document: bytes, containers: Collection[Path]) -> bytes | None:
    """Returns a document with the fields in its containers, and in those inside these, in the order of the
    numbers that name them. None where they are, or their order is not clear."""
    found = _in_order(document, (), containers)
    return found if found is not None and found != document and len(found) == len(document) else None


def _in_order(document: bytes, path: Path, containers: Collection[Path]) -> bytes | None:
    names, fields = list[bytes](), list[bytes]()
    for start, value, end in elements(document):
        name, field = document[start + 1 : value - 1], document[start:end]
        if document[start] == DOCUMENT:
            here = (*path, name.decode(errors="replace"))
            if any(_leads_to(here, it) for it in containers):
                inner = _in_order(document[value:end], here, containers)
                if inner is None:
                    return None
                field = document[start:value] + inner
        names.append(name)
        fields.append(field)
    if any(_leads_to(path, it) and len(path) >= len(it) for it in containers):
        numbers = [int(it) for it in names if is_number(it)]
        if numbers:
            found = dict(zip(numbers, fields, strict=False))
            if len(found) < len(fields):
                return None
            fields = [found[it] for it in sorted(found)]
    return document[:4] + b"".join(fields) + b"\0"


def _leads_to(path: Path, container: Path) -> bool:
    """Returns whether a path is on the way to a container, or inside it."""
    return all(a == b for a, b in zip(path, container, strict=False))
