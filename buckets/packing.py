"""Documents taken apart for the archive, and put together again to the bit.

A packed batch is rows (one a reading: series, time, values) and groups (one a layout: the skeleton, and
the bytes of every hole that the rows can't carry). A hole is carried by the rows only where writing the
row's value back gives the very same bits in every document of its group; all else is kept whole:
`_id`s, extra fields, NaNs and -0.0, longs beyond 2**53, decimals, strings among the values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from bucketwise.buckets.bson.raw import Batch, Docs, filled
from bucketwise.buckets.bson.types import DATE, DOUBLE, INT32, INT64
from bucketwise.buckets.columns import Series, is_number
from bucketwise.buckets.decoding.decode import BucketSet
from bucketwise.buckets.decoding.order import Order
from bucketwise.buckets.decoding.soundness import ReadingGroup
from bucketwise.buckets.fields.selectors import series_order
from bucketwise.buckets.fields.times import DAY_MS, LAST_MS, Unit, from_numbers, to_numbers
from bucketwise.buckets.layouts.layout import (
    Bytes2D,
    Flags,
    bits_of,
    by_type,
    flags_of,
    positions_in,
    read_holes,
    row_slices,
    steps,
    write_holes,
)
from bucketwise.buckets.layouts.union import cut
from bucketwise.config.policies import Policy


class ByteSource(IntEnum):
    """Where the bytes of a hole come from. The numbers are part of the archive format."""

    KEPT = 0  # the group's residue
    TIME_DATE = 1  # the row's time …
    TIME_INT32 = 2  # … in seconds
    TIME_INT64 = 3
    TIME_DOUBLE = 4
    VALUE_DOUBLE = 5  # the row's value of a field
    VALUE_INT32 = 6
    VALUE_INT64 = 7
    TIME_MS_INT64 = 8  # the row's time in milliseconds since 1970 …
    TIME_MS_DOUBLE = 9
    TIME_US_INT64 = 10  # … in microseconds
    TIME_NS_INT64 = 11  # … in nanoseconds


#: By the unit that numbers count: BSON type -> source. Texts are kept.
_TIME_SOURCES: dict[Unit | None, dict[int, ByteSource]] = {
    None: {},
    "s": {INT32: ByteSource.TIME_INT32, INT64: ByteSource.TIME_INT64, DOUBLE: ByteSource.TIME_DOUBLE},
    "ms": {INT64: ByteSource.TIME_MS_INT64, DOUBLE: ByteSource.TIME_MS_DOUBLE},
    "us": {INT64: ByteSource.TIME_US_INT64},
    "ns": {INT64: ByteSource.TIME_NS_INT64},
}
UNITS: dict[ByteSource, Unit] = {
    source: unit for unit, sources in _TIME_SOURCES.items() if unit for source in sources.values()
}
_VALUE_SOURCES = {
    DOUBLE: ByteSource.VALUE_DOUBLE,
    INT32: ByteSource.VALUE_INT32,
    INT64: ByteSource.VALUE_INT64,
}
_ALWAYS_EXACT = (
    *(ByteSource.TIME_DATE, ByteSource.TIME_INT32, ByteSource.TIME_INT64, ByteSource.TIME_MS_INT64),
    ByteSource.VALUE_INT32,
)
_MINUS_ZERO = np.array(-0.0).view("<i8")
#: Of a hole that no row carries: source, reading, field.
_KEPT = (ByteSource.KEPT, 0, 0)
TIMES = frozenset({ByteSource.TIME_DATE, *UNITS})
DTYPES = {
    ByteSource.TIME_DATE: "<i8",
    ByteSource.TIME_INT32: "<i4",
    ByteSource.TIME_INT64: "<i8",
    ByteSource.TIME_DOUBLE: "<f8",
    ByteSource.VALUE_DOUBLE: "<f8",
    ByteSource.VALUE_INT32: "<i4",
    ByteSource.VALUE_INT64: "<i8",
    ByteSource.TIME_MS_INT64: "<i8",
    ByteSource.TIME_MS_DOUBLE: "<f8",
    ByteSource.TIME_US_INT64: "<i8",
    ByteSource.TIME_NS_INT64: "<i8",
}


class MalformedError(ValueError):
    """A group that no documents were packed to: it would give others, or none."""


@dataclass(frozen=True)
class PackedGroup:
    """n documents of one layout with k readings each and h holes, of which r bytes are kept."""

    overflow: bool
    units: NDArray[np.int32]  # n: the bucket
    order: NDArray[np.int32]  # n: among the overflow documents of the batch; 0 for a bucket's own
    readings: int  # k
    #: n: the row of the first reading, where the others that are there follow it; else n × k, of each
    rows: NDArray[np.int64]
    held: bytes  # k × n, as in `present`, where documents lack readings and `rows` has n: which they have
    skeleton: bytes
    hole: NDArray[np.int32]  # h: offset
    width: NDArray[np.int32]  # h
    source: NDArray[np.int8]  # h: Source
    reading: NDArray[np.int32]  # h: which of the k readings; 0 where kept
    field: NDArray[np.int16]  # h: which value field; 0 where it is no value
    residue: bytes  # r × n, byte by byte: what is alike lies together and packs well
    flag: NDArray[np.int32]  # of each byte: which of f flags tells whether it is there, from 1; 0: it is.
    #                          Empty where nothing may be absent
    present: bytes  # f × n: the flags, a bit each, those of one flag in whole bytes

    def check(self, rows: int, fields: int) -> None:
        """Raises MalformedError unless every place that the group names is there, in itself and in so many
        rows with so many value fields. What was read may be from anyone."""
        n, holes, length = len(self.units), len(self.hole), len(self.skeleton)
        kept = self.source == ByteSource.KEPT
        widths = np.array([np.dtype(DTYPES[it]).itemsize if it in DTYPES else 0 for it in ByteSource])
        flags = int(self.flag.max(initial=0))
        if len(self.held) not in (0, self.readings * -(-n // 8)):
            raise MalformedError("what a group tells of its readings is not of its documents")
        last = self.rows
        if self.rows.shape == (n,):
            held = np.count_nonzero(self._has, axis=1) if self.held else np.full(n, self.readings)
            last = self.rows + np.maximum(held, 1) - 1
        if not (
            0 < n == len(self.order) == len(self.rows)
            and all(len(it) == holes for it in (self.width, self.source, self.reading, self.field))
            and _within(self.units, 2**31)
            and _within(self.order, 2**31)
            and 0 <= self.readings <= length  # each has an element
            and (not self.rows.size or not self.readings or _within(self.rows, rows))
            and (not self.readings or _within(last, rows))
            and _within(self.source, len(widths))
            and _within(self.reading[~kept], self.readings)
            and _within(self.field, max(1, fields))
            and (fields > 0 or not (~kept & ~np.isin(self.source, list(TIMES))).any())
            and (self.width[~kept] == widths[self.source[~kept]]).all()
            and _within(self.width, length + 1)
            and _within(self.hole, length + 1)
            and (self.hole.astype(np.int64) + self.width <= length).all()
            and len(self.residue) == int(self.width[kept].sum(dtype=np.int64)) * n
            and len(self.flag) in (0, length)
            and _within(self.flag, length + 1)
            and len(self.present) == flags * -(-n // 8)
        ):
            raise MalformedError("the places of a group's bytes are not where it says")

    def places(self, documents: slice) -> NDArray[np.int64]:
        """Returns the row of each reading of some documents, (n, k): of one that is not there, that of the
        one before it, or else of the first. Where all of a document are there and follow one another, that
        of the first alone, (n, 1)."""
        rows = self.rows[documents]
        if rows.ndim == 2:
            return rows
        if self.held:
            held = self._has[documents].cumsum(axis=1, dtype=np.int64)
            return np.asarray(rows[:, None] + np.maximum(held, 1) - 1)
        return rows[:, None]

    @cached_property
    def _has(self) -> Flags:
        return flags_of(self.held, self.readings, len(self.units))


def _within(numbers: NDArray[np.integer[Any]], end: int) -> bool:
    return not numbers.size or bool(numbers.min() >= 0 and numbers.max() < end)


@dataclass(frozen=True)
class Rows:
    """n readings, sorted by UTC day, then series, then time; where those tie, by `_id`."""

    series: list[Series]  # sorted
    row_series: NDArray[np.int32]  # n
    time: NDArray[np.int64]  # n: milliseconds
    values: dict[str, NDArray[np.float64]]  # n
    present: dict[str, NDArray[np.bool_]]  # n: is there a number
    marks: Mapping[str, NDArray[np.bool_]] = dataclasses.field(
        default_factory=dict
    )  # n: further columns, by name


@dataclass(frozen=True)
class Packed:
    """Buckets taken apart: readings as rows, and all other bytes as groups."""

    rows: Rows
    groups: list[PackedGroup]
    first: int  # what the buckets cover, milliseconds: their first and last reading; where a bucket
    last: int  # holds none, its own last time


def pack(buckets: BucketSet) -> Packed:
    """Takes buckets apart, at least one. Raises ValueError where `decode` quarantines one."""
    policy, decoded = buckets.policy, buckets.whole
    if decoded.quarantined:
        raise ValueError(f"a bucket that breaks its model can't be packed: {decoded.quarantined[0]}")
    columns = decoded.columns
    by_order = sorted(range(len(columns.series)), key=lambda i: series_order(columns.series[i]))
    rank = np.empty(len(by_order), dtype=np.int32)
    rank[by_order] = np.arange(len(by_order), dtype=np.int32)
    readings = Order.of(columns, rank, DAY_MS)
    rows = Rows(
        series=[columns.series[i] for i in by_order],
        row_series=readings.take_series(rank),
        time=readings.take(columns.time),
        values={name: readings.take(column) for name, column in columns.values.items()},
        present={name: _has_number(readings, kinds) for name, kinds in columns.kinds.items()},
    )
    groups = [
        _pack_group(piece, readings.rows(place, piece.time.shape), policy)
        for piece, place in zip(decoded.pieces, decoded.places, strict=True)
    ]
    first_ms = min(columns.time.min(initial=LAST_MS), decoded.last.min())
    return Packed(rows, groups, int(first_ms), int(decoded.last.max()))


def _has_number(readings: Order, kinds: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Returns, row by row, where there is a number, (n,)."""
    numbers = is_number(kinds)
    return numbers if numbers.all() else readings.take(numbers)  # all are in any order


