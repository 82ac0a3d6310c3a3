"""Documents taken apart for the archive, and put together again to the bit.

A packed batch is rows (one a reading: series, time, values) and groups (one a layout: the skeleton, and
the bytes of every hole that the rows can't carry). A hole is carried by the rows only where writing the
row's value back gives the very same bits in every document of its group; all else is kept whole:
`_id`s, extra fields, NaNs and -0.0, longs beyond 2**53, decimals, strings among the values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from buckets.asked import series_order
from buckets.bsontypes import DATE, DOUBLE, INT32, INT64
from buckets.columns import Series, is_number
from buckets.decode import Lot
from buckets.layout import (
    Bytes2D,
    Flags,
    by_type,
    read_holes,
    slabs,
    spread,
    steps,
    write_holes,
)
from buckets.order import Order
from buckets.raw import Batch, Docs, filled
from buckets.soundness import Piece
from buckets.stretches import cut
from buckets.times import DAY_MS, LAST_MS, from_seconds
from config.policies import Policy


class Source(IntEnum):
    """Where the bytes of a hole come from. The numbers are part of the archive format."""

    KEPT = 0  # the group's residue
    TIME_DATE = 1  # the row's time …
    TIME_INT32 = 2  # … in seconds
    TIME_INT64 = 3
    TIME_DOUBLE = 4
    VALUE_DOUBLE = 5  # the row's value of a field
    VALUE_INT32 = 6
    VALUE_INT64 = 7


_TIME_SOURCES = {
    DATE: Source.TIME_DATE,
    INT32: Source.TIME_INT32,
    INT64: Source.TIME_INT64,
    DOUBLE: Source.TIME_DOUBLE,
}
_VALUE_SOURCES = {DOUBLE: Source.VALUE_DOUBLE, INT32: Source.VALUE_INT32, INT64: Source.VALUE_INT64}
_ALWAYS_EXACT = (Source.TIME_DATE, Source.TIME_INT32, Source.TIME_INT64, Source.VALUE_INT32)
_MINUS_ZERO = np.array(-0.0).view("<i8")
#: Of a hole that no row carries: source, reading, field.
_KEPT = (Source.KEPT, 0, 0)
_TIMES = frozenset(_TIME_SOURCES.values())
_DTYPES = {
    Source.TIME_DATE: "<i8",
    Source.TIME_INT32: "<i4",
    Source.TIME_INT64: "<i8",
    Source.TIME_DOUBLE: "<f8",
    Source.VALUE_DOUBLE: "<f8",
    Source.VALUE_INT32: "<i4",
    Source.VALUE_INT64: "<i8",
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
    rows: Rows
    groups: list[PackedGroup]
    first: int  # what the buckets cover, milliseconds: their first and last reading; where a bucket
    last: int  # holds none, its own last time


def pack(lot: Lot) -> Packed:
    """The lot must hold a bucket, and sound ones alone (`decode` quarantines none); else ValueError."""
    policy, decoded = lot.policy, lot.decoded
    if decoded.quarantined:
        raise ValueError(f"a bucket that breaks its model can't be packed: {decoded.quarantined[0]}")
    columns = decoded.columns
    by_order = sorted(range(len(columns.series)), key=lambda i: series_order(columns.series[i]))
    rank = np.empty(len(by_order), dtype=np.int32)
    rank[by_order] = np.arange(len(by_order), dtype=np.int32)
    readings = Order.of(columns, rank, DAY_MS)
    rows = Rows(
        series=[columns.series[i] for i in by_order],
        row_series=readings.take_of_buckets(rank[columns.bucket_series]),
        time=readings.take(columns.time),
        values={name: readings.take(column) for name, column in columns.values.items()},
        present={name: _there(readings, kinds) for name, kinds in columns.kinds.items()},
    )
    groups = [
        _pack_group(piece, readings.rows(place, piece.time.shape), policy)
        for piece, place in zip(decoded.pieces, decoded.places, strict=True)
    ]
    first_ms = min(columns.time.min(initial=LAST_MS), decoded.last.min())
    return Packed(rows, groups, int(first_ms), int(decoded.last.max()))


def _there(readings: Order, kinds: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """n, row by row: is there a number?"""
    numbers = is_number(kinds)
    return numbers if numbers.all() else readings.take(numbers)  # all are in any order


def _pack_group(piece: Piece, rows: NDArray[np.int64], policy: Policy) -> PackedGroup:
    units = piece.units
    order = piece.group.members if piece.overflow else np.zeros(len(units), dtype=np.int64)
    sequence = np.lexsort((order, units))
    matrix, present, variants = piece.group.matrix, piece.group.present, piece.group.layout.variants
    carried = _carried(piece, policy)
    hole, width = (column.copy() for column in piece.group.layout.holes.T)
    described = np.array([carried.get(at, _KEPT) for at in hole.tolist()], np.int32).reshape(-1, 3)
    source, reading, field = described.T
    kept = source == Source.KEPT
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
    """The flags of n documents, but for that of what is always there: flag by flag."""
    return np.packbits(np.ascontiguousarray(present.T[:-1]), axis=1).tobytes()


def _residue(
    matrix: Bytes2D, hole: NDArray[np.int32], width: NDArray[np.int32], sequence: NDArray[np.int64]
) -> bytes:
    """What these holes hold, byte by byte, of the documents in this sequence."""
    parts = []
    for some in np.split(np.arange(len(hole)), np.flatnonzero(np.diff(width)) + 1):
        if len(some):  # as wide as each other
            held = read_holes(matrix, hole[some].astype(np.int64), f"V{width[some[0]]}")
            parts.append(held[sequence].view(np.uint8).T.tobytes())
    return b"".join(parts)


def _carried(piece: Piece, policy: Policy) -> dict[int, tuple[Source, int, int]]:
    """The holes that the rows carry: offset -> source, reading, field. A hole that is absent holds zeros,
    which a row gives back."""
    cells = [(_TIME_SOURCES, 0, piece.shape.times or [])]
    cells += [(_VALUE_SOURCES, i, piece.shape.values[name]) for i, name in enumerate(policy.value_fields)]
    found: dict[int, tuple[Source, int, int]] = {}
    for sources, field, of_field in cells:
        for kind, readings, elements in by_type(of_field):
            if kind not in sources:
                continue
            source = sources[kind]
            if source in _ALWAYS_EXACT:
                exact = np.ones(len(elements), dtype=np.bool_)
            elif source == Source.VALUE_DOUBLE and piece.group.present is None:
                exact = _exact(piece.values[policy.value_fields[field]][0][:, steps(readings)], source)
            else:
                exact = _exact(piece.group.read(elements, _DTYPES[source]), source)
            found.update(
                (elements[i].hole, (source, readings[i], field)) for i in np.flatnonzero(exact).tolist()
            )
    return found


def _exact(raw: NDArray[Any], source: Source) -> Flags:
    """n × h -> h: whether a row's double (value) or milliseconds (time) give the bits of a hole back, in each
    document."""
    if source == Source.VALUE_DOUBLE:
        # -0.0 and NaN survive in Parquet, but a dictionary may take one NaN, or zero, for another
        same = ~(np.isnan(raw) | (raw.view("<i8") == _MINUS_ZERO))
    elif source == Source.VALUE_INT64:
        same = (raw >= -(2**53)) & (raw <= 2**53)
    else:
        same = (from_seconds(raw) / 1000.0).view("<i8") == raw.view("<i8")
    return np.asarray(same.all(axis=0))


def unpack(
    time: NDArray[np.int64], values: Sequence[NDArray[np.float64]], groups: Sequence[PackedGroup]
) -> Batch:
    """The batch again, as it lay, from rows as read back. `values` are in the order of the policy's value
    fields."""
    main, _ = _unpack_groups(time, values, [group for group in groups if not group.overflow])
    return Batch(main, *_unpack_groups(time, values, [group for group in groups if group.overflow]))


def _unpack_groups(
    time: NDArray[np.int64], values: Sequence[NDArray[np.float64]], groups: Sequence[PackedGroup]
) -> tuple[Docs, NDArray[np.int32]]:
    """The documents by bucket, then in their order, and which bucket each is of."""
    if not groups:
        return Docs.none(), np.zeros(0, dtype=np.int32)
    docs = _side_by_side(groups, time, values)
    units = np.concatenate([group.units for group in groups])
    sequence = np.lexsort((np.concatenate([group.order for group in groups]), units))
    in_order = bool((np.diff(sequence) > 0).all())
    return docs if in_order else docs.take(sequence), units[sequence].astype(np.int32)


def _side_by_side(
    groups: Sequence[PackedGroup], time: NDArray[np.int64], values: Sequence[NDArray[np.float64]]
) -> Docs:
    """The documents of each group, one after another."""
    flags = [_flags(group) for group in groups]
    lengths = [_lengths(group, present) for group, present in zip(groups, flags, strict=True)]
    offsets = np.append(0, np.cumsum(np.concatenate(lengths)))

    def fill(target: NDArray[np.uint8]) -> None:
        for group, present, length in zip(groups, flags, lengths, strict=True):
            size = int(length.sum())
            _put(target[:size], group, present, time, values)
            target = target[size:]

    return Docs(filled(int(offsets[-1]), fill), offsets)


def _flags(group: PackedGroup) -> Flags | None:
    """n × (1 + its flags), the first for what is always there; None where nothing may be absent."""
    if not len(group.flag):
        return None
    bits = np.frombuffer(group.present, dtype=np.uint8).reshape(int(group.flag.max()), -1)
    present = np.ones((len(group.units), len(bits) + 1), dtype=np.bool_)
    present[:, 1:] = np.unpackbits(bits, axis=1, count=len(group.units)).T
    return present


def _lengths(group: PackedGroup, present: Flags | None) -> NDArray[np.int64]:
    """n: of the documents, bytes."""
    if present is None:
        return np.full(len(group.units), len(group.skeleton))
    of_flag = np.bincount(group.flag)  # bytes that each flag tells of
    return np.concatenate([present[slab] @ of_flag for slab in slabs(*present.shape)])


def _put(
    target: NDArray[np.uint8],
    group: PackedGroup,
    present: Flags | None,
    time: NDArray[np.int64],
    values: Sequence[NDArray[np.float64]],
) -> None:
    """All documents of a group into as many bytes as they have; some at a time, which stay in the cache until
    all is filled in."""
    n, skeleton = len(group.units), np.frombuffer(group.skeleton, dtype=np.uint8)
    fill = _filler(group, time, values)
    for slab in slabs(n, len(skeleton)):
        if present is None:
            matrix = target.reshape(n, len(skeleton))[slab]
            matrix[:] = skeleton
            fill(matrix, slab)
        else:
            matrix = np.tile(skeleton, (len(present[slab]), 1))
            fill(matrix, slab)
            held = cut(matrix, present[slab], group.flag)
            target[: len(held)] = held
            target = target[len(held) :]


def _filler(
    group: PackedGroup, time: NDArray[np.int64], values: Sequence[NDArray[np.float64]]
) -> Callable[[Bytes2D, slice], None]:
    """What fills skeletons of some of the documents; those may be of what is absent."""
    whole = group.source == Source.KEPT
    kept = spread(group.hole[whole], group.width[whole])
    residue = np.frombuffer(group.residue, dtype=np.uint8).reshape(len(kept), len(group.units))
    carried = []
    for source, field in set(zip(group.source.tolist(), group.field.tolist(), strict=True)):
        if source != Source.KEPT:
            at = np.flatnonzero((group.source == source) & (group.field == field))
            taken = _taker(group, at, time if source in _TIMES else values[field])
            carried.append((Source(source), group.hole[at].astype(np.int64), taken))

    def fill(matrix: Bytes2D, some: slice) -> None:
        matrix[:, kept] = residue[:, some].T
        for source, holes, taken in carried:
            write_holes(matrix, holes, _as_held(taken(some), source))

    return fill


def _as_held(rows: NDArray[Any], source: Source) -> NDArray[Any]:
    """What rows hold, as a document holds it."""
    if source == Source.TIME_DOUBLE:
        rows = rows / 1000.0
    elif source in (Source.TIME_INT32, Source.TIME_INT64):
        rows = rows // 1000
    with np.errstate(invalid="ignore"):  # no number where nothing is there
        return rows.astype(_DTYPES[source], copy=False)


def _taker(
    group: PackedGroup, at: NDArray[np.int64], column: NDArray[Any]
) -> Callable[[slice], NDArray[Any]]:
    """What the rows of these holes hold: a row for each of some documents."""
    reading = group.reading[at]
    if group.rows.ndim == 2:
        return lambda some: column[group.rows[some][:, reading]]
    following = sliding_window_view(column, group.readings)  # row r: the readings from r on
    step = steps(reading.tolist())
    if (np.diff(group.rows) == group.readings).all():
        one_after_another = following[group.rows[0] : group.rows[-1] + 1 : group.readings, step]
        return lambda some: one_after_another[some]
    return lambda some: following[group.rows[some]][:, step]
