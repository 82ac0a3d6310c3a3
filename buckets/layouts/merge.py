"""The union of some documents, and how to follow it through others."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from bucketwise.buckets.bson.raw import Docs
from bucketwise.buckets.bson.types import ARRAY, CODE, DOCUMENT, STRING, SYMBOL
from bucketwise.buckets.layouts.layout import Element, Layout, NamesIn, Path
from bucketwise.buckets.layouts.plan import Alternative, Field, UnionPlan
from bucketwise.buckets.layouts.union import Union


class Sized(Protocol):
    """Anything that knows its size."""

    @property
    def size(self) -> int:
        """Returns the size in bytes."""


T = TypeVar("T", bound=Sized)


class ByteLimitedCache(Generic[T]):
    """The last ones, the latest first, as many as have no more than `limit` bytes together.

    Threads may share it. What is held is never changed but replaced, so that of two that are put at once one
    may be forgotten, and nothing else can happen."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: tuple[T, ...] = ()

    def __iter__(self) -> Iterator[T]:
        return iter(self._kept)

    def put(self, item: T) -> None:
        """Adds an item to the front, or moves it there."""
        kept, room = [], self._limit
        for other in (item, *(other for other in self._kept if other is not item)):
            if other.size <= room:
                kept.append(other)
                room -= other.size
        self._kept = tuple(kept)


#: Documents that a union is made of, spread over all lengths that there are: fewer where they are long.
_MAX_SAMPLES, _MIN_SAMPLES, _SAMPLE_BYTES = 24, 4, 1 << 14
#: Bytes of the unions that are cached.
_CACHE_BYTES = 1 << 15
#: Elements that fewer than this share hold are left out of a union that would be too long with them.
_RARE = (0.0, 1 / 32)

#: An array may be longer than the longest that a union is made of: by one in so many elements.
_SPARE = 32


_DOCUMENTS = (DOCUMENT, ARRAY)
#: Texts of up to so many bytes may differ in length.
_SHORT_TEXT = 64


class Containers(NamedTuple):
    """Where documents may be irregular: inside these, elements may be absent or of several types."""

    paths: frozenset[Path] = frozenset()
    pairs: bool = False  # do they hold arrays in which places have a meaning, as names have it?
    names: NamesIn | None = None  # texts that name what is beside them: such documents are in no union


class _Inside(NamedTuple):
    """Where elements may differ, and how many have to hold one for it to count."""

    containers: Containers
    rare: float
    begun: bool = False

    def counts(self, holders: int, total: int) -> bool:
        return not self.begun or holders >= self.rare * total


class _Value(NamedTuple):
    """A value in one of the documents."""

    document: bytes
    layout: Layout
    element: Element

    @property
    def form(self) -> bytes:
        """Returns all but the values in it."""
        return self.layout.skeleton[self.element.start : self.element.start + self.element.size].tobytes()


class _KnownUnion(NamedTuple):
    """A union, and all that it was made from: of the same, the same would be made again."""

    whole: Alternative
    union: Union

    @property
    def size(self) -> int:
        return self.union.size


known_merges: ByteLimitedCache[_KnownUnion] = ByteLimitedCache(_CACHE_BYTES)


def union_of(
    docs: Docs, containers: Containers, is_sound: Callable[[Layout], bool], limit: int
) -> Union | None:
    """Returns the union of some of these documents that, outside the containers, differ in their values
    alone. None where there is no sound one of at most `limit` bytes for all together."""
    values = []
    for document in _sample(docs):
        layout = Layout(document)
        if not layout.repeated:
            whole = Element((), DOCUMENT, 0, len(document), 0, 0)
            values.append(_Value(document, layout, whole))
    longest = limit // max(1, len(docs))
    found = _merge(values, containers, longest)
    if found is None or not is_sound(found.layout):  # mostly it is, and to look at each takes long
        found = _merge([it for it in values if is_sound(it.layout)], containers, longest)
    return found if found is not None and is_sound(found.layout) else None


def _merge(values: list[_Value], containers: Containers, longest: int) -> Union | None:
    by_fixed: dict[tuple[tuple[Path, int, int], ...], list[_Value]] = {}
    for value in values:
        by_fixed.setdefault(_fixed_elements(value.layout, containers), []).append(value)
    chosen = max(by_fixed.values(), key=len, default=[])
    for rare in _RARE if chosen else ():
        union = _build(_alternative(chosen, _Inside(containers, rare)), longest)
        if union is not None:
            return union
    return None


def _build(whole: Alternative, longest: int) -> Union | None:
    """Returns the union; None where nothing may be absent, and where it would be longer."""
    found = next((known for known in known_merges if known.whole == whole), None)
    if found is None:
        plan = UnionPlan(whole)
        if not plan.variants.flags or len(plan.template) > longest:
            return None
        found = _KnownUnion(whole, Union(Layout(bytes(plan.template), plan.variants), plan.steps))
    known_merges.put(found)
    return found.union if found.size <= longest else None


