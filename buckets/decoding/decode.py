"""Documents → columns, for every bucket model. Buckets that break their model are set apart, with the
reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.columns import Columns, Quarantined, StateColumn
from bucketwise.buckets.decoding.cut import LONG, CutBucket, cut_buckets, groups_of
from bucketwise.buckets.decoding.local import local_times
from bucketwise.buckets.decoding.order import RowPlaces, column, place
from bucketwise.buckets.decoding.soundness import (
    BucketSpans,
    Faults,
    Plausible,
    ReadingGroup,
    check_times,
    check_totals,
    check_values,
)
from bucketwise.buckets.fields.ids import sort_keys, unnameable
from bucketwise.buckets.fields.times import NO_TIME
from bucketwise.buckets.fields.values import read_states, read_values, wordings
from bucketwise.buckets.layouts.groups import Unions, group_by_layout
from bucketwise.buckets.layouts.layout import Group
from bucketwise.buckets.models import model_of
from bucketwise.buckets.models.overflow import flagged
from bucketwise.buckets.models.series import SeriesTable
from bucketwise.buckets.models.shape import Breach, Shape
from bucketwise.buckets.phases import phase
from bucketwise.config.policies import Policy

#: A layout takes about 6 kB while it is worked on, each of its elements almost one; a reading some 150 bytes.
_CELLS_OF_LAYOUT, _CELLS_OF_ELEMENT = 40, 6


@dataclass(frozen=True)
class Decoded:
    """A batch in columns. Only sound buckets are in `columns`: b of them, of the batch's."""

    columns: Columns
    units: NDArray[np.int64]  # b: each bucket's index in the batch
    last: NDArray[np.int64]  # b: time of its last reading; of its own last time where it holds none
    quarantined: list[Quarantined]
    pieces: list[ReadingGroup]
    places: list[RowPlaces]  # of each piece: where its readings stand in the columns

    def spans(self) -> NDArray[np.int64]:
        """Returns the times of each bucket's first and last reading, (b, 2), milliseconds; twice its own last
        time where it holds none."""
        first = self.last.copy()
        first[self.columns.filled] = self.columns.of_filled(np.minimum)
        return np.column_stack([first, self.last])

    def ends_of_empty(self) -> NDArray[np.int64]:
        """Returns the own last times of the buckets that hold no reading, milliseconds."""
        return np.delete(self.last, self.columns.filled)

    def touching(self, start_ms: int, end_ms: int) -> NDArray[np.bool_]:
        """Returns which buckets have a reading in [start, end), (b,). A bucket without readings counts by its
        last time."""
        times, buckets = self.columns.time, self.columns.bucket
        hit = np.zeros(len(self.units), dtype=np.bool_)
        hit[buckets[(times >= start_ms) & (times < end_ms)]] = True
        hit |= (self.last >= start_ms) & (self.last < end_ms)
        return hit