def _pack_group(piece: ReadingGroup, rows: NDArray[np.int64], policy: Policy) -> PackedGroup:
    units = piece.units
    order = piece.group.members if piece.overflow else np.zeros(len(units), dtype=np.int64)
    sequence = np.lexsort((order, units))
    matrix, present, variants = piece.group.matrix, piece.group.present, piece.group.layout.variants
    carried = _carried_by_rows(piece, policy)
    hole, width = (column.copy() for column in piece.group.layout.holes.T)
    described = np.array([carried.get(at, _KEPT) for at in hole.tolist()], np.int32).reshape(-1, 3)
    source, reading, field = described.T
    kept = source == ByteSource.KEPT
    return PackedGroup(
        overflow=piece.overflow,
        readings=piece.time.shape[1],
        units=units[sequence].astype(np.int32),
        order=order[sequence].astype(np.int32),
        rows=rows[sequence],
        held=b"" if piece.present is None or rows.ndim > 1 else bits_of(piece.present[sequence]),
        skeleton=piece.group.layout.skeleton.tobytes(),
        hole=hole,
        width=width,
        source=source.astype(np.int8),
        reading=reading.copy(),
        field=field.astype(np.int16),
        residue=_residue(matrix, hole[kept], width[kept], sequence),
        flag=np.zeros(0, dtype=np.int32) if variants is None else variants.flag + 1,
        present=b"" if present is None else bits_of(present[sequence, :-1]),  # the last is always there
    )


