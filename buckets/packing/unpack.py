"""Rebuilds packed documents to the bit, to return them or to prove that others are equal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from bucketwise.buckets.bson.raw import Batch, Docs
from bucketwise.buckets.bson.rows import filled
from bucketwise.buckets.layouts.layout import Bytes2D, Flags, positions_in, row_slices, steps, write_holes
from bucketwise.buckets.layouts.union import cut
from bucketwise.buckets.packing.pack import TIMES, ByteSource, PackedGroup, as_stored


class Readings(NamedTuple):
    """The rows of a packed batch, as read back."""

    time: NDArray[np.int64]  # n: milliseconds
    values: Sequence[NDArray[np.float64]]  # n, in the order of the policy's value fields


def unpack(readings: Readings, groups: Sequence[PackedGroup]) -> Batch:
    """Returns the batch, as it was packed."""
    main, extra = _Side.both(readings, groups)
    return Batch(main.docs(), extra.docs(), extra.owner)


def unpacks_to(readings: Readings, groups: Sequence[PackedGroup], batch: Batch) -> bool:
    """Returns whether `unpack` would return exactly this batch, byte for byte. Rebuilds a few documents
    at a time and keeps none, which takes half the time and little memory."""
    main, extra = _Side.both(readings, groups)
    whole = np.arange(len(batch), dtype=np.int32)
    return main.are(batch.main, whole) and extra.are(batch.extra, batch.owner)


class _Side:
    """The documents of a batch that are buckets, or those that are overflow: group by group, while the batch
    has them by bucket, then in their order."""

    def __init__(self, readings: Readings, groups: Sequence[PackedGroup]) -> None:
        self._readings = readings
        self._groups = [(group, _flags(group)) for group in groups]
        units = _joined([group.units for group in groups])
        self._lengths = _joined([_lengths(*it) for it in self._groups])  # group by group, as all is rebuilt
        self._sequence = np.lexsort((_joined([group.order for group in groups]), units))
        self.owner = units[self._sequence].astype(np.int32)  # n: which bucket each document is of

    @classmethod
    def both(cls, readings: Readings, groups: Sequence[PackedGroup]) -> tuple[_Side, _Side]:
        main = cls(readings, [group for group in groups if not group.overflow])
        return main, cls(readings, [group for group in groups if group.overflow])

    def docs(self) -> Docs:
        def fill(target: NDArray[np.uint8]) -> None:
            for _, documents in self._rebuilt():
                target[: documents.size] = documents
                target = target[documents.size :]

        offsets = np.append(0, np.cumsum(self._lengths))
        docs = Docs(filled(int(offsets[-1]), fill), offsets)
        return docs if (np.diff(self._sequence) > 0).all() else docs.take(self._sequence)

    def are(self, docs: Docs, owner: NDArray[np.int32]) -> bool:
        """Returns whether these are the same buckets: where each starts and ends, and every byte in
        between."""
        if not np.array_equal(self.owner, owner):
            return False
        if not np.array_equal(self._lengths[self._sequence], np.diff(docs.offsets)):
            return False
        from pyarrow import py_buffer

        place = np.empty_like(self._sequence)
        place[self._sequence] = np.arange(len(place))
        return all(
            py_buffer(_back_to_back(docs, place[these])).equals(py_buffer(rebuilt))
            for these, rebuilt in self._rebuilt()
        )

    def _rebuilt(self) -> Iterator[tuple[slice, NDArray[np.uint8]]]:
        """Yields some documents at a time, back to back, and which these are, group by group. The next step
        may overwrite what was yielded."""
        start = 0
        for group, present in self._groups:
            for slab, documents in _of_group(group, present, self._readings):
                yield slice(start + slab.start, start + slab.stop), documents
            start += len(group.units)


def _joined(parts: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])


def _back_to_back(docs: Docs, chosen: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Returns the chosen documents, at least one, back to back; without a copy where they lie so."""
    if (np.diff(chosen) == 1).all():
        return np.frombuffer(docs.data, np.uint8)[docs.offsets[chosen[0]] : docs.offsets[chosen[-1] + 1]]
    return np.frombuffer(docs.take(chosen).data, np.uint8)


