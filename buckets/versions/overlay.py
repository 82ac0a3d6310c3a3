"""Lays one BSON document over another: fields of the upper one win, those that only the lower one has stay.

Values are copied as they are, with their types and bits. Where a policy has slots, these are laid over one by
one, at any depth, and a null slot does not hide one that is not.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bson.decimal128 import Decimal128

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
from bucketwise.buckets.layouts.layout import Path
from bucketwise.buckets.models import model_of
from bucketwise.buckets.models.slot_levels import SlotLevel
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