def _residue(
    matrix: Bytes2D, hole: NDArray[np.int32], width: NDArray[np.int32], sequence: NDArray[np.int64]
) -> bytes:
    """Returns the bytes in these holes, byte by byte, of the documents in this sequence."""
    parts = []
    for holes in np.split(np.arange(len(hole)), np.flatnonzero(np.diff(width)) + 1):
        if len(holes):  # as wide as each other
            values = read_holes(matrix, hole[holes].astype(np.int64), f"V{width[holes[0]]}")
            parts.append(values[sequence].view(np.uint8).T.tobytes())
    return b"".join(parts)


def _carried_by_rows(piece: ReadingGroup, policy: Policy) -> dict[int, tuple[ByteSource, int, int]]:
    """Returns the holes that the rows carry: offset -> source, reading, field. A hole that is absent holds
    zeros, which a row gives back."""
    times = {DATE: ByteSource.TIME_DATE, **_TIME_SOURCES[piece.shape.form.unit]}
    cells = [(times, 0, piece.shape.times or [])]
    cells += [(_VALUE_SOURCES, i, piece.shape.values[name]) for i, name in enumerate(policy.value_names)]
    found: dict[int, tuple[ByteSource, int, int]] = {}
    for sources, field, of_field in cells:
        for kind, readings, elements in by_type(of_field):
            if kind not in sources:
                continue
            source = sources[kind]
            if source in _ALWAYS_EXACT:
                exact = np.ones(len(elements), dtype=np.bool_)
            elif source == ByteSource.VALUE_DOUBLE and piece.group.present is None:
                exact = _exact(piece.values[policy.value_names[field]][0][:, steps(readings)], source)
            else:
                exact = _exact(piece.group.read(elements, DTYPES[source]), source)
            found.update(
                (elements[i].hole, (source, readings[i], field)) for i in np.flatnonzero(exact).tolist()
            )
    return found


