"""Reads the readings of documents by time and series, so that versions of a bucket can be compared, and lays
one document over another.

Values are copied as they are, with their types and bits. Where a policy has slots, these are laid over one by
one, at any depth, and a null slot does not hide one that is not.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from bson.decimal128 import Decimal128

from bucketwise.buckets.bson.raw import Batch, Docs, as_queried
from bucketwise.buckets.bson.types import (
    ARRAY,
    DECIMAL128,
    DOCUMENT,
    DOUBLE,
    INT32,
    INT64,
    NOTHING,
    NULL,
    STRING,
    elements,
    first_at,
)
from bucketwise.buckets.columns import ValueKind
from bucketwise.buckets.decoding.decode import Decoded, decode
from bucketwise.buckets.fields.ids import sort_key
from bucketwise.buckets.fields.values import rounded_sum
from bucketwise.buckets.layouts.layout import Path
from bucketwise.buckets.models import model_of
from bucketwise.buckets.models.series import series_key
from bucketwise.buckets.models.shape import split
from bucketwise.buckets.models.slot_times import SlotLevel
from bucketwise.config.policies import Policy

#: A value with its type in front, as `first_at` gives it.
Typed = bytes
#: What is one sample in each of its arrays; mostly there is one.
Sample = tuple[Typed, ...]
#: What slots may lie in.
NESTED = (DOCUMENT, ARRAY)
_INT = struct.Struct("<i")


class Unmergeable(Exception):
    """Two versions of a bucket can't be made one."""


def fields_of(document: bytes) -> dict[str, Typed]:
    """Returns the top-level fields of a document, by name. Raises Unmergeable where a name appears twice."""
    found: dict[str, Typed] = {}
    for start, value, end in elements(document):
        name = document[start + 1 : value - 1].decode("utf-8", "surrogateescape")
        if name in found:
            raise Unmergeable(f"the field {name} appears twice")
        found[name] = document[start : start + 1] + document[value:end]
    return found


def document_of(fields: dict[str, Typed]) -> bytes:
    """Returns the document with these fields, in this order."""
    parts = [
        b"%c%b\0%b" % (value[0], name.encode("utf-8", "surrogateescape"), value[1:])
        for name, value in fields.items()
    ]
    return _INT.pack(sum(map(len, parts)) + 5) + b"".join(parts) + b"\0"


def array_of(values: Sequence[Typed]) -> bytes:
    """Returns the array of these values."""
    return document_of({str(place): value for place, value in enumerate(values)})


def samples_of(document: bytes, arrays: Sequence[Path]) -> list[Sample]:
    """Returns what arrays side by side hold at each place of the first; null where one is none."""
    columns = []
    for path in arrays:
        held = first_at(document, path)
        if held[:1] == bytes([ARRAY]):
            body = held[1:]
            columns.append([body[at : at + 1] + body[value:end] for at, value, end in elements(body)])
        else:
            columns.append([bytes([NULL])] * len(columns[0]) if columns else [])
    return list(zip(*columns, strict=True))


def with_field(document: bytes, path: Path, value: Typed) -> bytes:
    """Returns the document with another value at a path. Raises Unmergeable where its parent is missing."""
    fields = fields_of(document)
    if len(path) > 1:
        parent = fields.get(path[0], b"\0")
        if parent[0] != DOCUMENT:
            raise Unmergeable(f"there is no sub-document {path[0]} for {'.'.join(path)}")
        value = parent[:1] + with_field(parent[1:], path[1:], value)
    return document_of({**fields, path[0]: value})


@dataclass(frozen=True)
class Overlay:
    """How the versions of one policy's buckets are merged: one laid over another."""

    slots: frozenset[Path]  # what holds slots
    levels: tuple[SlotLevel, ...]  # as they lie inside each other
    ancestors: frozenset[Path]  # what holds that, or samples: null does not hide it

    @classmethod
    def of(cls, policy: Policy) -> Overlay:
        """Returns how buckets of the policy's model are laid over one another."""
        model = model_of(policy)
        ancestors = {path[:depth] for path in model.holders for depth in range(1, len(path) + 1)}
        return cls(frozenset(model.slot_holders), tuple(model.levels), frozenset(ancestors))

    def lay(self, older: bytes, newer: bytes, at: Path = ()) -> bytes:
        """Returns the newer document laid over the older one. Its `_id` is the newer one's, and so are arrays
        outside slots."""
        found = fields_of(older)
        for name, value in fields_of(newer).items():
            found[name] = self._field(found[name], value, (*at, name)) if name in found else value
        return document_of(found)

    def _field(self, older: Typed, newer: Typed, path: Path) -> Typed:
        if path in self.slots:
            return lay_slots(older, newer, self.levels)
        if path in self.ancestors and newer[0] in NOTHING:
            return older
        if path != ("_id",) and older[0] == newer[0] == DOCUMENT:
            return newer[:1] + self.lay(older[1:], newer[1:], path)
        return newer


