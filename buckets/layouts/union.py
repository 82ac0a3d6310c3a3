"""The union of the layouts of some documents, how it is followed through others, and which ones are known."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.bson.raw import Docs
from bucketwise.buckets.bson.types import ARRAY, CODE, DOCUMENT, STRING, SYMBOL
from bucketwise.buckets.layouts.layout import Bytes2D, Element, Flags, Layout, NamesIn, Path, row_slices
from bucketwise.buckets.layouts.plan import WORD, Alternative, Field, MatchStep, UnionPlan, Walk

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


#: Documents that are matched at once; of longer ones, as many as take so many bytes. No power of two: flags
#: that lie so far apart would share a line of the cache.
AT_ONCE, _BYTES = 4064, 1 << 23


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
            proven[slab] = self.layout.alike(matrix[slab])
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
            held = np.frombuffer(data, dtype=np.uint8, count=stop - at, offset=at)
            walk = Walk(held, edges[:-1] - edges[0], edges[1:] - edges[0], count)
            fits[slab], flags = walk.through(self.steps)
            present[slab] = flags.T
        return fits, present


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
#: Names of so many digits are of no slot.
_DIGITS = 10
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

    containers: Containers
    whole: Alternative
    union: Union
    #: The one document in which elements may differ, if these are all alike, and it is no array: that would
    #: get spare elements behind the last that there is.
    alike: Alternative | None

    @property
    def size(self) -> int:
        return self.union.size

    def comes_of(self, samples: Docs) -> bool:
        """Returns whether the same union would be made of these documents. Rather than to read them, which
        takes longer, looks at which elements each of them has, and of which types."""
        if self.alike is None:
            return False
        rows, present, _ = self.union.take(samples)
        if len(rows) < len(samples):
            return False
        by_field = present[:, :-1].reshape(len(samples), len(self.alike.fields), -1)
        has = by_field.any(axis=2)
        is_optional = self.alike.fields[0].optional
        return bool(has.any(axis=0).all() and by_field.any(axis=(0, 1)).all() and has.all() != is_optional)


known_merges: ByteLimitedCache[_KnownUnion] = ByteLimitedCache(_CACHE_BYTES)


def union_of(
    docs: Docs, containers: Containers, is_sound: Callable[[Layout], bool], limit: int
) -> Union | None:
    """Returns the union of some of these documents that, outside the containers, differ in their values
    alone. None where there is no sound one of at most `limit` bytes for all together."""
    longest, samples = limit // max(1, len(docs)), _sample(docs)
    known = (it for it in known_merges if it.containers == containers and it.size <= longest)
    if again := next((it for it in known if it.comes_of(samples)), None):
        known_merges.put(again)
    found = again.union if again else _merge(list(_values(samples)), containers, longest)
    if found is None or not is_sound(found.layout):  # mostly it is, and to look at each takes long
        found = _merge([it for it in _values(samples) if is_sound(it.layout)], containers, longest)
    return found if found is not None and is_sound(found.layout) else None


def _values(samples: Docs) -> Iterator[_Value]:
    """Yields documents as values, without those in which a name is repeated."""
    for at in range(len(samples)):
        document = samples[at]
        layout = Layout(document)
        if not layout.repeated:
            yield _Value(document, layout, Element((), DOCUMENT, 0, len(document), 0, 0))


def _merge(values: list[_Value], containers: Containers, longest: int) -> Union | None:
    by_fixed: dict[tuple[tuple[Path, int, int], ...], list[_Value]] = {}
    for value in values:
        by_fixed.setdefault(_fixed_elements(value.layout, containers), []).append(value)
    chosen = max(by_fixed.values(), key=len, default=[])
    for rare in _RARE if chosen else ():
        union = _build(_alternative(chosen, _Inside(containers, rare)), containers, longest)
        if union is not None:
            return union
    return None


def _build(whole: Alternative, containers: Containers, longest: int) -> Union | None:
    """Returns the union; None where nothing may be absent, and where it would be longer."""
    known = (it for it in known_merges if it.whole == whole and it.containers == containers)
    found = next(known, None)
    if found is None:
        plan = UnionPlan(whole)
        flags = plan.variants.flags
        if not flags or len(plan.template) > longest:
            return None
        alike = (it for it in whole.alike_documents if flags == it.flags and not it.is_each)
        union = Union(Layout(bytes(plan.template), plan.variants), plan.steps)
        found = _KnownUnion(containers, whole, union, next(alike, None))
    known_merges.put(found)
    return found.union if found.size <= longest else None


def _sample(docs: Docs) -> Docs:
    """Returns some documents, the shortest and the longest among them."""
    by_length = np.argsort(np.diff(docs.offsets), kind="stable")
    samples = min(max(_SAMPLE_BYTES * len(docs) // max(1, docs.size), _MIN_SAMPLES), _MAX_SAMPLES)
    return docs.take(by_length[np.unique(np.linspace(0, len(docs) - 1, samples).astype(int))])


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
    alike = inside.begun and not is_pair and all(is_number(name) for row in rows for name in row)
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


def is_number(name: bytes) -> bool:
    """Returns whether a name is a number that may be one of a slot or a sample."""
    return name.isdigit() and len(name) < _DIGITS


def _with_spare(fields: list[Field]) -> tuple[Field, ...]:
    """Returns the fields and some more: where arrays are of different lengths, others may be longer."""
    more = range(len(fields), len(fields) + 1 + len(fields) // _SPARE)
    return (*fields, *(fields[0]._replace(name=b"%d" % number) for number in more))


def _alternatives(values: list[_Value], inside: _Inside) -> tuple[Alternative, ...]:
    found: dict[tuple[int, int], list[_Value]] = {}
    for value in values:
        found.setdefault(_kind(value.element), []).append(value)
    return tuple(
        _alternative(found[kind], inside)
        for kind in sorted(found)
        if inside.counts(len(found[kind]), len(values))
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
