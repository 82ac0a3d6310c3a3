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

from buckets.layout import ALWAYS, Bytes2D, Flags, Layout, mask_of, slabs
from buckets.raw import Docs


class Test(NamedTuple):
    """Does this name with this type come next? If so, go on behind the element's bytes."""

    flag: int
    parent: int
    words: tuple[tuple[int, int, int], ...]  # offset, mask, and what has to be there
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


Step = Test | Skip | Text | Open | Close | Choice

_WORD = 8


def words_of(header: bytes) -> tuple[tuple[int, int, int], ...]:
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
        present = present[rows]
        chosen = docs if len(rows) == len(docs) else docs.take(rows.tolist())
        data = np.frombuffer(chosen.data, dtype=np.uint8)
        matrix = np.tile(self.layout.skeleton, (len(rows), 1))
        proven = np.zeros(len(rows), dtype=np.bool_)
        for slab in slabs(len(rows), size):
            edges = chosen.offsets[slab.start : slab.stop + 1]
            matrix[slab][mask_of(present[slab], variants.flag)] = data[edges[0] : edges[-1]]
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
        for start in range(0, len(docs), _AT_ONCE):
            some = slice(start, start + _AT_ONCE)
            edges = docs.offsets[start : start + _AT_ONCE + 1]
            buffer = docs.data[edges[0] : edges[-1]] + bytes(
                self.layout.size + _WORD
            )  # no guess reads beyond
            words = np.ndarray((len(buffer) - _WORD + 1,), "<u8", buffer, strides=(1,))
            fits[some], flags = _follow(self.steps, words, edges - edges[0], count)
            present[some] = flags.T
        return fits, present


#: So many documents are followed at once.
_AT_ONCE = 4096


def _follow(
    steps: Sequence[Step], words: NDArray[np.uint64], edges: NDArray[np.int64], count: int
) -> tuple[Flags, Flags]:
    """Step by step through all documents at once."""
    at, fits = edges[:-1].copy(), np.ones(len(edges) - 1, dtype=np.bool_)
    flags = np.zeros((count + 1, len(at)), dtype=np.bool_)
    flags[ALWAYS] = True
    forward = np.empty_like(at)
    begun: list[NDArray[np.int64]] = []
    spans: list[tuple[int, NDArray[np.int64], NDArray[np.int64]]] = []
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
            size = (words[at] & np.uint64(0xFFFFFFFF)).astype(np.int64) - 1  # a zero byte ends it
            fits &= ((size >= 0) & (size <= step.most)) | ~there
            size = np.clip(size, 0, step.most)
            bytes_of = flags[step.first : step.first + step.most]
            np.greater(size, np.arange(step.most)[:, None], out=bytes_of)
            bytes_of &= there
            at += np.multiply(there, size + 5, out=forward)
        elif isinstance(step, Open):
            begun.append(at.copy())
        elif isinstance(step, Close):
            spans.append((step.flag, begun.pop(), at.copy()))
        else:
            held = flags[step.flags].sum(axis=0)
            fits &= (held == 1) | ((held == 0) & (~flags[step.parent] if step.certain else True))
    for flag, start, stop in spans:
        told = words[start - 4] & np.uint64(0xFFFFFFFF)
        fits &= (told == (stop - start + 4).view(np.uint64)) | ~flags[flag]
    return fits & (at == edges[1:]), flags