def lay_slots(older: Typed, newer: Typed, levels: Sequence[SlotLevel], before: int = 0) -> Typed:
    """Returns slots laid over slots, on these levels, and what they hold over what is there. What is an array
    in one version and a sub-document in the other becomes a sub-document. "7" and "07" are one slot.
    `before`: milliseconds of the bucket before these slots."""
    if newer[0] in NOTHING:
        return older
    if older[0] not in NESTED or newer[0] not in NESTED or (not levels and ARRAY in (older[0], newer[0])):
        return newer
    kind = ARRAY if older[0] == newer[0] == ARRAY else DOCUMENT
    if not levels:
        return _laid(older, newer, kind)
    level, *inner = levels
    lower, upper = (SlotsIn.of(it, level, before, kind) for it in (older, newer))
    found, known = dict(lower.fields), {place: name for name, place in lower.places.items()}
    for name, value in upper.fields.items():
        place = upper.places[name]
        name = known.get(place, name)
        at = before + (place * level.length if isinstance(place, int) else 0)
        found[name] = lay_slots(found[name], value, inner, at) if name in found else value
    return bytes([kind]) + document_of(found)


def _laid(older: Typed, newer: Typed, kind: int) -> Typed:
    found = fields_of(older[1:])
    for name, value in fields_of(newer[1:]).items():
        found[name] = lay_slots(found[name], value, ()) if name in found else value
    return bytes([kind]) + document_of(found)


class SlotsIn(NamedTuple):
    """Slots by their names, and which each name stands for: its place, or the name itself where it is
    none."""

    fields: dict[str, Typed]
    places: dict[str, int | str]

    @classmethod
    def of(cls, held: Typed, level: SlotLevel, before_ms: int, kind: int = DOCUMENT) -> SlotsIn:
        """Returns the slots of an array or a sub-document; `kind`: by the names that they have in one of
        this type."""
        fields, before = fields_of(held[1:]), before_ms // level.length
        if held[0] == kind == ARRAY:
            return cls(fields, {name: int(name) for name in fields})
        if held[0] == ARRAY:
            fields = {level.key(place, before): value for place, value in enumerate(fields.values())}
        found = {name: level.place(name, before) for name in fields}
        return cls(fields, {name: name if place is None else place for name, place in found.items()})


def number(kind: int, value: float) -> Typed:
    """Returns a number as BSON of this type, or of the next one that can hold it."""
    if kind == INT32 and value.is_integer() and -(2**31) <= value < 2**31:
        return bytes([INT32]) + _INT.pack(int(value))
    if kind in (INT32, INT64) and value.is_integer() and -(2**63) <= value < 2**63:
        return bytes([INT64]) + struct.pack("<q", int(value))
    if kind == DECIMAL128:
        return bytes([DECIMAL128]) + Decimal128(repr(value)).bid
    return bytes([DOUBLE]) + struct.pack("<d", value)


def text(value: str) -> Typed:
    """Returns a string as BSON."""
    raw = value.encode() + b"\0"
    return bytes([STRING]) + len(raw).to_bytes(4, "little") + raw


