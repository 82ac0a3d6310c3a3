"""Writes readings as documents of another bucket model: to the bit, or reports what can't be carried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from bson import ObjectId
from bson.int64 import Int64
from numpy.typing import NDArray

from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.bson.types import (
    DATE,
    DOUBLE,
    INT32,
    INT64,
    NOTHING,
    STRING,
    TYPE_NAMES,
    decode_value,
)
from bucketwise.buckets.columns import Series
from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.decoding.order import column
from bucketwise.buckets.decoding.soundness import ReadingGroup
from bucketwise.buckets.fields.elapsed import ElapsedForm
from bucketwise.buckets.fields.selectors import extended_json
from bucketwise.buckets.fields.times import DAY_MS, FIRST_MS, LAST_MS, NO_TIME, PER_SECOND
from bucketwise.buckets.layouts.layout import Cell, Group, Layout, Path, by_type
from bucketwise.buckets.models import MODELS, model_of
from bucketwise.buckets.models.model import BucketModel, Document, Operation
from bucketwise.buckets.models.series import SeriesTable
from bucketwise.buckets.models.shape import TargetNames, nested
from bucketwise.buckets.source import Source
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Policy

#: The types of values that every model carries.
CARRIED = (DOUBLE, INT32, INT64)
_DTYPES = {DOUBLE: "<i8", INT32: "<i4", INT64: "<i8"}
_EXAMPLES = 1000
#: All of time, in milliseconds.
EVER = (FIRST_MS, LAST_MS + 1)


@dataclass(frozen=True)
class ExactReadings:
    """n readings. `types` has the BSON type of each value, 0 where there is none."""

    series_index: NDArray[np.int32]  # n: index into the series of a table
    time: NDArray[np.int64]  # n: milliseconds
    bits: dict[str, NDArray[np.int64]]  # value field -> n: those of a double; of an int the int
    types: dict[str, NDArray[np.uint8]]  # value field -> n

    def __len__(self) -> int:
        return len(self.time)

    @classmethod
    def none(cls, names: Sequence[str]) -> ExactReadings:
        """Returns no readings of these value fields."""
        bits = {name: np.zeros(0, dtype=np.int64) for name in names}
        types = {name: np.zeros(0, dtype=np.uint8) for name in names}
        return cls(np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int64), bits, types)

    def take(self, at: NDArray[Any] | slice) -> ExactReadings:
        """Returns these readings, in this order."""
        return ExactReadings(
            self.series_index[at],
            self.time[at],
            {name: it[at] for name, it in self.bits.items()},
            {name: it[at] for name, it in self.types.items()},
        )

    def python(self, name: str) -> list[Any]:
        """Returns the values of a field as pymongo writes them; None where there is none."""
        types = self.types[name]
        doubles: list[Any] = self.bits[name].view(np.float64).tolist()
        if (types == DOUBLE).all():
            return doubles
        ints = self.bits[name].tolist()
        return [
            doubles[i] if kind == DOUBLE else Int64(ints[i]) if kind == INT64 else ints[i] if kind else None
            for i, kind in enumerate(types.tolist())
        ]

    def differing(self, other: ExactReadings) -> int:
        """Returns how many readings differ in series, time, type or bits, one held against one in order; what
        one side has more counts too."""
        n = min(len(self), len(other))
        ours, theirs = self.take(slice(n)), other.take(slice(n))
        wrong = (ours.series_index != theirs.series_index) | (ours.time != theirs.time)
        for name in self.bits:
            wrong |= (ours.bits[name] != theirs.bits[name]) | (ours.types[name] != theirs.types[name])
        return int(wrong.sum()) + max(len(self), len(other)) - n


def joined(parts: Sequence[ExactReadings]) -> ExactReadings:
    """Returns the readings of all parts, one part after another; at least one part."""
    return ExactReadings(
        np.concatenate([it.series_index for it in parts]),
        np.concatenate([it.time for it in parts]),
        {name: np.concatenate([it.bits[name] for it in parts]) for name in parts[0].bits},
        {name: np.concatenate([it.types[name] for it in parts]) for name in parts[0].types},
    )


@dataclass
class Losses:
    """What no target model can hold, or what this one cannot."""

    fields: Counter[str] = field(default_factory=Counter)  # that no reading has -> documents
    readings: Counter[str] = field(default_factory=Counter)  # what is wrong with them -> how many
    broken: dict[str, str] = field(default_factory=dict)  # `_id` of a bucket that breaks its model -> how

    def add(self, other: Losses) -> None:
        """Takes in what was found elsewhere."""
        self.fields += other.fields
        self.readings += other.readings
        room = max(0, _EXAMPLES - len(self.broken))
        self.broken |= dict(list(other.broken.items())[:room])

    def by_reason(self) -> dict[str, int]:
        """Returns what keeps readings from being written: what it is, and how many there are."""
        found = dict(+self.readings)
        for name, reason in list(self.broken.items())[:1]:
            found[f"buckets that break their model, such as {name}: {reason}"] = len(self.broken)
        return found


def exact_of(
    batch: Batch, policy: Policy, table: SeriesTable, losses: Losses, span: tuple[int, int] = EVER
) -> tuple[ExactReadings, NDArray[np.bytes_]]:
    """Returns the readings of sound buckets that lie in the span, in the order of their `_id`s, and of each
    what sorts as that `_id` does; `table` gets their series. Notes in `losses` what can't be carried: fields
    of the buckets that begin in the span."""
    decoded = decode(batch, policy, cut_from=None)
    columns, total = decoded.columns, len(decoded.columns.time)
    for bucket in decoded.quarantined:
        losses.broken[extended_json(bucket.id)] = f"{bucket.field}: {bucket.reason}"
    index = np.array([table.index(it) for it in columns.series] or [0], dtype=np.int32)
    bits: dict[str, NDArray[np.int64]] = {}
    types: dict[str, NDArray[np.uint8]] = {}
    for name in policy.value_names:
        read = [_read_bits(it.group, it.shape.values[name]) for it in decoded.pieces]
        bits[name] = column([it[0] for it in read], decoded.places, total, np.int64)
        types[name] = column([it[1] for it in read], decoded.places, total, np.uint8)
    first = np.full(len(batch), span[0])
    first[decoded.units] = decoded.spans()[:, 0]
    begins = (first >= span[0]) & (first < span[1])
    for piece in decoded.pieces:
        _note(piece, policy, losses, int(begins[piece.units].sum()), span)
    inside = np.flatnonzero((columns.time >= span[0]) & (columns.time < span[1]))
    exact = ExactReadings(index[columns.series_of_readings], columns.time, bits, types).take(inside)
    for name, held in exact.types.items():
        for kind in np.unique(held).tolist():
            if kind and kind not in CARRIED:
                what = f"readings whose {name} is {TYPE_NAMES[kind]}"
                losses.readings[what] += int((held == kind).sum())
    return exact, columns.bucket_order[columns.bucket[inside]]


def _read_bits(group: Group, cells: Sequence[Cell]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    shape = (len(group.matrix), len(cells))
    bits, types = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.uint8)
    for kind, at, elements in by_type(cells):
        if kind in CARRIED:
            group.put(bits, at, group.read(elements, _DTYPES[kind]).astype(np.int64, copy=False), elements)
        group.put(types, at, np.array(kind, dtype=np.uint8), elements)
    return bits, types


def _note(piece: ReadingGroup, policy: Policy, losses: Losses, buckets: int, span: tuple[int, int]) -> None:
    for name in set(_unused(piece.group.layout, policy, piece.overflow)) if buckets else ():
        losses.fields[name] += buckets
    if piece.shape.times is not None and not piece.shape.form.is_date:
        finer = sum(_finer(piece, span))
        if finer:
            losses.readings["readings whose time is finer than a millisecond"] += finer


def _finer(piece: ReadingGroup, span: tuple[int, int]) -> Iterator[int]:
    """Yields how many times in the span say more than milliseconds do, type by type."""
    group, form = piece.group, piece.shape.form
    if isinstance(form, ElapsedForm):
        yield form.inexact(group, piece.shape.times or ())
        return
    times = form.read(group, piece.shape.times or ())
    times[(times < span[0]) | (times >= span[1])] = NO_TIME
    for kind, at, elements in by_type(piece.shape.times or ()):
        here = np.zeros((len(times), len(at)), dtype=np.bool_)
        group.put(here, list(range(len(at))), np.array(True), elements)
        ms = np.where(here, times[:, at], NO_TIME)  # where a time is of this type
        if kind == STRING:
            for place, element in enumerate(elements):
                for row in np.flatnonzero(ms[:, place] != NO_TIME).tolist():
                    text = decode_value(STRING, group.raw(row, element))
                    yield form.finer(text, int(ms[row, place])) != 0
        elif form.unit is not None and kind != DATE:
            per = PER_SECOND[form.unit]
            if kind == DOUBLE:
                exact = group.read(elements, "<f8") == ms * float(per) / 1000.0
            else:
                raw = group.read(elements, _DTYPES[kind]).astype(np.int64)
                exact = (raw == ms * (per // 1000)) if per >= 1000 else (raw * 1000 == ms)
            yield int((~exact & (ms != NO_TIME)).sum())


def _unused(layout: Layout, policy: Policy, is_overflow: bool) -> Iterator[str]:
    """Yields the fields of a layout that hold nothing of a reading: an outer one stands for all inside."""
    model = model_of(policy)
    used = model.overflow_paths if is_overflow else model.used_paths
    if policy.local_offset_field is not None and not is_overflow:
        yield policy.local_offset_field
    found: set[Path] = set()
    for element in layout.elements:
        path = tuple("*" if depth and name.isdigit() else name for depth, name in enumerate(element.path))
        if element.type in NOTHING and element.path in model.telling_nulls:
            yield f"{'.'.join(path)} (null)"
        if path in ((), ("_id",)) or path[:-1] in found or any(_meets(path, other) for other in used):
            if path[:-1] in found:
                found.add(path)
            continue
        found.add(path)
        yield ".".join(path)
    yield from _attributes(layout, policy)
    yield from model.surplus(layout)


def _attributes(layout: Layout, policy: Policy) -> Iterator[str]:
    if (attributes := model_of(policy).attributes) is None:
        return
    array, key = attributes
    for element in layout.elements:
        is_name = (
            element.type == STRING
            and element.path[: len(array)] == array
            and element.path[len(array) + 1 :] == key
        )
        if is_name and layout.text(element) not in policy.value_fields:
            yield f"{'.'.join(array)}: {layout.text(element)}"


def _meets(path: Path, other: Path) -> bool:
    """Returns whether one of the two is the other, or leads to it."""
    return all(ours == theirs or theirs == "*" for ours, theirs in zip(path, other, strict=False))


#: Targets by name, in the order in which they are shown.
TARGETS = tuple(name for model in MODELS for name in model.targets)
ALIASES = {alias: name for model in MODELS for alias, name in model.target_aliases.items()}
#: Documents and readings in memory at once as Python's objects, to be written.
AT_ONCE, _READINGS = 2_000, 100_000


@dataclass(frozen=True)
class Target:
    """A model with its size, and the policy that reads what is written in it."""

    name: str
    policy: Policy
    size: int = 0  # samples a bucket

    @property
    def model(self) -> BucketModel[Any]:
        """Returns the bucket model of what is written."""
        return model_of(self.policy)

    @property
    def options(self) -> Document:
        """Returns how the collection is made."""
        return self.model.made_with("seconds")

    @property
    def write_batch_size(self) -> int:
        """Returns how many documents are written before the progress is recorded."""
        return max(1, min(AT_ONCE, _READINGS // (self.size or self.model.written_at_once)))


def target_named(text: str) -> str | None:
    """Returns the target that a person means; None where there is no such one."""
    name = ALIASES.get(text, text)
    return name if any(model.has_target(name) for model in MODELS) else None


def target_of(name: str, policy: Policy, collection: str, *, is_whole_minutes: bool) -> Target:
    """Returns the target of this name for the readings of a policy. `is_whole_minutes`: whether all of them
    lie on whole minutes."""
    model = next(it for it in MODELS if it.has_target(name))
    names = TargetNames.of(policy, model_of(policy).time_field)
    keys: Document = {"name": policy.name, "collection": collection, "model": model.name}
    keys |= {"series_fields": names.series, "value_fields": names.values}
    keys |= model.target_keys(name, names, is_whole_minutes=is_whole_minutes)
    return Target(name, make_policy(**keys), model.target_size(name))


def misfits(target: Target, exact: ExactReadings) -> Iterator[tuple[str, int]]:
    """Yields what the model has no place for, and how many readings have it. `exact`: by series, then
    time."""
    is_empty = np.ones(len(exact), dtype=np.bool_)
    for types in exact.types.values():
        is_empty &= types == 0
    return target.model.misfits(exact.series_index, exact.time, is_empty)


def in_order(exact: ExactReadings) -> ExactReadings:
    """Returns readings by series, then time; where those tie, as they come."""
    return exact.take(np.lexsort((exact.time, exact.series_index)))


@dataclass
class DocumentWriter:
    """Makes documents of readings that come a stretch of time after another; the same ones each time.

    Buckets stay open until they are full, or until their span is over: of each series at most one, whatever
    was given. `_id`s are ObjectIds of the first time in each document, and ascend as readings do."""

    target: Target
    series: Sequence[Series]  # may grow
    made: int = 0  # documents
    _open: list[ExactReadings] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._model = self.target.model

    def add(self, exact: ExactReadings, end_ms: int | None) -> Iterator[Document]:
        """Yields the documents that are full by then. `end_ms`: all readings before it were given; None: that
        was all, and open buckets are closed."""
        readings = in_order(joined([*self._open, exact]))
        closed = np.ones(len(readings), dtype=np.bool_)
        if end_ms is not None:
            closed = self._model.closed(readings.series_index, readings.time, self.target.size, end_ms)
        self._open = [readings.take(~closed)]
        yield from self._documents(readings.take(closed))

    def _documents(self, exact: ExactReadings) -> Iterator[Document]:
        begins = self._model.begins(exact.series_index, exact.time, self.target.size)
        edges = np.append(np.flatnonzero(begins), len(exact))
        values = {name: exact.python(name) for name in exact.bits}
        times, series = exact.time.tolist(), exact.series_index.tolist()
        for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            self.made += 1
            body = self._model.document(
                times[start:end], {name: it[start:end] for name, it in values.items()}
            )
            identity = {"_id": _identity(times[start], self.made)}
            yield nested({**identity, **_series(self.target, self.series[series[start]]), **body})


def updates(target: Target, series: Sequence[Series], exact: ExactReadings) -> Iterator[Operation]:
    """Yields the writes of an application as readings come in, in the order of time: an insert for each
    reading, or an update of its bucket."""
    writer, model = DocumentWriter(target, series), target.model
    for i in np.argsort(exact.time, kind="stable").tolist():
        one = exact.take(slice(i, i + 1))
        (document,) = writer.add(one, None)
        values = {name: one.python(name)[0] for name in one.bits}
        of_series = _series(target, series[int(one.series_index[0])])
        yield model.written(document, of_series, int(one.time[0]), values, target.size)


def _series(target: Target, series: Series) -> Document:
    return dict(zip(target.policy.series_fields, series, strict=True))


def _identity(ms: int, number: int) -> ObjectId:
    seconds = min(max(ms // 1000, 0), 0xFFFFFFFF)
    return ObjectId(seconds.to_bytes(4, "big") + number.to_bytes(8, "big"))


#: Readings of a stretch, unless they share a millisecond.
AT_MOST = 250_000
_LONGEST = 32 * DAY_MS


class Stretch(NamedTuple):
    """The readings of [start, end) in milliseconds, by series, then time, then `_id`."""

    start: int
    end: int
    exact: ExactReadings


def stretches(
    source: Source,
    table: SeriesTable,
    losses: Losses,
    check: Callable[[], None],
    at_most: int = AT_MOST,
) -> Iterator[Stretch]:
    """Yields stretches of the source in the order of time; none is empty, and they are always the same for
    the same documents. `check` is called before each, and raises where to stop."""
    length, at = DAY_MS, source.earliest(FIRST_MS)
    last = None if source.model.tells_last else source.latest()  # text that doesn't sort may lie anywhere
    while at is not None and at <= (LAST_MS if last is None else last):
        check()
        end = min((at // length + 1) * length, LAST_MS + 1)
        exact = readings_in(source, at, end, table, losses, at_most if length > 1 else None)
        if exact is None:
            length = max(1, length // 8)
            continue
        if len(exact):
            yield Stretch(at, end, exact)
        at = end if len(exact) else source.earliest(end)
        if len(exact) < at_most // 8:
            length = min(length * 2, _LONGEST)


def readings_in(
    source: Source, start: int, end: int, table: SeriesTable, losses: Losses, at_most: int | None = None
) -> ExactReadings | None:
    """Returns the readings of [start, end); None where these are more than `at_most`."""
    parts: list[ExactReadings] = []
    orders: list[np.ndarray[tuple[int], np.dtype[np.bytes_]]] = []
    count, found = 0, Losses()
    for batch in source.batches(start, end):
        exact, order = exact_of(batch, source.policy, table, found, (start, end))
        parts.append(exact)
        orders.append(order)
        count += len(exact)
        if at_most is not None and count > at_most:
            return None
    losses.add(found)
    if not parts:
        return ExactReadings.none(source.policy.value_names)
    whole = joined(parts)
    return in_order(whole.take(np.argsort(np.concatenate(orders), kind="stable")))
