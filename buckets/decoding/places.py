"""Where the readings of documents stand in the columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.decoding.soundness import ReadingGroup
from bucketwise.buckets.layouts.layout import positions_in


class RowPlaces(NamedTuple):
    """Which of the n × k readings of a reading group are in the columns, and in which rows."""

    chosen: NDArray[np.int64] | None  # one after another; None: all
    rows: NDArray[np.int64] | slice
    starts: NDArray[np.int64]  # n: the row of each document's first

    def grid(self, row_of: NDArray[np.int64], shape: tuple[int, ...]) -> NDArray[np.int64]:
        """Returns the rows of the readings, (n, k), by `row_of`. Where there is no reading, repeats the row
        before it, which packs well."""
        rows = row_of[self.rows]
        if self.chosen is None:
            return rows.reshape(shape)
        present = np.zeros(shape, dtype=np.bool_)
        present.reshape(-1)[self.chosen] = True
        count = np.maximum(present.cumsum(axis=1, dtype=np.int32), 1)  # in front of all, that of the first
        lengths = present.sum(axis=1)
        index = count + (np.cumsum(lengths) - lengths - 1)[:, None]
        return np.asarray(rows[np.minimum(index, len(rows) - 1)]) if len(rows) else index


def place(
    pieces: list[ReadingGroup], rank: NDArray[np.int64], buckets: int
) -> tuple[list[RowPlaces], NDArray[np.int64]]:
    """Orders documents by the rank of their buckets, a bucket's own document before its overflow. A rank
    below 0: not there. Returns their places, and where each bucket's readings start, with the end of the
    last: buckets + 1."""
    offsets = np.zeros(buckets + 1, dtype=np.int64)
    if not pieces:
        return [], offsets
    ranks = np.concatenate([rank[piece.units] for piece in pieces])
    order = np.concatenate(
        [piece.group.members + 1 if piece.overflow else np.zeros(len(piece.units), int) for piece in pieces]
    )
    lengths = np.concatenate([piece.lengths for piece in pieces])
    lengths[ranks < 0] = 0
    sequence = np.lexsort((order, ranks))
    starts = np.empty(len(ranks), dtype=np.int64)
    starts[sequence] = np.cumsum(lengths[sequence]) - lengths[sequence]
    places, start = [], 0
    for piece in pieces:
        span = slice(start, start + len(piece.units))
        rows = _rows(starts[span], lengths[span])
        places.append(RowPlaces(_chosen(piece, ranks[span] >= 0), rows, starts[span]))
        start += len(piece.units)
    is_sound = ranks >= 0
    np.cumsum(np.bincount(ranks[is_sound], lengths[is_sound], buckets), out=offsets[1:], dtype=np.int64)
    return places, offsets


def _chosen(piece: ReadingGroup, sound: NDArray[np.bool_]) -> NDArray[np.int64] | None:
    if piece.present is not None:
        return np.flatnonzero(piece.present if sound.all() else piece.present & sound[:, None])
    if sound.all():
        return None
    return np.flatnonzero(np.repeat(sound, piece.time.shape[1]))


def _rows(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64] | slice:
    if len(starts) and (starts[1:] == starts[:-1] + lengths[:-1]).all():
        return slice(int(starts[0]), int(starts[-1] + lengths[-1]))
    return positions_in(starts, lengths)


def column(
    matrices: Sequence[NDArray[Any]], places: list[RowPlaces], total: int, dtype: type[np.generic]
) -> NDArray[Any]:
    """Returns the values of all groups, (n, k) each, as one column."""
    whole = np.empty(total, dtype=dtype)
    for matrix, (chosen, rows, _) in zip(matrices, places, strict=True):
        found = matrix.reshape(-1) if chosen is None else matrix.reshape(-1)[chosen]
        if isinstance(rows, slice) and len(found) == total:
            return found.astype(dtype, copy=False)  # the only piece
        whole[rows] = found
    return whole