class Containment:
    """How the versions of one policy's buckets are compared."""

    def __init__(self, policy: Policy) -> None:
        model, more, overlay = model_of(policy), policy.overflow, Overlay.of(policy)
        kept = _paths(*model.kept_fields, more.flag_field if more else None)
        arrays = model.holders if model.array else []
        #: Arrays side by side: what lies at one place of them is one sample.
        self._parallel = arrays if len(arrays) > 1 else []
        self._main = _Documents(overlay, frozenset(arrays), kept | frozenset(self._parallel))
        self._extra = _Documents(overlay, _paths(more.samples_field if more else None), frozenset())

    def contains(self, newer: Batch, older: Batch) -> bool:
        """Returns whether a bucket is known to hold all of another one; both batches are of one."""
        newer_overflow, older_overflow = _by_id(newer), _by_id(older)
        try:
            return newer.unit(0) == older.unit(0) or (
                self._main.contain(newer.main[0], older.main[0])
                and self._has_samples(newer.main[0], older.main[0])
                and older_overflow.keys() <= newer_overflow.keys()
                and all(
                    self._extra.contain(newer_overflow[name], document)
                    for name, document in older_overflow.items()
                )
            )
        except Unmergeable:  # a name appears twice
            return False

    def _has_samples(self, newer: bytes, older: bytes) -> bool:
        """Returns whether the newer document holds all samples that the older one has in several arrays."""
        if not self._parallel:
            return True
        try:
            held, wanted = (Counter(samples_of(it, self._parallel)) for it in (newer, older))
        except ValueError:  # unlike lengths: it breaks its model
            return False
        return not wanted - held


@dataclass(frozen=True)
class _Documents:
    """Compares the documents of buckets, or those of their overflow."""

    overlay: Overlay
    samples: frozenset[Path]  # an array of them
    kept: frozenset[Path]  # what a writer keeps up to date: it may differ

    def contain(self, newer: bytes, older: bytes, at: Path = ()) -> bool:
        """Returns whether the newer document holds all of the older one. Raises Unmergeable where a name
        appears twice."""
        newer_fields = fields_of(newer)
        return all(
            self._field(newer_fields.get(name, b""), value, (*at, name))
            for name, value in fields_of(older).items()
        )

    def _field(self, newer: Typed, older: Typed, path: Path) -> bool:
        """Returns whether the newer field holds all of the older. `newer` is empty where the field is
        missing."""
        if newer == older or (path in self.kept and newer):
            return True
        if path in self.overlay.slots:
            return self._slots(newer, older, self.overlay.levels, path)
        if path in self.samples and newer[:1] == older[:1] == bytes([ARRAY]):
            return not Counter(_samples(older)) - Counter(_samples(newer))
        return newer[:1] == older[:1] == bytes([DOCUMENT]) and self.contain(newer[1:], older[1:], path)

    def _slots(
        self, newer: Typed, older: Typed, levels: Sequence[SlotLevel], path: Path, before: int = 0
    ) -> bool:
        """Returns whether the newer slots hold all of the older. A null slot holds nothing."""
        if newer == older or older[0] in NOTHING:
            return True
        if not levels:
            return self._field(newer, older, (*path, "*"))
        if not newer or older[0] not in NESTED or newer[0] not in NESTED:
            return False
        level, *inner = levels
        newer_slots = _slots(newer, level, before)
        return all(
            self._slots(
                newer_slots.get(place, b""),
                value,
                inner,
                path,
                before + (place * level.length if isinstance(place, int) else 0),
            )
            for place, value in _slots(older, level, before).items()
        )


def _paths(*fields: str | None) -> frozenset[Path]:
    return frozenset(split(field) for field in fields if field)


def _by_id(bucket: Batch) -> dict[bytes, bytes]:
    """Returns a bucket's overflow documents by their `_id`s."""
    ids = (first_at(document, ("_id",)) for document in bucket.extra)
    return {sort_key(it[0], it[1:]): document for it, document in zip(ids, bucket.extra, strict=True)}


def _samples(array: Typed) -> list[bytes]:
    held = array[1:]
    return [held[start : start + 1] + held[value:end] for start, value, end in elements(held)]


def _slots(held: Typed, level: SlotLevel, before: int) -> dict[int | str, Typed]:
    """Returns slots by their places: in an array or a sub-document."""
    slots = SlotsIn.of(held, level, before)
    found = {slots.places[name]: value for name, value in slots.fields.items()}
    if len(found) < len(slots.fields):
        raise Unmergeable("a slot appears twice")
    return found


#: A reading in a document: its time in milliseconds, by how many nanoseconds the document tells another, and
#: its series.
Key = tuple[int, int, bytes]
#: Of a document: what tells its readings apart, and their values. Slots are merged field by field.
Held = dict[tuple[Key, str], bytes]


def readings_by_document(policy: Policy, documents: Docs) -> list[Held]:
    """Returns the readings of each document; none of one that breaks its model."""
    versions = BucketReadings(policy.model_copy(update={"overflow": None}), Batch.of(documents))
    return [versions.held(i) if versions.fault(i) is None else {} for i in range(len(documents))]