def _exact(raw: NDArray[Any], source: ByteSource) -> Flags:
    """Returns, for each hole, whether the double (value) or milliseconds (time) of its row restore its
    bits in every document, (n, h) → (h,)."""
    if source == ByteSource.VALUE_DOUBLE:
        # -0.0 and NaN survive in Parquet, but a dictionary may take one NaN, or zero, for another
        same = ~(np.isnan(raw) | (raw.view("<i8") == _MINUS_ZERO))
    elif source == ByteSource.VALUE_INT64:
        same = (raw >= -(2**53)) & (raw <= 2**53)
    else:
        ms = from_numbers(raw, UNITS[source])
        same = as_stored(ms, source).view("<i8") == raw.view("<i8")
    return np.asarray(same.all(axis=0))


def as_stored(rows: NDArray[Any], source: ByteSource) -> NDArray[Any]:
    """Returns values of rows (milliseconds, doubles) in the type that the documents store."""
    if source == ByteSource.TIME_DOUBLE:
        rows = rows / 1000.0
    elif source in UNITS:
        rows = to_numbers(rows, UNITS[source])
    with np.errstate(invalid="ignore"):  # no number where nothing is there
        return rows.astype(DTYPES[source], copy=False)


class Readings(NamedTuple):
    """The rows of a packed batch, as read back."""

    time: NDArray[np.int64]  # n: milliseconds
    values: Sequence[NDArray[np.float64]]  # n, in the order of the policy's value fields


def unpack(readings: Readings, groups: Sequence[PackedGroup], size: int) -> Batch:
    """Returns the batch, as it was packed. Raises MalformedError, before any is made, where its documents
    would not have `size` bytes."""
    main, extra = _Side.both(readings, groups)
    if main.size + extra.size != size:
        raise MalformedError(f"its documents would have {main.size + extra.size:,} bytes, not {size:,}")
    return Batch(main.docs(), extra.docs(), extra.owner)


def ids_of(groups: Sequence[PackedGroup], rows: int, fields: int, size: int) -> Sequence[bytes] | None:
    """Returns the `_id`s of packed buckets that have so many rows and value fields, without the rows; None
    where these carry them. Raises as `unpack` does."""
    blank = [Readings(np.full(rows, at), [np.full(rows, float(at))] * fields) for at in (0, 1000)]
    one, other = (unpack(it, groups, size).main.raw_ids for it in blank)
    return one if one == other else None


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

    @property
    def size(self) -> int:
        """The bytes of all documents."""
        return int(self._lengths.sum())

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
    n, flags = len(group.units), int(group.flag.max())
    present = np.ones((n, flags + 1), dtype=np.bool_)
    present[:, 1:] = flags_of(group.present, flags, n)
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
        rows = group.places(slab)
        for source, holes, taken in carried:
            write_holes(matrix, holes, as_stored(taken(slab, rows), source))

    return fill


def _hole_values(
    group: PackedGroup, at: NDArray[np.int64], column: NDArray[Any]
) -> Callable[[slice, NDArray[np.int64]], NDArray[Any]]:
    """Returns a function that gives the values of these holes, a row for each of some documents: of the rows
    of their readings, where these don't follow one another."""
    reading = group.reading[at]
    step = steps(reading.tolist())
    if group.rows.ndim == 2 or group.held:
        return lambda _slab, rows: column[rows[:, reading]]
    following = sliding_window_view(column, group.readings)  # row r: the readings from r on
    if (np.diff(group.rows) == group.readings).all():
        one_after_another = following[group.rows[0] : group.rows[-1] + 1 : group.readings, step]
        return lambda slab, _rows: one_after_another[slab]
    return lambda slab, _rows: following[group.rows[slab]][:, step]
