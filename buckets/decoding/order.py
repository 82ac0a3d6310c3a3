"""The readings of some columns: where they stand in their documents, and sorted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.columns import Columns
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
        grid = np.zeros(shape, dtype=np.int64)
        if not len(rows):
            return grid
        is_absent = np.ones(grid.size, dtype=np.bool_)
        is_absent[self.chosen] = False
        absent = np.flatnonzero(is_absent)
        document = absent // shape[1]
        lengths = shape[1] - np.bincount(document, minlength=shape[0])
        first = (np.cumsum(lengths) - lengths)[document]  # the place among `rows` of its document's first
        before = absent - np.arange(len(absent)) - 1
        grid.reshape(-1)[self.chosen] = rows
        grid.reshape(-1)[absent] = rows[np.minimum(np.maximum(before, first), len(rows) - 1)]
        return grid


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
    order = np.concatenate([_order(piece) for piece in pieces])
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


def _order(piece: ReadingGroup) -> NDArray[np.int64]:
    """Returns the order of documents among those of their buckets."""
    if piece.places is not None:
        return piece.places + 1
    return piece.group.members + 1 if piece.overflow else np.zeros(len(piece.units), dtype=np.int64)


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


@dataclass(frozen=True)
class Order:
    """The row of each of n readings, in b buckets."""

    columns: Columns
    #: The buckets that hold any reading, in the order in which they follow one another as a whole; None: they
    #: don't, and each reading goes by itself.
    whole: NDArray[np.int64] | None
    #: b: what the series of each bucket are sorted by; n where readings have their own.
    ranks: NDArray[np.integer]
    part_ms: int | None

    @classmethod
    def of(cls, columns: Columns, rank: NDArray[np.integer], part_ms: int | None = None) -> Order:
        """Sorts readings by part of time (if `part_ms` is given), then by the rank of their series, then by
        time. The sort is stable."""
        if columns.reading_series is not None:
            return cls(columns, None, rank[columns.reading_series], part_ms)
        ranks = rank[columns.bucket_series]
        return cls(columns, _whole(columns, ranks, part_ms), ranks, part_ms)

    @cached_property
    def readings(self) -> NDArray[np.int64]:
        """Returns the index of the reading in each row, (n,)."""
        columns = self.columns
        if self.whole is not None:
            return positions_in(columns.starts[self.whole], columns.lengths[self.whole])
        ranks = self.ranks if columns.reading_series is not None else self.ranks[columns.bucket]
        by_series = (ranks, columns.time)
        return _sorted(by_series if self.part_ms is None else (columns.time // self.part_ms, *by_series))

    def take(self, column: NDArray[Any]) -> NDArray[Any]:
        """Returns a column, row by row."""
        length = self._length
        if self.whole is None or not length:
            return column[self.readings]
        return column.reshape(-1, length).take(self.whole, axis=0).reshape(-1)

    def take_series(self, column: NDArray[Any]) -> NDArray[Any]:
        """Returns what `column` has for the series of each reading, row by row."""
        if self.whole is None:
            return column[self.columns.series_of_readings[self.readings]]
        of_buckets = column[self.columns.bucket_series[self.whole]]
        return np.repeat(of_buckets, self.columns.lengths[self.whole])

    @cached_property
    def first(self) -> NDArray[np.int64]:
        """Returns the lowest row of each bucket, (b,); n where it holds no reading."""
        columns = self.columns
        found = np.full(len(columns.lengths), len(columns.time), dtype=np.int64)
        if self.whole is not None:
            ends = np.cumsum(columns.lengths[self.whole])
            found[self.whole] = ends - columns.lengths[self.whole]
        elif len(columns.filled):
            found[columns.filled] = np.minimum.reduceat(self._row_of, columns.starts[columns.filled])
        return found

    def rows(self, place: RowPlaces, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """Returns the rows of a piece of n documents of up to k readings: (n,), the row of each document's
        first, if all others that it has follow it; else all, (n, k). Without readings: any row."""
        if self.whole is None or not shape[1]:
            return place.grid(self._row_of, shape)
        starts = np.minimum(place.starts, len(self.columns.time) - 1)
        bucket = self.columns.buckets_of(starts)
        return np.asarray(starts - self.columns.starts[bucket] + self.first[bucket])

    @cached_property
    def _row_of(self) -> NDArray[np.int64]:
        """Returns the row of each reading, (n,)."""
        found = np.empty(len(self.readings), dtype=np.int64)
        found[self.readings] = np.arange(len(found))
        return found

    @cached_property
    def _length(self) -> int:
        """Returns how many readings every bucket has; 0 where they differ."""
        lengths = self.columns.lengths
        return int(lengths[0]) if len(lengths) and (lengths == lengths[0]).all() else 0


def _whole(columns: Columns, ranks: NDArray[np.integer], part_ms: int | None) -> NDArray[np.int64] | None:
    """Returns buckets sorted by their first reading, if the readings then ascend strictly: no sort could give
    another order. Else None, and where buckets are too short for it to pay."""
    time, filled = columns.time, columns.filled
    if 2 * len(filled) >= len(time):
        return None
    starts = columns.starts[filled]
    firsts, lasts = time[starts], time[columns.starts[filled + 1] - 1]
    parts = np.zeros_like(firsts)
    if part_ms is not None:
        parts = firsts // part_ms
        if not np.array_equal(parts, lasts // part_ms):
            return None
    ascends = time[1:] > time[:-1]
    ascends[starts[1:] - 1] = True
    if not ascends.all():
        return None
    order = np.lexsort((firsts, ranks[filled], parts))
    follows = (np.diff(ranks[filled][order]) != 0) | (firsts[order][1:] > lasts[order][:-1])
    return filled[order] if follows.all() else None


def _sorted(keys: tuple[NDArray[np.integer], ...]) -> NDArray[np.int64]:
    """Returns the places in the order of these keys, the first before the others; stable. As one number,
    where that holds them all, they are sorted in half the time."""
    lows = [int(key.min(initial=0)) for key in keys]
    spans = [int(key.max(initial=0)) - low + 1 for key, low in zip(keys, lows, strict=True)]
    if math.prod(spans) >= 2**63:
        return np.lexsort(keys[::-1])
    joined = np.zeros(len(keys[0]), dtype=np.int64)
    for key, low, span in zip(keys, lows, spans, strict=True):
        joined = joined * span + (key - low)
    return np.argsort(joined, kind="stable")
