"""Unions: one layout for documents of which each lacks something else.

Where slots are missing here and there, or ints stand among doubles, nearly every document has a layout of
its own. A union has room for all that any of them holds: each element that may be absent, and each type
that it may have, at its own place. A document is *padded* to the union: its bytes in their places, zeros
where something is absent. Then a matrix with holes at fixed offsets holds all of them, as with documents
that are alike, and flags say what is there.

Which flags a document has is a guess, made by comparing names and types step by step in all documents
at once. The proof comes after: every byte that is there, outside the holes, equals the union's. Lengths of
sub-documents are holes, since they differ, and each is compared with what lies there. What does not fit to
the last byte is not taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from buckets.bson.raw import Docs
from buckets.layouts.layout import ALWAYS, Bytes2D, Flags, Layout, slabs
from buckets.layouts.stretches import pad

#: Bytes in 8 at a time: offset, mask, and what has to be there.
Words = tuple[tuple[int, int, int], ...]


class Test(NamedTuple):
    """Does this name with this type come next? If so, go on behind the element's bytes."""

    flag: int
    parent: int
    words: Words
    width: int


class Skip(NamedTuple):
    """Go on behind bytes that are there if the flag is set."""

    flag: int
    width: int


class Text(NamedTuple):
    """A text of up to so many bytes, which it says in front. Each byte has a flag: is the text as long?"""

    flag: int
    first: int  # flag of its first byte
    most: int


class Open(NamedTuple):
    """A document whose length may differ has begun with the 4 bytes that say it."""


class Close(NamedTuple):
    """It ends: is it as long as it says?"""

    flag: int


class Choice(NamedTuple):
    """Of these no document has two; where `certain`, it has one."""

    parent: int
    flags: list[int]
    certain: bool


class Each(NamedTuple):
    """An array of documents, alike but for their names. Each says how long it is, so that where they lie is
    found first, one after another; then the same steps lead through all of them at once."""

    parent: int
    first: int  # flag of the first: others follow, those inside of each behind its own
    optional: bool  # has each a flag of its own?
    headers: list[bytes]
    steps: list[Step]
    inside: int  # how many flags
    #: May there be one of this length (bytes), and the flags inside of it: 1 + i × lengths. None where a
    #: length does not tell.
    by_length: Flags | None


Step = Test | Skip | Text | Open | Close | Choice | Each

_WORD = 8


def words_of(header: bytes) -> Words:
    """A header as numbers of 8 bytes, the last with the mask of what belongs to it."""
    return tuple(
        (at, (1 << 8 * len(part)) - 1, int.from_bytes(part, "little"))
        for at in range(0, len(header), _WORD)
        for part in [header[at : at + _WORD]]
    )