@dataclass
class BucketSet:
    """Buckets of a policy that are handled together. They are decoded when first needed."""

    batch: Batch
    policy: Policy
    plausible: Plausible | None = None  # of live buckets; None: any time

    def __len__(self) -> int:
        return len(self.batch)

    @cached_property
    def decoded(self) -> Decoded:
        """Returns the buckets as columns; decodes them when first asked."""
        return decode(self.batch, self.policy, plausible=self.plausible)

    @property
    def readings(self) -> int:
        """Returns how many readings the sound buckets hold."""
        return len(self.decoded.columns.time)

    @property
    def cells(self) -> int:
        """Returns the memory that the columns take, as a number of readings of one value. Includes
        three quarters of the space that unions reserve for readings, one reading for each document, and
        layouts that only one bucket has."""
        pieces = self.decoded.pieces
        room = sum(piece.time.size for piece in pieces if piece.present is not None)
        alone = [len(piece.group.layout.elements) for piece in pieces if len(piece.units) == 1]
        alone += [2 * len(piece.units) for piece in pieces if piece.places is not None]  # once it is packed
        layouts = sum(_CELLS_OF_LAYOUT + _CELLS_OF_ELEMENT * size for size in alone)
        return cells_of(self.readings + room * 3 // 4, len(self.batch), self.policy) + layouts

    @property
    def whole(self) -> Decoded:
        """Returns the buckets as columns, with each in one piece, as it is packed."""
        if any(piece.places is not None for piece in self.decoded.pieces):
            self.__dict__["decoded"] = decode(
                self.batch, self.policy, plausible=self.plausible, cut_from=None
            )
        return self.decoded

    def forget(self) -> None:
        """Frees the columns. They are decoded again when next asked for."""
        self.__dict__.pop("decoded", None)

    def take(self, indices: Sequence[int] | NDArray[np.integer]) -> BucketSet:
        """Returns these buckets, in this order."""
        batch = self.batch.take(indices)
        return self if batch is self.batch else replace(self, batch=batch)

    @classmethod
    def concat(cls, sets: Sequence[BucketSet]) -> BucketSet:
        """Joins sets of one policy, at least one."""
        return sets[0] if len(sets) == 1 else replace(sets[0], batch=Batch.concat([it.batch for it in sets]))


def cells_of(readings: int, buckets: int, policy: Policy) -> int:
    """Returns `BucketSet.cells` of regular buckets."""
    numbers = 1 + len(policy.value_fields)  # of each reading, with its time
    return readings * numbers // 2 + buckets


@phase("decode")
def decode(
    batch: Batch,
    policy: Policy,
    unions: Unions | None = None,
    plausible: Plausible | None = None,
    cut_from: int | None = LONG,
) -> Decoded:
    """Returns all readings of a batch, in the order that `Columns` promises. `unions` that fitted before are
    tried first; what is decoded with them can't be packed. `plausible`: the times that live buckets may
    have. `cut_from`: see `cut_buckets`; a bucket that was cut up can't be packed either."""
    faults, model = Faults(len(batch)), model_of(policy)
    cuts = cut_buckets(batch, policy, cut_from)
    table = SeriesTable()
    series = np.zeros(len(batch), dtype=np.int32)
    span = BucketSpans.unknown(len(batch))
    keys: list[tuple[NDArray[np.int64], NDArray[np.bytes_]]] = []
    pieces: list[ReadingGroup] = []
    lacks_overflow = np.zeros(len(batch), dtype=np.bool_)
    without_id: set[int] = set()
    for group, cut in groups_of(batch.main, policy, unions, cuts):
        keys.append((group.members, _named(group, faults, without_id)))
        try:
            lacks_overflow[group.members] = flagged(group, policy)
            shape = model.shape(group.layout)
            series[group.members], breaches = table.of_group(group, policy)
            samples = [] if cut is None else _samples(cut, group, shape, policy)
        except Breach as breach:
            faults.add(group.members, breach.field, breach.reason)
            continue
        for row, row_breach in breaches.items():
            faults.add(group.members[row : row + 1], row_breach.field, row_breach.reason)
        times = shape.read_times(group)
        span.fill(group, shape, times if cut is None else _joined(samples, cut.samples), faults)
        times = shape.after(span.first[group.members]) if times is None else times
        pieces += [_piece(group, shape, group.members, times, policy, overflow=False), *samples]
    lacks_overflow[batch.owner] = False
    pieces += _overflow(batch, lacks_overflow, span, policy, faults, unions)
    of_readings = _series_of_readings(table, pieces, series, policy, faults)
    _check(pieces, span, policy, plausible, faults)
    local = local_times(pieces, policy, faults)
    if not cuts.keys().isdisjoint(faults.reasons):  # a fault is named by its place in the whole
        return decode(batch, policy, unions, plausible, cut_from=None)
    quarantined = _quarantined(batch, faults, span, without_id)
    buckets = _Buckets(table, series, span, _by_bucket(keys, len(batch)))
    decoded = _assemble(buckets, pieces, policy, faults, quarantined)
    if of_readings is not None:
        decoded = _with_series(decoded, of_readings)
    return decoded if local is None else _with_local(decoded, local)


def decode_live(
    batch: Batch,
    policy: Policy,
    restored: Callable[[Batch], list[int]],
    plausible: Plausible | None,
    unions: Unions | None = None,
) -> Iterator[Decoded]:
    """Yields the columns of live buckets, in one or two parts: those that `restored` names were archived
    before, and may have any time."""
    decoded = decode(batch, policy, unions, plausible)
    again = restored_among(batch, decoded, restored)
    if not len(again):
        yield decoded
        return
    yield decode(batch.take(np.setdiff1d(np.arange(len(batch)), again)), policy, unions, plausible)
    yield decode(batch.take(again), policy, unions)


def restored_among(
    batch: Batch, decoded: Decoded, restored: Callable[[Batch], list[int]]
) -> NDArray[np.int64]:
    """Returns which of the buckets of a batch that break their model, or are not plausible, are restored
    ones."""
    broken = np.setdiff1d(np.arange(len(batch)), decoded.units)
    return broken[restored(batch.take(broken))] if len(broken) else broken


def _series_of_readings(
    table: SeriesTable,
    pieces: list[ReadingGroup],
    shared: NDArray[np.int32],
    policy: Policy,
    faults: Faults,
) -> list[NDArray[np.int32]] | None:
    """Returns the series of each piece's readings, (n, k); None where each bucket is of one series."""
    if not policy.sample_series:
        return None
    found = []
    for piece in pieces:
        series = np.zeros(piece.time.shape, dtype=np.int32)
        breaches: dict[int, Breach] = {}
        try:
            series, breaches = table.of_readings(
                piece.group, piece.shape, piece.present, shared[piece.units], policy
            )
        except Breach as breach:
            faults.add(piece.units, breach.field, breach.reason)
        for row, row_breach in breaches.items():
            faults.add(piece.units[row : row + 1], row_breach.field, row_breach.reason)
        found.append(series)
    return found


def _overflow(
    batch: Batch,
    lacks_overflow: NDArray[np.bool_],
    span: BucketSpans,
    policy: Policy,
    faults: Faults,
    unions: Unions | None,
) -> list[ReadingGroup]:
    if policy.overflow is None:
        return []
    target, model = policy.overflow.collection, model_of(policy)
    missing = f"says that there is overflow, but no document of {target} refers to this bucket"
    faults.add(np.flatnonzero(lacks_overflow), policy.overflow.flag_field, missing)
    pieces = []
    for group in group_by_layout(batch.extra, model.overflow_union_rules, unions):
        units = batch.owner[group.members].astype(np.int64)
        rows, reason = unnameable(group, group.layout.get(("_id",)))
        faults.add(units[rows], f"{target}: _id", reason)
        try:
            shape = model.overflow_shape(group.layout)
        except Breach as breach:
            faults.add(units, f"{target}: {breach.field}", breach.reason)
        else:
            times = shape.read_times(group)
            times = shape.after(span.first[units]) if times is None else times
            pieces.append(_piece(group, shape, units, times, policy, overflow=True))
    return pieces


def _piece(
    group: Group,
    shape: Shape,
    units: NDArray[np.int64],
    times: NDArray[np.int64],
    policy: Policy,
    *,
    overflow: bool,
) -> ReadingGroup:
    worded = wordings(policy)
    values = {name: read_values(group, shape.values[name], worded.get(name)) for name in policy.value_names}
    states = {name: read_states(group, shape.values[name], *values[name]) for name in policy.text_states}
    present = shape.present(group)
    return ReadingGroup(group, shape, units, overflow, times, values, present, states=states)


def _named(group: Group, faults: Faults, without_id: set[int]) -> NDArray[np.bytes_]:
    """Returns the `_id`s of documents as bytes that sort as BSON sorts them."""
    identity = group.layout.get(("_id",))
    rows, reason = unnameable(group, identity)
    faults.add(group.members[rows], "_id", reason)
    without_id.update(group.members[rows].tolist())
    return sort_keys(group, identity)


def _samples(cut: CutBucket, group: Group, shape: Shape, policy: Policy) -> list[ReadingGroup]:
    """Returns the samples of a bucket that is cut up. Raises Breach."""
    model, starts = model_of(policy), shape.starts(group)
    found = []
    for part in cut.groups():
        inner = model.overflow_shape(part.layout)
        count = len(part.members)
        times = inner.read_counted(part, None if starts is None else np.repeat(starts, count))
        units = np.repeat(group.members, count)
        piece = _piece(part, inner, units, times, policy, overflow=False)
        found.append(piece._replace(places=part.members))
    return found


def _joined(samples: list[ReadingGroup], count: int) -> NDArray[np.int64]:
    """Returns the times of all samples of a bucket, (1, count)."""
    times = np.empty((1, count), dtype=np.int64)
    for piece in samples:
        times[0, piece.places] = piece.time[:, 0]
    return times


def _check(
    pieces: list[ReadingGroup],
    span: BucketSpans,
    policy: Policy,
    plausible: Plausible | None,
    faults: Faults,
) -> None:
    for piece in pieces:
        check_times(piece, span, policy, faults)
        check_values(piece, policy, faults)
        if plausible is not None:
            plausible.check(piece, faults)
    check_totals(pieces, faults)


def _by_bucket(keys: list[tuple[NDArray[np.int64], NDArray[np.bytes_]]], size: int) -> NDArray[np.bytes_]:
    width = max((values.dtype.itemsize for _, values in keys), default=1)
    joined = np.zeros(size, dtype=f"S{width}")
    for members, values in keys:
        joined[members] = values
    return joined


class _Buckets(NamedTuple):
    """What is known of each bucket of a batch: the place of its series in a table, its span, its key."""

    table: SeriesTable
    series: NDArray[np.int32]
    span: BucketSpans
    keys: NDArray[np.bytes_]


def _assemble(
    buckets: _Buckets,
    pieces: list[ReadingGroup],
    policy: Policy,
    faults: Faults,
    quarantined: list[Quarantined],
) -> Decoded:
    """Returns sound buckets in `_id` order; readings in bucket order, the bucket's own before its
    overflow's."""
    sound, keys = np.flatnonzero(faults.sound), buckets.keys
    units = sound[np.argsort(keys[sound], kind="stable")]
    rank = np.full(len(keys), -1, dtype=np.int64)
    rank[units] = np.arange(len(units))
    places, starts = place(pieces, rank, len(units))
    total = int(starts[-1])
    time = column([piece.time for piece in pieces], places, total, np.int64)
    values, kinds = {}, {}
    for name in policy.value_names:
        values[name] = column([piece.values[name][0] for piece in pieces], places, total, np.float64)
        kinds[name] = column([piece.values[name][1] for piece in pieces], places, total, np.uint8)
    states = {}
    for name in policy.text_states:
        codes, names = StateColumn.together([piece.states[name] for piece in pieces])
        states[name] = StateColumn(column(codes, places, total, np.int32), names)
    columns = Columns(
        buckets.table.series, buckets.series[units], keys[units], starts, time, values, kinds, states=states
    )
    last = buckets.span.last[units]
    last[columns.filled] = columns.of_filled(np.maximum)
    return Decoded(columns, units, last, quarantined, [_without_columns(piece) for piece in pieces], places)


def _without_columns(piece: ReadingGroup) -> ReadingGroup:
    """Returns the piece without what is in the columns again of a union; for other pieces the columns mostly
    are the same memory."""
    piece = piece._replace(states={})
    if piece.present is None:
        return piece
    return piece._replace(time=np.broadcast_to(np.int64(NO_TIME), piece.time.shape), values={})


def _with_series(decoded: Decoded, series: list[NDArray[np.int32]]) -> Decoded:
    own = column(series, decoded.places, len(decoded.columns.time), np.int32)
    none = np.zeros_like(decoded.columns.bucket_series)
    return replace(decoded, columns=replace(decoded.columns, reading_series=own, bucket_series=none))


def _with_local(decoded: Decoded, times: list[NDArray[np.int64]]) -> Decoded:
    local = column(times, decoded.places, len(decoded.columns.time), np.int64)
    return replace(decoded, columns=replace(decoded.columns, local=local))


def _quarantined(batch: Batch, faults: Faults, span: BucketSpans, without_id: set[int]) -> list[Quarantined]:
    found = []
    for unit, (field, reason) in sorted(faults.reasons.items()):
        first, last = int(span.first[unit]), int(span.last[unit])
        times = (first, last) if unit in without_id and NO_TIME not in (first, last) else None
        found.append(
            Quarantined(batch.main.legible_id(unit), field, reason, times, batch.main.decode_id(unit))
        )
    return found
