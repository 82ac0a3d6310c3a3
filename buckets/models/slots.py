"""The `slots` model: one document for a span of time, with a slot for each second, minute or hour in it.

Slots are keys of a sub-document, or places in an array; they may lie inside each other (minutes, then
seconds). A slot holds a value, or a sub-document with the values of several fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from bucketwise.buckets.bson.types import ARRAY, DOCUMENT, TYPE_NAMES
from bucketwise.buckets.fields.timeforms import TimeForm, any_of, own_form
from bucketwise.buckets.layouts.layout import Cell, Element, Layout, Path, ReadingCells
from bucketwise.buckets.models.samples import sampled
from bucketwise.buckets.models.shape import Breach, Shape, find, find_all, need, split
from bucketwise.config.policies import Policy

_MS = {"second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
_NEXT = {"second": "minute", "minute": "hour", "hour": "day"}
#: Starts are multiples of these. Hours and days of zones with quarter-hour offsets work as well.
_QUARTER_MS = 900_000


class SlotLevel(NamedTuple):
    """Slots side by side: so many, each of this length."""

    slots: int
    length: int  # milliseconds

    def number(self, name: str, key: str) -> int:
        """Returns which slot a key stands for. Raises Breach where it is none."""
        if key.isascii() and key.isdigit() and int(key) < self.slots and len(key) <= len(str(self.slots - 1)):
            return int(key)
        raise Breach(f"{name}.{key}", f'slot "{key}" is not one of "0" to "{self.slots - 1}"')


def slot_levels(policy: Policy) -> list[SlotLevel]:
    """Returns the levels of slots, outer first."""
    units = policy.slot_levels or (policy.slot or "second",)
    spans = [length_ms(policy), *(_MS[unit] for unit in units)]
    return [SlotLevel(span // _MS[unit], _MS[unit]) for span, unit in zip(spans, units, strict=False)]


def length_ms(policy: Policy) -> int:
    """Returns how long a bucket is."""
    return _MS[policy.span or _NEXT[(policy.slot_levels or (policy.slot or "second",))[0]]]


class _Field(NamedTuple):
    """Where the slots of a value field lie, and its value inside each; () where the slot is the value."""

    slots: Path
    inside: Path

    @classmethod
    def of(cls, path: str) -> _Field:
        slots, _, inside = path.partition(".*.")
        return cls(split(slots), split(inside) if inside else ())


def containers(policy: Policy) -> list[Path]:
    """Returns the path of what holds the slots of each value field; none in other models."""
    if policy.model != "slots":
        return []
    return list(dict.fromkeys(_Field.of(path).slots for path in policy.value_fields))


def shape(layout: Layout, policy: Policy) -> Shape:
    """Returns where the start and the values of all slots lie in a layout. Raises Breach where one has no
    valid place."""
    form = own_form(policy)
    start = need(layout, split(policy.time_field or ""), form.types, "time")
    return _slotted(layout, policy, {name: _Field.of(path) for name, path in policy.named_values}, start)


def overflow_shape(layout: Layout, policy: Policy) -> Shape:
    """Returns the shape of an overflow document: an array of readings (their time under `time_field`), or
    further slots of its bucket, under the value fields or under those inside `samples_field`. Raises
    Breach."""
    assert policy.overflow is not None
    path = split(policy.overflow.samples_field)
    held = find(layout, path)
    if held is not None and held.type == ARRAY:
        return sampled(layout, path, split(policy.time_field or ""), policy, own_form(policy))
    own = {name: _Field.of(field) for name, field in policy.named_values}
    fields = {name: field._replace(slots=(*path, *field.slots)) for name, field in own.items()}
    places = containers(policy)
    if not _any(layout, fields):
        if held is not None and len(places) == 1:
            fields = {name: field._replace(slots=path) for name, field in own.items()}
        elif held is None or path in places:
            fields = own
    if not _any(layout, fields):
        raise Breach(policy.overflow.samples_field, "no samples: here is neither an array nor slots")
    return _slotted(layout, policy, fields, None)


def _any(layout: Layout, fields: dict[str, _Field]) -> bool:
    return any(layout.get(field.slots) for field in fields.values())


def _slotted(layout: Layout, policy: Policy, fields: dict[str, _Field], start: Element | None) -> Shape:
    found = {name: _slots(layout, field, slot_levels(policy)) for name, field in fields.items()}
    offsets = sorted(set().union(*found.values()))
    return Shape(
        start=start,
        own_form=own_form(policy),
        step=min(length_ms(policy), _QUARTER_MS),
        offsets=np.array(offsets, dtype=np.int64),
        values={
            name: ReadingCells(filled.get(offset, ()) for offset in offsets) for name, filled in found.items()
        },
    )


def _slots(layout: Layout, field: _Field, outer: list[SlotLevel]) -> dict[int, Cell]:
    """Returns the slots that hold something, by their milliseconds from the bucket's start. A missing or null
    slot is no reading."""
    slots: dict[int, Cell] = {}
    held = find_all(layout, field.slots)
    for offset, path in _paths(layout, held, outer, 0) if held else ():
        cell = _value(layout, path, field.inside)
        if cell and offset in slots:
            raise Breach(".".join(path), f'slot "{path[-1]}" appears twice')
        if cell:
            slots[offset] = cell
    return slots


def _paths(layout: Layout, cell: Cell, rest: list[SlotLevel], offset: int) -> Iterator[tuple[int, Path]]:
    """Yields each slot's milliseconds from the bucket's start, and its path."""
    level, *inner = rest
    name = ".".join(cell[0].path)
    for element in cell:
        if element.type not in (DOCUMENT, ARRAY):
            where = "the sub-document of slots is needed"
            raise Breach(name, f"{TYPE_NAMES[element.type]} stands where {where}")
    for path in dict.fromkeys(child.path for child in layout.children(cell[0].path)):
        start = offset + level.number(name, path[-1]) * level.length
        if path in layout.repeated:
            raise Breach(".".join(path), f'slot "{path[-1]}" appears twice')
        held = find_all(layout, path)
        if held and inner:
            yield from _paths(layout, held, inner, start)
        elif held:
            yield start, path


def _value(layout: Layout, slot: Path, inside: Path) -> Cell:
    """Returns the value in a slot."""
    for element in find_all(layout, slot) if inside else ():
        if element.type != DOCUMENT:
            where = f"a sub-document with {'.'.join(inside)} is needed"
            raise Breach(".".join(slot), f"{TYPE_NAMES[element.type]} stands where {where}")
    return find_all(layout, (*slot, *inside))


def range_query(policy: Policy, form: TimeForm, start_ms: int, end_ms: int) -> dict[str, Any]:
    """Returns a query for every bucket that may hold a reading in [start, end)."""
    first = start_ms - length_ms(policy) + 1
    return any_of(form.ranges(str(policy.time_field), first, end_ms - 1))
