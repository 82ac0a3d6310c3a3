"""Unions: one layout for documents that each lack something else.

Where slots are missing here and there, or ints stand among doubles, nearly every document has a layout of its
own. A union has room for all that any of them holds: each element that may be absent, and each type that it
may have, at its own place. A document is *padded* to the union: its bytes in their places, zeros where
something is absent. Then a matrix with holes at fixed offsets holds all of them, as with documents that are
alike, and flags say what is there.

The flags of a document are a guess, made by comparing names and types step by step in all documents at once.
The proof follows: every byte that is there, outside the holes, equals the union's. Lengths of sub-documents
are holes, since they differ, and each is compared with what lies there. A document that does not fit to the
last byte is not taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.bson.raw import Docs
from bucketwise.buckets.layouts.layout import Bytes2D, Flags, Layout, row_slices
from bucketwise.buckets.layouts.steps import WORD, MatchStep, Walk
from bucketwise.buckets.layouts.stretches import pad

#: Documents that are matched at once; of longer ones, as many as take so many bytes.
AT_ONCE, _BYTES = 4096, 1 << 23


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
            wrong = (matrix[slab] ^ self.layout.skeleton) & self.layout.mask
            proven[slab] = wrong.max(axis=1) == 0
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
            words = np.ndarray((stop - at - WORD + 1,), "<u8", data, at, (1,))
            walk = Walk(words, edges[:-1] - edges[0], edges[1:] - edges[0], count)
            fits[slab], flags = walk.through(self.steps)
            present[slab] = flags.T
        return fits, present
