"""The steps that match a union with documents. Each step is taken in all documents at once.

A step looks at what comes next in each document, sets its flags, and moves behind what is there. The result
is a guess, because names and types are compared and values are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.layouts.layout import ALWAYS, Flags, row_slices

#: Bytes, 8 at a time: offset, mask, and what has to be there.
Words = tuple[tuple[int, int, int], ...]
Places = NDArray[np.int64]

WORD = 8
_LENGTH = np.uint64(0xFFFFFFFF)
#: Bytes in front of a length that are compared, in one word with the length.
_HEADER_SEEN = 4
_SHIFT = np.uint64(8 * _HEADER_SEEN)


class Walk:
    """n documents on their way: where each is, which flags it has, and whether it fits so far."""

    def __init__(self, words: NDArray[np.uint64], starts: Places, stops: Places, flags: int) -> None:
        self.words = words  # from each byte on
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
    """Tests whether this name with this type comes next. If so, moves behind the element's bytes."""

    flag: int
    parent: int
    words: Words
    width: int

    def follow(self, walk: Walk) -> None:
        """Sets the flag where the bytes match, and moves behind them there."""
        hit = walk.flags[self.flag]
        for number, (offset, mask, wanted) in enumerate(self.words):
            found = walk.words[walk.at + offset if offset else walk.at]
            found &= np.uint64(mask)
            if number:
                hit &= found == np.uint64(wanted)
            else:
                np.equal(found, np.uint64(wanted), out=hit)
        if self.parent != ALWAYS:
            hit &= walk.flags[self.parent]
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
            fit, (*inside, _) = Walk(walk.words, start, stop, self.inside).through(self.steps)
        return fit, inside


def words_of(header: bytes) -> Words:
    """Returns a header as numbers of 8 bytes, the last with the mask of what belongs to it."""
    return tuple(
        (at, (1 << 8 * len(part)) - 1, int.from_bytes(part, "little"))
        for at in range(0, len(header), WORD)
        for part in [header[at : at + WORD]]
    )


def _in_words(ends: list[bytes]) -> NDArray[np.uint64]:
    joined = b"".join(end.rjust(_HEADER_SEEN, b"\0").ljust(WORD, b"\0") for end in ends)
    return np.frombuffer(joined, "<u8")[:, None]
