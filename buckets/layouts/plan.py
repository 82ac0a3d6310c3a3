"""The plan of a union: what may stand in each place, as a template with flags and the steps through it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.bson.types import ARRAY, DOCUMENT
from bucketwise.buckets.layouts.layout import ALWAYS, Flags, Path, Variants, row_slices

Places = NDArray[np.int64]

WORD = 8
_LENGTH = np.uint64(0xFFFFFFFF)
#: Bytes in front of a length that are compared, in one word with the length.
_HEADER_SEEN = 4
_SHIFT = np.uint64(8 * _HEADER_SEEN)


class Walk:
    """n documents on their way: where each is, which flags it has, and whether it fits so far."""

    def __init__(self, data: NDArray[np.uint8], starts: Places, stops: Places, flags: int) -> None:
        self.data = data
        self.words = np.ndarray((len(data) - WORD + 1,), "<u8", data, 0, (1,))  # from each byte on
        self.at, self.stops = starts.copy(), stops
        self.fits = np.ones(len(starts), dtype=np.bool_)
        self.flags = np.zeros((flags + 1, len(starts)), dtype=np.bool_)  # a row a flag
        self.flags[ALWAYS] = True
        self.begun: list[Places] = []  # of the documents that are not closed yet
        self.closed: list[tuple[int, Places, Places]] = []  # flag, where each began, where it ended
        self._forward = np.empty_like(self.at)

    def through(self, steps: Sequence[MatchStep]) -> tuple[Flags, Flags]:
        """Returns which documents seem to fit, and the flags of all, a row a flag."""
        for step in steps:
            step.follow(self)
        for flag, start, stop in self.closed:
            length = self.words[start - 4] & _LENGTH
            self.fits &= (length == (stop - start + 4).view(np.uint64)) | ~self.flags[flag]
        return self.fits & (self.at == self.stops), self.flags

    def advance(self, present: Flags, width: int | Places) -> None:
        """Goes on in the documents in which something is there."""
        self.at += np.multiply(present, width, out=self._forward)


class MatchStep(Protocol):
    """One step through the documents of a union."""

    def follow(self, walk: Walk) -> None:
        """Takes the step in all documents at once: sets flags, and moves the positions on."""


class Test(NamedTuple):
    """Tests whether an element comes next, by some bytes of its header. If so, moves behind the element."""

    flag: int
    parent: int
    offset: int
    header: bytes
    width: int

    def follow(self, walk: Walk) -> None:
        """Sets the flag where the bytes match, and moves behind them there."""
        hit = walk.flags[self.flag]
        hit[:] = True if self.parent == ALWAYS else walk.flags[self.parent]
        for offset, wanted in enumerate(self.header, self.offset):
            hit &= walk.data[offset:][walk.at] == wanted
        walk.advance(hit, self.width)


class Skip(NamedTuple):
    """Moves behind bytes that are there if the flag is set."""

    flag: int
    width: int

    def follow(self, walk: Walk) -> None:
        """Moves behind the bytes where the flag is set."""
        if self.flag == ALWAYS:
            walk.at += self.width
        else:
            walk.advance(walk.flags[self.flag], self.width)


class Text(NamedTuple):
    """A text of up to so many bytes, preceded by its length. Each byte has a flag: whether the text is that
    long."""

    flag: int
    first: int  # flag of its first byte
    longest: int

    def follow(self, walk: Walk) -> None:
        """Sets a flag for each byte of the text that is there. A longer text does not fit."""
        present = walk.flags[self.flag]
        size = (walk.words[walk.at] & _LENGTH).astype(np.int64) - 1  # a zero byte ends it
        walk.fits &= ((size >= 0) & (size <= self.longest)) | ~present
        size = np.clip(size, 0, self.longest)
        bytes_of = walk.flags[self.first : self.first + self.longest]
        np.greater(size, np.arange(self.longest)[:, None], out=bytes_of)
        bytes_of &= present
        walk.advance(present, size + 5)


class Open(NamedTuple):
    """Begins a document whose length may differ, with the 4 bytes that tell it."""

    def follow(self, walk: Walk) -> None:
        """Remembers where the document begins."""
        walk.begun.append(walk.at.copy())


class Close(NamedTuple):
    """Ends a document. Whether its length is right is checked last."""

    flag: int

    def follow(self, walk: Walk) -> None:
        """Records where the document began and where it ends."""
        walk.closed.append((self.flag, walk.begun.pop(), walk.at.copy()))


class Choice(NamedTuple):
    """Alternatives, of which no document has two; where `certain`, it has one."""

    parent: int
    flags: list[int]
    certain: bool

    def follow(self, walk: Walk) -> None:
        """Rejects documents that have several of the alternatives, or none where there must be one."""
        held = walk.flags[self.flags].sum(axis=0)
        none_is_right = ~walk.flags[self.parent] if self.certain else True
        walk.fits &= (held == 1) | ((held == 0) & none_is_right)


class Each(NamedTuple):
    """An array of documents that are alike but for their names. Each tells its length, so that their places
    are found first, one after another; then the same steps lead through all of them at once."""

    parent: int
    first: int  # flag of the first: others follow, those inside of each behind its own
    optional: bool  # has each a flag of its own?
    headers: list[bytes]
    steps: list[MatchStep]
    inside: int  # how many flags
    #: By length in bytes: may an element be so long, and its flags: 1 + i × lengths. None where a length
    #: does not tell.
    by_length: Flags | None

    def follow(self, walk: Walk) -> None:
        """Finds the elements of the array in each document, then follows the inner steps through all of
        them."""
        count, own, at = len(self.headers), int(self.optional), walk.at
        held = walk.flags[self.first : self.first + count * (own + self.inside)].reshape(count, -1, len(at))
        places, heads = self._places(walk)
        widths = np.array([len(header) for header in self.headers])[:, None]
        ends = [header[-_HEADER_SEEN:] for header in self.headers]
        wanted, masks = _in_words(ends), _in_words([b"\xff" * len(end) for end in ends])
        number, alive = np.zeros(len(at), dtype=np.int64), walk.flags[self.parent]
        for slab in row_slices(count, WORD * len(at)):
            present = (heads[slab] & masks[slab]) == wanted[slab]
            present[0] &= alive
            np.logical_and.accumulate(present, axis=0, out=present)
            alive, number = present[-1], number + present.sum(axis=0)
            length = (heads[slab][present] >> _SHIFT).view(np.int64)
            fit, inside = self._inside(walk, present, length, places[:-1][slab], widths[slab])
            if not fit.all():
                walk.fits[np.nonzero(present)[1][~fit]] = False
            if own:
                held[slab, 0] = present
            for flag, values in enumerate(inside, own):
                held[slab, flag][present] = values
        if not own:
            walk.fits &= (number == count) | ~walk.flags[self.parent]
        at[:] = places[number, np.arange(len(at))] + _HEADER_SEEN

    def _places(self, walk: Walk) -> tuple[Places, NDArray[np.uint64]]:
        """Returns where each begins if those before are there, and where the last ends, less what is seen of
        a header; and of each the word with what is seen of its header, and its length."""
        places = np.empty((len(self.headers) + 1, len(walk.at)), dtype=np.int64)
        heads = np.empty((len(self.headers), len(walk.at)), dtype=np.uint64)
        np.subtract(walk.at, _HEADER_SEEN, out=places[0])
        for header, place, head, behind in zip(self.headers, places, heads, places[1:], strict=False):
            seen = place + len(header)
            head[:] = walk.words[seen]
            np.add(seen, (head >> _SHIFT).view(np.int64), out=behind)
            np.minimum(behind, walk.stops, out=behind)  # what leads out of its document fits no step to come
        return places, heads

    def _inside(
        self, walk: Walk, present: Flags, length: Places, places: Places, widths: Places
    ) -> tuple[Flags, Sequence[Flags]]:
        """Returns which of those that are there seem to fit, and the flags inside of each."""
        if self.by_length is not None:
            np.minimum(length, self.by_length.shape[1] - 1, out=length)
            fit, *inside = (row.take(length) for row in self.by_length)
        else:
            start = (places + widths)[present] + _HEADER_SEEN
            stop = np.minimum(start + length, walk.stops[np.nonzero(present)[1]])
            fit, (*inside, _) = Walk(walk.data, start, stop, self.inside).through(self.steps)
        return fit, inside


def _in_words(ends: list[bytes]) -> NDArray[np.uint64]:
    joined = b"".join(end.rjust(_HEADER_SEEN, b"\0").ljust(WORD, b"\0") for end in ends)
    return np.frombuffer(joined, "<u8")[:, None]


_DOCUMENTS = (DOCUMENT, ARRAY)
#: With more flags than these, the length of a document does not tell what is in it.
_MAX_FLAGS = 6


class Alternative(NamedTuple):
    """A type of value that an element may have."""

    kind: int
    value: bytes  # zeros in its holes; of a text of any length the longest
    fields: tuple[Field, ...]  # of a document
    is_text: bool = False  # of any length
    alike: bool = False  # are its fields the same but for their names?

    @property
    def varies(self) -> bool:
        """Returns whether documents may differ in which bytes they have here, not only in values."""
        return self.is_text or any(it.is_choice or it.alternatives[0].varies for it in self.fields)

    @property
    def alike_documents(self) -> Iterator[Alternative]:
        """Yields the documents in it whose fields are the same but for their names, itself among them."""
        if self.alike and self.fields:
            yield self
        for alternative in (it for field in self.fields for it in field.alternatives):
            yield from alternative.alike_documents

    @property
    def flags(self) -> int:
        """Returns how many flags its fields take, if no value in them takes any."""
        return sum(len(it.alternatives) for it in self.fields if it.is_choice)

    @property
    def is_each(self) -> bool:
        """Returns whether it is an array of documents of one kind."""
        if self.kind != ARRAY or not self.alike or not self.fields:
            return False
        names = [it.name for it in self.fields]
        kinds = [it.kind for it in self.fields[0].alternatives]
        return kinds in ([DOCUMENT], [ARRAY]) and names == [b"%d" % number for number in range(len(names))]


class Field(NamedTuple):
    """A field of a union: the types of value it may have, and whether it may be absent."""

    name: bytes
    alternatives: tuple[Alternative, ...]
    optional: bool

    @property
    def is_choice(self) -> bool:
        """Returns whether documents may differ in this field's presence or type, so that it takes flags."""
        return self.optional or len(self.alternatives) > 1