def lacks(policy: Policy, older: Batch, newer: Batch) -> list[bool]:
    """Returns, for each bucket of `newer`, whether it lacks a field, slot or sample that the matching
    bucket of `older` has, with the same bytes. Returns True if that cannot be determined."""
    containment = Containment(policy)
    return [not containment.contains(newer.slice(i, i + 1), older.slice(i, i + 1)) for i in range(len(newer))]


def faults_of(decoded: Decoded, size: int) -> dict[int, str]:
    """Returns the faults of buckets, by index."""
    wrong = np.setdiff1d(np.arange(size), decoded.units).tolist()
    return {i: f"{it.field}: {it.reason}" for i, it in zip(wrong, decoded.quarantined, strict=True)}


class BucketReadings:
    """The readings of buckets. They are decoded whatever the counts and sums of the buckets say."""

    def __init__(self, policy: Policy, batch: Batch) -> None:
        self._model = model_of(policy)
        plain = self._model.without_totals
        self.batch = batch
        self.whole = decode(batch, plain)
        self.own = self.whole
        if policy.overflow is not None:
            self.own = decode(Batch.of(batch.main), plain.model_copy(update={"overflow": None}))
        self._names = [series_key(series) for series in self.own.columns.series]
        self._faults = faults_of(self.whole, len(batch))
        self._whole_at = {unit: i for i, unit in enumerate(self.whole.units.tolist())}
        self._own_at = {unit: i for i, unit in enumerate(self.own.units.tolist())}

    def fault(self, index: int) -> str | None:
        """Returns why the bucket at this index breaks its model; None where it is sound."""
        return self._faults.get(index)

    def series(self, index: int) -> bytes:
        """Returns the series of a bucket; nothing where its readings are of several."""
        columns = self.whole.columns
        if columns.reading_series is not None:
            return b""
        return series_key(columns.series[columns.bucket_series[self._whole_at[index]]])

    def keys(self, index: int) -> list[Key]:
        """Returns the keys that tell readings of a bucket's own document apart, in their order."""
        columns, span = self.own.columns, self._readings(index, is_own=True)
        series = columns.series_of_readings[span].tolist()
        times = columns.time[span].tolist()
        finer = self._finer(index, times)
        return [(*time, self._names[one]) for *time, one in zip(times, finer, series, strict=True)]

    def _finer(self, index: int, times: list[int]) -> list[int]:
        """Returns the nanoseconds between each sample's own time and the millisecond that it counts for."""
        form = self._model.reading_form
        if self._model.array is None or form.is_date:
            return [0] * len(times)
        values = map(as_queried, self._model.raw_times(self.batch.main[index]))
        return [form.finer(value, time) for value, time in zip(values, times, strict=True)]

    def held(self, index: int) -> Held:
        """Returns the readings of a bucket's own document, with their values."""
        columns, span, found = self.own.columns, self._readings(index, is_own=True), {}
        for key, i in zip(self.keys(index), range(span.start, span.stop), strict=True):
            kinds = {it: columns.kinds[it][i] for it in columns.kinds}
            values = {it: kinds[it].tobytes() + columns.values[it][i].tobytes() for it in kinds}
            if self._model.merges_values:
                present = [it for it in values if kinds[it] != ValueKind.MISSING]
                found.update({(key, it): values[it] for it in present})
            else:
                found[key, ""] = b"".join(values.values())
        return found

    def count(self, index: int, *, is_own: bool) -> int:
        """Returns how many readings a bucket holds, in its own document or with its overflow."""
        span = self._readings(index, is_own=is_own)
        return int(span.stop - span.start)

    def sum(self, index: int, name: str, *, is_own: bool, is_finite: bool = True) -> float:
        """Returns the sum of the values of a field, NaN and infinities left out or not."""
        columns = (self.own if is_own else self.whole).columns
        span = self._readings(index, is_own=is_own)
        kinds, values = columns.kinds[name][span], columns.values[name][span]
        finite = rounded_sum(values[kinds == ValueKind.FINITE].tolist())
        return finite if is_finite else sum(values[kinds == ValueKind.NONFINITE].tolist(), finite)

    def _readings(self, index: int, *, is_own: bool) -> slice:
        decoded, at = (self.own, self._own_at) if is_own else (self.whole, self._whole_at)
        start, end = decoded.columns.starts[at[index] : at[index] + 2].tolist()
        return slice(start, end)