def _sample(docs: Docs) -> Iterator[bytes]:
    """Yields some documents, the shortest and the longest among them."""
    by_length = np.argsort(np.diff(docs.offsets), kind="stable")
    samples = min(max(_SAMPLE_BYTES * len(docs) // max(1, docs.size), _MIN_SAMPLES), _MAX_SAMPLES)
    for at in np.unique(np.linspace(0, len(docs) - 1, samples).astype(int)).tolist():
        yield docs[int(by_length[at])]


def _fixed_elements(layout: Layout, containers: Containers) -> tuple[tuple[Path, int, int], ...]:
    """Returns the elements outside the containers: paths, types and lengths."""
    found: list[tuple[Path, int, int]] = []
    inner: list[Path] = [()]
    while inner:
        for element in layout.children(inner.pop()):
            found.append((element.path, *_kind(element)))
            if element.type in _DOCUMENTS and element.path not in containers.paths:
                inner.append(element.path)
    return tuple(found)


def _kind(element: Element) -> tuple[int, int]:
    """Returns type and length; 0 where that may differ."""
    is_text = element.type in (STRING, SYMBOL, CODE) and element.width <= _SHORT_TEXT
    return element.type, 0 if is_text or element.type in _DOCUMENTS else element.size


def _alternative(values: list[_Value], inside: _Inside) -> Alternative:
    """Returns the alternative of values of one type. Inside a container, elements may differ if their name is
    a number: siblings with such names are slots or samples, and what one has another may have."""
    element = values[0].element
    if element.type not in _DOCUMENTS:
        longest = max(values, key=lambda it: it.element.size)  # the first, but of texts of any length
        size = longest.element.size
        return Alternative(element.type, longest.form, (), any(it.element.size < size for it in values))
    if element.path in inside.containers.paths:
        inside = inside._replace(begun=True)
    if inside.begun and not inside.rare:  # one of each form is enough
        values = list({it.form: it for it in values}.values())
    rows = [dict(_children(it)) for it in values]
    is_pair = inside.containers.pairs and element.path[:-1] in inside.containers.paths
    alike = inside.begun and not is_pair and all(name.isdigit() for row in rows for name in row)
    names = list(set().union(*rows)) if alike else _in_order(rows)
    shared: tuple[Alternative, ...] = ()
    if alike:
        names.sort(key=lambda name: (int(name), name))
        shared = _alternatives([child for row in rows for child in row.values()], inside)
    fields = []
    for name in names:
        holders = [row[name] for row in rows if name in row]
        alternatives = shared if alike else _alternatives(holders, inside)
        lacking = any(len(row) < len(names) for row in rows) if alike else len(holders) < len(rows)
        if alternatives and (alike or inside.counts(len(holders), len(rows))):
            fields.append(Field(name, alternatives, lacking))
    found = Alternative(element.type, b"", tuple(fields), alike=alike)
    return found._replace(fields=_with_spare(fields)) if found.is_each and fields[0].optional else found


def _with_spare(fields: list[Field]) -> tuple[Field, ...]:
    """Returns the fields and some more: where arrays are of different lengths, others may be longer."""
    more = range(len(fields), len(fields) + 1 + len(fields) // _SPARE)
    return (*fields, *(fields[0]._replace(name=b"%d" % number) for number in more))


def _alternatives(values: list[_Value], inside: _Inside) -> tuple[Alternative, ...]:
    found: dict[tuple[int, int], list[_Value]] = {}
    for value in values:
        found.setdefault(_kind(value.element), []).append(value)
    return tuple(
        _alternative(alike, inside) for alike in found.values() if inside.counts(len(alike), len(values))
    )


def _children(value: _Value) -> Iterator[tuple[bytes, _Value]]:
    """Yields the elements of a document by their names."""
    at = value.element.start + 4
    for child in value.layout.children(value.element.path):
        yield value.document[at + 1 : child.start - 1], _Value(value.document, value.layout, child)
        at = child.start + child.size


def _in_order(rows: list[dict[bytes, _Value]]) -> list[bytes]:
    """Returns all names, each behind those that it follows anywhere. Where documents disagree, only those fit
    that have the order found."""
    before: dict[bytes, set[bytes]] = {}
    for names in dict.fromkeys(map(tuple, rows)):
        for name in names:
            before.setdefault(name, set())
        for first, second in itertools.pairwise(names):
            before[second].add(first)
    order: list[bytes] = []
    while before:
        order.append(min(before, key=lambda name: len(before[name])))
        del before[order[-1]]
        for names_before in before.values():
            names_before.discard(order[-1])
    return order
