"""The union of some documents, and how to follow it through others."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from buckets.bson.raw import Docs
from buckets.bson.types import ARRAY, CODE, DOCUMENT, STRING, SYMBOL
from buckets.layouts.cache import Recent
from buckets.layouts.layout import ALWAYS, Element, Flags, Layout, NamesIn, Path, Variants
from buckets.layouts.steps import Choice, Close, Each, Open, Skip, Step, Test, Text, words_of
from buckets.layouts.union import Union

#: A union is made of so many documents, spread over all lengths that there are: of fewer where they are long.
_SAMPLES, _LEAST, _BYTES = 24, 4, 1 << 14
#: Bytes of the unions that are remembered.
_REMEMBERED = 1 << 15
#: What fewer than this share hold has no place in a union that would be too long with it.
_RARE = (0.0, 1 / 32)

#: An array may be longer by one in so many than the longest that a union is made of.
_MORE = 32

#: With more flags than these, what is in a document is not told by its length.
_TELLING = 6

_DOCUMENTS = (DOCUMENT, ARRAY)
#: Texts of up to so many bytes may be of any length.
_SHORT = 64


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

    def counts(self, some: int, total: int) -> bool:
        return not self.begun or some >= self.rare * total


class _Held(NamedTuple):
    """A value in one of the documents."""

    document: bytes
    layout: Layout
    element: Element

    @property
    def form(self) -> bytes:
        """All but the values in it."""
        return self.layout.skeleton[self.element.start : self.element.start + self.element.size].tobytes()


class _Alternative(NamedTuple):
    """What may stand in a place: a value of this type."""

    kind: int
    value: bytes  # zeros in its holes; of a text of any length the longest
    fields: tuple[_Field, ...]  # of a document
    is_text: bool = False  # of any length
    alike: bool = False  # are its fields the same but for their names?

    @property
    def varies(self) -> bool:
        return self.is_text or any(it.is_choice or it.alternatives[0].varies for it in self.fields)

    @property
    def is_each(self) -> bool:
        """Whether it is an array of documents of one kind."""
        if self.kind != ARRAY or not self.alike or not self.fields:
            return False
        names = [it.name for it in self.fields]
        kinds = [it.kind for it in self.fields[0].alternatives]
        return kinds in ([DOCUMENT], [ARRAY]) and names == [b"%d" % number for number in range(len(names))]


class _Field(NamedTuple):
    name: bytes
    alternatives: tuple[_Alternative, ...]
    optional: bool

    @property
    def is_choice(self) -> bool:
        return self.optional or len(self.alternatives) > 1


class _Made(NamedTuple):
    """A union, and all that it was made from: of the same, the same would be made again."""

    whole: _Alternative
    union: Union

    @property
    def size(self) -> int:
        return self.union.size


_made: Recent[_Made] = Recent(_REMEMBERED)


def union_of(
    docs: Docs, containers: Containers, is_sound: Callable[[Layout], bool], most: int
) -> Union | None:
    """The union of some of these documents that are equal outside the containers, but for their values.
    None where there is none that is sound, and under which all take at most so many bytes."""
    held = []
    for document in _spread(docs):
        layout = Layout(document)
        if not layout.repeated:
            whole = Element((), DOCUMENT, 0, len(document), 0, 0)
            held.append(_Held(document, layout, whole))
    longest = most // max(1, len(docs))
    found = _merged(held, containers, longest)
    if found is None or not is_sound(found.layout):  # mostly it is, and to look at each takes long
        found = _merged([it for it in held if is_sound(it.layout)], containers, longest)
    return found if found is not None and is_sound(found.layout) else None


def _merged(held: list[_Held], containers: Containers, longest: int) -> Union | None:
    by_outside: dict[tuple[tuple[Path, int, int], ...], list[_Held]] = {}
    for it in held:
        by_outside.setdefault(_outside(it.layout, containers), []).append(it)
    chosen = max(by_outside.values(), key=len, default=[])
    for rare in _RARE if chosen else ():
        union = _written(_alternative(chosen, _Inside(containers, rare)), longest)
        if union is not None:
            return union
    return None


def _written(whole: _Alternative, longest: int) -> Union | None:
    """None where nothing may be absent, and where it would be longer."""
    found = next((made for made in _made if made.whole == whole), None)
    if found is None:
        plan = _Plan(whole)
        if not plan.variants.flags or len(plan.template) > longest:
            return None
        found = _Made(whole, Union(Layout(bytes(plan.template), plan.variants), plan.steps))
    _made.put(found)
    return found.union if found.size <= longest else None


def _spread(docs: Docs) -> Iterator[bytes]:
    """Some documents, the shortest and the longest among them."""
    by_length = np.argsort(np.diff(docs.offsets), kind="stable")
    samples = min(max(_BYTES * len(docs) // max(1, docs.size), _LEAST), _SAMPLES)
    for at in np.unique(np.linspace(0, len(docs) - 1, samples).astype(int)).tolist():
        yield docs[int(by_length[at])]


def _outside(layout: Layout, containers: Containers) -> tuple[tuple[Path, int, int], ...]:
    """The elements outside the containers: paths, types and lengths."""
    found: list[tuple[Path, int, int]] = []
    inner: list[Path] = [()]
    while inner:
        for it in layout.children(inner.pop()):
            found.append((it.path, *_kind(it)))
            if it.type in _DOCUMENTS and it.path not in containers.paths:
                inner.append(it.path)
    return tuple(found)


def _kind(element: Element) -> tuple[int, int]:
    """Type and length; 0 where that may differ."""
    is_text = element.type in (STRING, SYMBOL, CODE) and element.width <= _SHORT
    return element.type, 0 if is_text or element.type in _DOCUMENTS else element.size


def _alternative(held: list[_Held], inside: _Inside) -> _Alternative:
    """Of values of one type. What is inside a container may differ, whatever its name is where that is a
    number: siblings with such names are slots or samples, and what one has another may have."""
    element = held[0].element
    if element.type not in _DOCUMENTS:
        longest = max(held, key=lambda it: it.element.size)  # the first, but of texts of any length
        size = longest.element.size
        return _Alternative(element.type, longest.form, (), any(it.element.size < size for it in held))
    if element.path in inside.containers.paths:
        inside = inside._replace(begun=True)
    if inside.begun and not inside.rare:  # one of each form is enough
        held = list({it.form: it for it in held}.values())
    rows = [dict(_children(it)) for it in held]
    is_pair = inside.containers.pairs and element.path[:-1] in inside.containers.paths
    alike = inside.begun and not is_pair and all(name.isdigit() for row in rows for name in row)
    names = list(set().union(*rows)) if alike else _in_order(rows)
    shared: tuple[_Alternative, ...] = ()
    if alike:
        names.sort(key=lambda name: (int(name), name))
        shared = _alternatives([child for row in rows for child in row.values()], inside)
    fields = []
    for name in names:
        there = [row[name] for row in rows if name in row]
        alternatives = shared if alike else _alternatives(there, inside)
        lacking = any(len(row) < len(names) for row in rows) if alike else len(there) < len(rows)
        if alternatives and (alike or inside.counts(len(there), len(rows))):
            fields.append(_Field(name, alternatives, lacking))
    found = _Alternative(element.type, b"", tuple(fields), alike=alike)
    return found._replace(fields=_and_more(fields)) if found.is_each and fields[0].optional else found


def _and_more(fields: list[_Field]) -> tuple[_Field, ...]:
    """Where arrays are of different lengths, others than these may be longer."""
    more = range(len(fields), len(fields) + 1 + len(fields) // _MORE)
    return (*fields, *(fields[0]._replace(name=b"%d" % number) for number in more))


def _alternatives(held: list[_Held], inside: _Inside) -> tuple[_Alternative, ...]:
    found: dict[tuple[int, int], list[_Held]] = {}
    for it in held:
        found.setdefault(_kind(it.element), []).append(it)
    return tuple(_alternative(some, inside) for some in found.values() if inside.counts(len(some), len(held)))


def _children(held: _Held) -> Iterator[tuple[bytes, _Held]]:
    """The elements of a document by their names."""
    at = held.element.start + 4
    for child in held.layout.children(held.element.path):
        yield held.document[at + 1 : child.start - 1], _Held(held.document, held.layout, child)
        at = child.start + child.size


def _in_order(rows: list[dict[bytes, _Held]]) -> list[bytes]:
    """All names, each behind those that it follows anywhere. Where documents disagree, those fit that have
    the order which is found."""
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


def _text_of(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")


class _Plan:
    """A union written down: the template, the flags, and the steps through a document."""

    def __init__(self, whole: _Alternative) -> None:
        self.template = bytearray()
        self.steps: list[Step] = []
        self._flag: list[int] = []  # of each byte
        self._marks: list[tuple[int, bool]] = [(ALWAYS, whole.varies)]
        self._count = 0
        self._doubtful: set[Path] = set()
        self._several: set[Path] = set()
        self._document(whole, ALWAYS, ())

    @property
    def variants(self) -> Variants:
        return Variants(self._marks, np.array(self._flag, dtype=np.int32), self._count, self._doubtful)

    def _document(self, it: _Alternative, flag: int, path: Path) -> None:
        start = len(self.template)
        self._put(bytes(4), flag)
        if it.varies:
            self.steps.append(Open())
        if it.is_each:
            self._each(it.fields, flag, path)
        else:
            for field in it.fields:
                self._field(field, flag, path)
        self._put(b"\0", flag)
        if it.varies:
            self.steps.append(Close(flag))
        self.template[start : start + 4] = (len(self.template) - start).to_bytes(4, "little")

    def _field(self, field: _Field, parent: int, above: Path) -> None:
        path = (*above, _text_of(field.name))
        flags = []
        if field.optional or above in self._several:
            self._doubtful.add(path)
        if len(field.alternatives) > 1:
            self._several.add(path)
        for it in field.alternatives:
            header = bytes([it.kind]) + field.name + b"\0"
            flag = parent
            if field.is_choice:
                flag, self._count = self._count, self._count + 1
                flags.append(flag)
                self.steps.append(Test(flag, parent, words_of(header), 0))
            self._marks.append((flag, it.varies))
            self._put(header, flag)
            if it.kind in _DOCUMENTS:
                self._document(it, flag, path)
            elif it.is_text:
                self._text(it, flag)
            else:
                self._put(it.value, flag)
        if len(flags) > 1:
            self.steps.append(Choice(parent, flags, not field.optional))

    def _each(self, fields: tuple[_Field, ...], parent: int, above: Path) -> None:
        """Documents of one kind side by side: what one is like is written down once, and once for each."""
        (alternative,), optional = fields[0].alternatives, fields[0].optional
        kind = bytes([alternative.kind])
        inside, headers = _Plan(alternative), [kind + field.name + b"\0" for field in fields]
        below = inside.steps, inside._count, inside.by_length()
        self.steps.append(Each(parent, self._count, optional, headers, *below))
        for field, header in zip(fields, headers, strict=True):
            path = (*above, _text_of(field.name))
            if optional or above in self._several:
                self._doubtful.add(path)
            self._doubtful.update((*path, *rest) for rest in inside._doubtful)
            flag = self._count if optional else parent
            self._count += optional
            base = self._count

            def here(number: int, flag: int = flag, base: int = base) -> int:
                return flag if number == ALWAYS else base + number

            self._marks += [(here(number), varies) for number, varies in inside._marks]
            self.template += header + inside.template
            self._flag += [flag] * len(header) + [here(number) for number in inside._flag]
            self._count += inside._count

    def by_length(self) -> Flags | None:
        """What a document holds, by its length: as `Each` has it. None where two would be as long, or where
        there are too many that might be."""
        parents = {step.flag: step.parent for step in self.steps if isinstance(step, Test)}
        choices = [step for step in self.steps if isinstance(step, Choice)]
        if len(parents) < self._count or self._count > _TELLING:
            return None
        widths = np.bincount(np.array(self._flag) - ALWAYS, minlength=self._count + 1)
        table = np.zeros((1 + self._count, len(self.template) + 2), dtype=np.bool_)
        for flags in itertools.product((False, True), repeat=self._count):
            there = (*flags, True)  # ALWAYS
            held = [
                (sum(flags[flag] for flag in it.flags), it.certain and there[it.parent]) for it in choices
            ]
            if any(count > 1 or count < certain for count, certain in held):
                continue
            if all(there[parents[flag]] for flag, is_there in enumerate(flags) if is_there):
                size = int(widths[1:] @ flags + widths[0])
                if table[0, size]:
                    return None
                table[:, size] = (True, *flags)
        return table

    def _text(self, it: _Alternative, flag: int) -> None:
        most = len(it.value) - 5
        self.steps.append(Text(flag, self._count, most))
        self.template += it.value
        self._flag += [flag] * 4 + list(range(self._count, self._count + most)) + [flag]
        self._count += most

    def _put(self, data: bytes, flag: int) -> None:
        self.template += data
        self._flag += [flag] * len(data)
        last = self.steps[-1] if self.steps else None
        if isinstance(last, Test | Skip) and last.flag == flag:
            self.steps[-1] = last._replace(width=last.width + len(data))
        else:
            self.steps.append(Skip(flag, len(data)))