def _text_of(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")


class UnionPlan:
    """A union written down: the template, the flags, and the steps through a document."""

    def __init__(self, whole: Alternative) -> None:
        self.template = bytearray()
        self.steps: list[MatchStep] = []
        self._flag: list[int] = []  # of each byte
        self._marks: list[tuple[int, bool]] = [(ALWAYS, whole.varies)]
        self._count = 0
        self._optional: set[Path] = set()
        self._several: set[Path] = set()
        self._document(whole, ALWAYS, ())

    @property
    def variants(self) -> Variants:
        """Returns which flag each byte of the template depends on."""
        return Variants(self._marks, np.array(self._flag, dtype=np.int32), self._count, self._optional)

    def _document(self, alternative: Alternative, flag: int, path: Path) -> None:
        start = len(self.template)
        self._put(bytes(4), flag)
        if alternative.varies:
            self.steps.append(Open())
        if alternative.is_each:
            self._each(alternative.fields, flag, path)
        else:
            digits = max((len(it.name) for it in alternative.fields if alternative.alike), default=0)
            for field in alternative.fields:
                self._field(field, flag, path, digits)
        self._put(b"\0", flag)
        if alternative.varies:
            self.steps.append(Close(flag))
        self.template[start : start + 4] = (len(self.template) - start).to_bytes(4, "little")

    def _field(self, field: Field, parent: int, above: Path, digits: int) -> None:
        """`digits`: of the longest name, if all of them are numbers."""
        path = (*above, _text_of(field.name))
        flags = []
        if field.optional or above in self._several:
            self._optional.add(path)
        if len(field.alternatives) > 1:
            self._several.add(path)
        for alternative in field.alternatives:
            header = bytes([alternative.kind]) + field.name + b"\0"
            flag = parent
            if field.is_choice:
                flag, self._count = self._count, self._count + 1
                flags.append(flag)
                is_number = digits > 0 and len(field.alternatives) == 1
                seen = slice(1, 1 + digits) if is_number else slice(0, None)  # no type is a digit
                self.steps.append(Test(flag, parent, seen.start, header[seen], 0))
            self._marks.append((flag, alternative.varies))
            self._put(header, flag)
            if alternative.kind in _DOCUMENTS:
                self._document(alternative, flag, path)
            elif alternative.is_text:
                self._text(alternative, flag)
            else:
                self._put(alternative.value, flag)
        if len(flags) > 1:
            self.steps.append(Choice(parent, flags, not field.optional))

    def _each(self, fields: tuple[Field, ...], parent: int, above: Path) -> None:
        """Adds an array of documents of one kind: the steps of one are written once, the flags once for
        each."""
        (alternative,), optional = fields[0].alternatives, fields[0].optional
        kind = bytes([alternative.kind])
        inside, headers = UnionPlan(alternative), [kind + field.name + b"\0" for field in fields]
        below = inside.steps, inside._count, inside.by_length()
        self.steps.append(Each(parent, self._count, optional, headers, *below))
        for field, header in zip(fields, headers, strict=True):
            path = (*above, _text_of(field.name))
            if optional or above in self._several:
                self._optional.add(path)
            self._optional.update((*path, *rest) for rest in inside._optional)
            flag = self._count if optional else parent
            self._count += optional
            base = self._count

            def outer_flag(number: int, flag: int = flag, base: int = base) -> int:
                return flag if number == ALWAYS else base + number

            self._marks += [(outer_flag(number), varies) for number, varies in inside._marks]
            self.template += header + inside.template
            self._flag += [flag] * len(header) + [outer_flag(number) for number in inside._flag]
            self._count += inside._count

    def by_length(self) -> Flags | None:
        """Returns the flags of a document by its length, as `Each` uses them. None where two would be as
        long, or where too many might be."""
        parents = {step.flag: step.parent for step in self.steps if isinstance(step, Test)}
        choices = [step for step in self.steps if isinstance(step, Choice)]
        if len(parents) < self._count or self._count > _MAX_FLAGS:
            return None
        widths = np.bincount(np.array(self._flag) - ALWAYS, minlength=self._count + 1)
        table = np.zeros((1 + self._count, len(self.template) + 2), dtype=np.bool_)
        for flags in itertools.product((False, True), repeat=self._count):
            is_set = (*flags, True)  # ALWAYS
            counts = [
                (sum(flags[flag] for flag in it.flags), it.certain and is_set[it.parent]) for it in choices
            ]
            if any(count > 1 or count < certain for count, certain in counts):
                continue
            if all(is_set[parents[flag]] for flag, is_wanted in enumerate(flags) if is_wanted):
                size = int(widths[1:] @ flags + widths[0])
                if table[0, size]:
                    return None
                table[:, size] = (True, *flags)
        return table

    def _text(self, alternative: Alternative, flag: int) -> None:
        longest = len(alternative.value) - 5
        self.steps.append(Text(flag, self._count, longest))
        self.template += alternative.value
        self._flag += [flag] * 4 + list(range(self._count, self._count + longest)) + [flag]
        self._count += longest

    def _put(self, data: bytes, flag: int) -> None:
        self.template += data
        self._flag += [flag] * len(data)
        last = self.steps[-1] if self.steps else None
        if isinstance(last, Test | Skip) and last.flag == flag:
            self.steps[-1] = last._replace(width=last.width + len(data))
        else:
            self.steps.append(Skip(flag, len(data)))