def _flags(group: PackedGroup) -> Flags | None:
    """Returns the flags, (n, 1 + flags), the first for what is always there; None where nothing may be
    absent."""
    if not len(group.flag):
        return None
    bits = np.frombuffer(group.present, dtype=np.uint8).reshape(int(group.flag.max()), -1)
    present = np.ones((len(group.units), len(bits) + 1), dtype=np.bool_)
    present[:, 1:] = np.unpackbits(bits, axis=1, count=len(group.units)).T
    return present


def _lengths(group: PackedGroup, present: Flags | None) -> NDArray[np.int64]:
    """Returns the lengths of the documents in bytes, (n,)."""
    if present is None:
        return np.full(len(group.units), len(group.skeleton))
    of_flag = np.bincount(group.flag)  # bytes that each flag tells of
    size = present.shape[1] * of_flag.itemsize  # of the flags of a document, as they are multiplied
    return np.concatenate([present[slab] @ of_flag for slab in row_slices(len(present), size)])


def _of_group(
    group: PackedGroup, present: Flags | None, readings: Readings
) -> Iterator[tuple[slice, NDArray[np.uint8]]]:
    """Yields a group's documents back to back, some at a time, so that they stay in the cache until all is
    filled in: into the same skeletons, since every hole is written each time."""
    n, skeleton = len(group.units), np.frombuffer(group.skeleton, dtype=np.uint8)
    fill, skeletons = _filler(group, readings), np.zeros((0, 0), dtype=np.uint8)
    for slab in row_slices(n, len(skeleton)):
        if not len(skeletons):  # the first is the largest
            skeletons = np.tile(skeleton, (slab.stop - slab.start, 1))
        matrix = skeletons[: slab.stop - slab.start]
        fill(matrix, slab)
        yield slab, matrix.reshape(-1) if present is None else cut(matrix, present[slab], group.flag)


def _filler(group: PackedGroup, readings: Readings) -> Callable[[Bytes2D, slice], None]:
    """Returns a function that fills skeletons of some of the documents, also those of what is absent."""
    whole = group.source == ByteSource.KEPT
    kept = positions_in(group.hole[whole], group.width[whole])
    residue = np.frombuffer(group.residue, dtype=np.uint8).reshape(len(kept), len(group.units))
    carried = []
    for source, field in set(zip(group.source.tolist(), group.field.tolist(), strict=True)):
        if source != ByteSource.KEPT:
            at = np.flatnonzero((group.source == source) & (group.field == field))
            taken = _hole_values(group, at, readings.time if source in TIMES else readings.values[field])
            carried.append((ByteSource(source), group.hole[at].astype(np.int64), taken))

    def fill(matrix: Bytes2D, slab: slice) -> None:
        matrix[:, kept] = residue[:, slab].T
        for source, holes, taken in carried:
            write_holes(matrix, holes, as_stored(taken(slab), source))

    return fill


def _hole_values(
    group: PackedGroup, at: NDArray[np.int64], column: NDArray[Any]
) -> Callable[[slice], NDArray[Any]]:
    """Returns a function that gives the values of these holes: a row for each of some documents."""
    reading = group.reading[at]
    if group.rows.ndim == 2:
        return lambda slab: column[group.rows[slab][:, reading]]
    following = sliding_window_view(column, group.readings)  # row r: the readings from r on
    step = steps(reading.tolist())
    if (np.diff(group.rows) == group.readings).all():
        one_after_another = following[group.rows[0] : group.rows[-1] + 1 : group.readings, step]
        return lambda slab: one_after_another[slab]
    return lambda slab: following[group.rows[slab]][:, step]
