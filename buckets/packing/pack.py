"""Documents taken apart for the archive. `packing.unpack` puts them together again, to the bit.

A packed batch is rows (one a reading: series, time, values) and groups (one a layout: the skeleton, and
the bytes of every hole that the rows can't carry). A hole is carried by the rows only where writing the
row's value back gives the very same bits in every document of its group; all else is kept whole:
`_id`s, extra fields, NaNs and -0.0, longs beyond 2**53, decimals, strings among the values.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.bson.types import DATE, DOUBLE, INT32, INT64
from bucketwise.buckets.columns import Series, is_number
from bucketwise.buckets.decoding.decode import BucketSet
from bucketwise.buckets.decoding.order import Order
from bucketwise.buckets.decoding.soundness import ReadingGroup
from bucketwise.buckets.fields.selectors import series_order
from bucketwise.buckets.fields.times import DAY_MS, LAST_MS, Unit, from_numbers, to_numbers
from bucketwise.buckets.layouts.layout import Bytes2D, Flags, by_type, read_holes, steps
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


@dataclass(frozen=True)
class PackedGroup:
    """n documents of one layout with k readings each and h holes, of which r bytes are kept."""

    overflow: bool
    units: NDArray[np.int32]  # n: the bucket
    order: NDArray[np.int32]  # n: among the overflow documents of the batch; 0 for a bucket's own
    readings: int  # k
    #: n: the row of the first reading, where the others follow it; else n × k, of each
    rows: NDArray[np.int64]
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


@dataclass(frozen=True)
class Rows:
    """n readings, sorted by UTC day, then series, then time; where those tie, by `_id`."""

    series: list[Series]  # sorted
    row_series: NDArray[np.int32]  # n
    time: NDArray[np.int64]  # n: milliseconds
    values: dict[str, NDArray[np.float64]]  # n
    present: dict[str, NDArray[np.bool_]]  # n: is there a number


@dataclass(frozen=True)
class Packed:
    """Buckets taken apart: readings as rows, and all other bytes as groups."""

    rows: Rows
    groups: list[PackedGroup]
    first: int  # what the buckets cover, milliseconds: their first and last reading; where a bucket
    last: int  # holds none, its own last time


def pack(buckets: BucketSet) -> Packed:
    """Takes buckets apart, at least one. Raises ValueError where `decode` quarantines one."""
    policy, decoded = buckets.policy, buckets.decoded
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
        skeleton=piece.group.layout.skeleton.tobytes(),
        hole=hole,
        width=width,
        source=source.astype(np.int8),
        reading=reading.copy(),
        field=field.astype(np.int16),
        residue=_residue(matrix, hole[kept], width[kept], sequence),
        flag=np.zeros(0, dtype=np.int32) if variants is None else variants.flag + 1,
        present=b"" if present is None else _bits(present[sequence]),
    )


def _bits(present: Flags) -> bytes:
    """Returns the flags of n documents, without that of what is always there: flag by flag."""
    return np.packbits(np.ascontiguousarray(present.T[:-1]), axis=1).tobytes()


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