class Union(NamedTuple):
    layout: Layout
    steps: Sequence[Step]

    @property
    def size(self) -> int:
        return self.layout.size

    def take(self, docs: Docs) -> tuple[NDArray[np.int64], Flags, Bytes2D]:
        """The rows of the documents that fit, the flags of each, and each padded."""
        variants, size = self.layout.variants, self.layout.size
        assert variants is not None
        fits, present = self._guess(docs)
        rows = np.flatnonzero(fits)
        chosen, present = (docs, present) if fits.all() else (docs.take(rows), present[rows])
        data = np.frombuffer(chosen.data, dtype=np.uint8)
        matrix = np.empty((len(rows), size), dtype=np.uint8)
        proven = np.zeros(len(rows), dtype=np.bool_)
        empty = matrix[:0]
        for slab in slabs(len(rows), size):
            edges = chosen.offsets[slab.start : slab.stop + 1]
            if not len(empty):  # in the first, which is the largest
                empty = np.tile(self.layout.skeleton, (len(edges) - 1, 1))
            held = data[edges[0] : edges[-1]]
            matrix[slab] = pad(held, present[slab], variants.flag, empty[: len(edges) - 1])
            wrong = (matrix[slab] ^ self.layout.skeleton) & self.layout.mask
            proven[slab] = wrong.max(axis=1) == 0
        if proven.all():
            return rows, present, matrix
        return rows[proven], present[proven], matrix[proven]

    def _guess(self, docs: Docs) -> tuple[Flags, Flags]:
        """Which documents seem to fit, and the flags of all."""
        count = self.layout.variants.flags if self.layout.variants else 0
        present = np.empty((len(docs), count + 1), dtype=np.bool_)
        fits = np.empty(len(docs), dtype=np.bool_)
        beyond = bytes(self.layout.size + _WORD)  # no guess reads so far beyond a document's end
        step = min(max(1, _BYTES // self.size), _AT_ONCE)
        for start in range(0, len(docs), step):
            some, edges = slice(start, start + step), docs.offsets[start : start + step + 1]
            data, at, stop = docs.data, int(edges[0]), int(edges[-1]) + len(beyond)
            if stop > len(data):  # there is no more behind: in a copy there is
                data, at, stop = data[at:] + beyond, 0, stop - at
            words = np.ndarray((stop - at - _WORD + 1,), "<u8", data, at, (1,))
            fits[some], flags = _follow(self.steps, words, edges[:-1] - edges[0], edges[1:] - edges[0], count)
            present[some] = flags.T
        return fits, present


#: So many documents are followed at once: of longer ones, such as take so many bytes.
_AT_ONCE, _BYTES = 4096, 1 << 23
_LENGTH = np.uint64(0xFFFFFFFF)

Places = NDArray[np.int64]


def _follow(
    steps: Sequence[Step], words: NDArray[np.uint64], starts: Places, stops: Places, count: int
) -> tuple[Flags, Flags]:
    """Step by step through all documents at once: which seem to fit, and the flags of all, a row a flag."""
    at, fits = starts.copy(), np.ones(len(starts), dtype=np.bool_)
    flags = np.zeros((count + 1, len(at)), dtype=np.bool_)
    flags[ALWAYS] = True
    forward = np.empty_like(at)
    begun: list[Places] = []
    spans: list[tuple[int, Places, Places]] = []
    for step in steps:
        if isinstance(step, Test):
            hit = flags[step.flag]
            for number, (offset, mask, wanted) in enumerate(step.words):
                found = words[at + offset if offset else at]
                found &= np.uint64(mask)
                if number:
                    hit &= found == np.uint64(wanted)
                else:
                    np.equal(found, np.uint64(wanted), out=hit)
            if step.parent != ALWAYS:
                hit &= flags[step.parent]
            at += np.multiply(hit, step.width, out=forward)
        elif isinstance(step, Skip):
            at += (
                step.width if step.flag == ALWAYS else np.multiply(flags[step.flag], step.width, out=forward)
            )
        elif isinstance(step, Text):
            there = flags[step.flag]
            size = (words[at] & _LENGTH).astype(np.int64) - 1  # a zero byte ends it
            fits &= ((size >= 0) & (size <= step.most)) | ~there
            size = np.clip(size, 0, step.most)
            bytes_of = flags[step.first : step.first + step.most]
            np.greater(size, np.arange(step.most)[:, None], out=bytes_of)
            bytes_of &= there
            at += np.multiply(there, size + 5, out=forward)
        elif isinstance(step, Each):
            _follow_each(step, words, at, stops, flags, fits)
        elif isinstance(step, Open):
            begun.append(at.copy())
        elif isinstance(step, Close):
            spans.append((step.flag, begun.pop(), at.copy()))
        else:
            held = flags[step.flags].sum(axis=0)
            fits &= (held == 1) | ((held == 0) & (~flags[step.parent] if step.certain else True))
    for flag, start, stop in spans:
        told = words[start - 4] & _LENGTH
        fits &= (told == (stop - start + 4).view(np.uint64)) | ~flags[flag]
    return fits & (at == stops), flags


def _follow_each(
    step: Each, words: NDArray[np.uint64], at: Places, stops: Places, flags: Flags, fits: Flags
) -> None:
    """Fill in the flags, clear `fits` where a document doesn't, and go on behind the last."""
    count, own = len(step.headers), int(step.optional)
    held = flags[step.first : step.first + count * (own + step.inside)].reshape(count, -1, len(at))
    places, heads = _places(step, words, at, stops)
    widths = np.array([len(header) for header in step.headers])[:, None]
    ends = [header[-_SEEN:] for header in step.headers]
    wanted, masks = _in_words(ends), _in_words([b"\xff" * len(end) for end in ends])
    number, alive = np.zeros(len(at), dtype=np.int64), flags[step.parent]
    for some in slabs(count, _WORD * len(at)):
        there = (heads[some] & masks[some]) == wanted[some]
        there[0] &= alive
        np.logical_and.accumulate(there, axis=0, out=there)
        alive, number = there[-1], number + there.sum(axis=0)
        length = (heads[some][there] >> _SHIFT).view(np.int64)
        if step.by_length is not None:
            np.minimum(length, step.by_length.shape[1] - 1, out=length)
            fit, *inside = (row.take(length) for row in step.by_length)
        else:
            start = (places[:-1][some] + widths[some])[there] + _SEEN
            stop = np.minimum(start + length, stops[np.nonzero(there)[1]])
            fit, (*inside, _) = _follow(step.steps, words, start, stop, step.inside)
        if not fit.all():
            fits[np.nonzero(there)[1][~fit]] = False
        if own:
            held[some, 0] = there
        for flag, here in enumerate(inside, own):
            held[some, flag][there] = here
    if not own:
        fits &= (number == count) | ~flags[step.parent]
    at[:] = places[number, np.arange(len(at))] + _SEEN


#: Of what is in front of a length so many bytes are looked at, with the length in one word.
_SEEN = 4
_SHIFT = np.uint64(8 * _SEEN)


def _in_words(ends: list[bytes]) -> NDArray[np.uint64]:
    joined = b"".join(end.rjust(_SEEN, b"\0").ljust(_WORD, b"\0") for end in ends)
    return np.frombuffer(joined, "<u8")[:, None]


def _places(
    step: Each, words: NDArray[np.uint64], at: Places, stops: Places
) -> tuple[Places, NDArray[np.uint64]]:
    """Where each begins if those before are there, and where the last ends, less what is seen of a header;
    and of each the word with what is seen of its header, and its length."""
    places = np.empty((len(step.headers) + 1, len(at)), dtype=np.int64)
    heads = np.empty((len(step.headers), len(at)), dtype=np.uint64)
    np.subtract(at, _SEEN, out=places[0])
    for header, place, head, behind in zip(step.headers, places, heads, places[1:], strict=False):
        seen = place + len(header)
        head[:] = words[seen]
        np.add(seen, (head >> _SHIFT).view(np.int64), out=behind)
        np.minimum(behind, stops, out=behind)  # what leads out of its document fits no step to come
    return places, heads
