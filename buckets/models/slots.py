"""The `slots` model: one document for a span of time, with a slot for each second, minute or hour in it.

Slots are keys of a sub-document, or places in an array; they may lie inside each other (minutes, then
seconds). A slot holds a value, or a sub-document with the values of several fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from bson import DatetimeMS
from numpy.typing import NDArray
from pymongo import UpdateOne

from bucketwise.buckets.bson.types import ARRAY, DOCUMENT, NOTHING, TYPE_NAMES
from bucketwise.buckets.fields.textforms import own_form_of
from bucketwise.buckets.fields.timeforms import TimeForm, any_of
from bucketwise.buckets.layouts.layout import Cell, Element, Flags, Layout, Path, ReadingCells
from bucketwise.buckets.models.model import BucketModel, Document, Operation, Times
from bucketwise.buckets.models.sampled import SampleDocuments
from bucketwise.buckets.models.shape import Breach, Shape, TargetNames, find, find_all, split
from bucketwise.buckets.models.slot_times import SlotLevel, SlotTimes, levels_of, slot_times_of, slot_units
from bucketwise.config.models import SlotsPolicy
from bucketwise.config.times import CALENDAR_DAYS, NEXT_UNIT, length_of

_MS = timedelta(milliseconds=1)


class SlotField(NamedTuple):
    """Where the slots of a value field lie, and its value inside each; () where the slot is the value."""

    slots: Path
    inside: Path

    @classmethod
    def of(cls, path: str) -> SlotField:
        """Returns the places that a value field names, such as `v.*.p`."""
        slots, _, inside = path.partition(".*.")
        return cls(split(slots), split(inside) if inside else ())


class SlotsModel(BucketModel[SlotsPolicy]):
    """A slot for each second, minute or hour of a span of time."""

    name: ClassVar[str] = "slots"
    may_overflow: ClassVar[bool] = True
    merges_versions: ClassVar[bool] = True
    merges_values: ClassVar[bool] = True
    targets: ClassVar[tuple[str, ...]] = ("slots-minute", "slots-hour")
    target_aliases: ClassVar[dict[str, str]] = {"slots": "slots-minute"}

    @cached_property
    def times(self) -> SlotTimes:
        """Returns when slots are."""
        return slot_times_of(self.policy)

    @cached_property
    def levels(self) -> list[SlotLevel]:
        """Returns the levels of slots, outer first."""
        lengths = [length_of(it) // _MS for it in slot_units(self.policy)]
        return levels_of(self.times.room, lengths, self.policy.first_slot, self.policy.slot_keys)

    @property
    def length_ms(self) -> int:
        """Returns how long a bucket is at most, in milliseconds."""
        return self.times.longest

    @property
    def covered_ms(self) -> int | None:
        """Returns how much time the slots of a bucket cover at most, in milliseconds; None where documents
        may lie further apart."""
        return None if self.policy.sparse_ok else self.length_ms

    @property
    def slot_ms(self) -> int | None:
        """Returns how long a slot is, in milliseconds; None where not all buckets have the same slots."""
        return None if self.times.differ else self.slot_width

    @property
    def slot_width(self) -> int:
        """Returns how long a slot is, in milliseconds; of one that is a day, mostly."""
        return self.levels[-1].length

    @property
    def keeps_days(self) -> bool:
        """Returns whether a bucket holds a day, a week or a month of a clock."""
        outermost = slot_units(self.policy)[0]
        return (self.policy.span or NEXT_UNIT[outermost]) in CALENDAR_DAYS

    @cached_property
    def fields(self) -> dict[str, SlotField]:
        """Returns where each value field has its slots, by its name."""
        return {name: SlotField.of(path) for name, path in self.policy.named_values}

    @property
    def slot_holders(self) -> list[Path]:
        """Returns the path of what holds the slots of each value field."""
        return list(dict.fromkeys(it.slots for it in self.fields.values()))

    # How documents are read

    def _shape_in(self, layout: Layout) -> Shape:
        (start, *_), form = self.own_time(layout, self.first_field)
        return replace(self._slotted(layout, self.fields, start), own_form=form)

    def _overflow_shape_in(self, layout: Layout) -> Shape:
        """Returns the shape of an array of readings (their time under `time_field`), or of further slots of
        the bucket, under the value fields or under those inside `samples_field`."""
        assert self.policy.overflow is not None
        path = split(self.policy.overflow.samples_field)
        held = find(layout, path)
        if held is not None and held.type == ARRAY:
            return SampleDocuments.of(self.policy, (self.first_field,)).shape(layout, path, self.own_form)
        own, places = self.fields, self.slot_holders
        fields = {name: field._replace(slots=(*path, *field.slots)) for name, field in own.items()}
        if not _any(layout, fields):
            if held is not None and len(places) == 1:
                fields = {name: field._replace(slots=path) for name, field in own.items()}
            elif held is None or path in places:
                fields = own
        if not _any(layout, fields):
            raise Breach(self.policy.overflow.samples_field, "no samples: here is neither an array nor slots")
        return self._slotted(layout, fields, None)

    def _slotted(self, layout: Layout, fields: dict[str, SlotField], start: Element | None) -> Shape:
        found = {name: _slots(layout, field, self.levels) for name, field in fields.items()}
        offsets = sorted(set().union(*found.values()))
        return Shape(
            start=start,
            own_form=self.own_form,
            slot_times=self.times,
            offsets=np.array(offsets, dtype=np.int64),
            values={
                name: ReadingCells(filled.get(offset, ()) for offset in offsets)
                for name, filled in found.items()
            },
        )

    # Times

    @cached_property
    def own_form(self) -> TimeForm:
        """Returns the form of a bucket's start."""
        policy = self.policy
        return own_form_of(policy, policy.time_unit or "date", policy.time_format)

    @property
    def first_field(self) -> str:
        """Returns the field with a bucket's start; of several, the first."""
        return self.policy.time_fields[0]

    last_field = first_field

    def range_query(self, form: TimeForm, start_ms: int, end_ms: int) -> Document:
        """Returns a query for every bucket that may hold a reading in [start, end)."""
        return any_of(form.ranges(self.first_field, start_ms - self.reach_ms, end_ms - 1))

    def covered(self, first: object, last: object) -> tuple[int, int] | None:
        """Returns the span [start, end) in milliseconds from the value of the bucket's start."""
        start = self.own_form.milliseconds(first)
        return None if start is None else (start, self.end_of(start))

    def end_of(self, start_ms: int) -> int:
        """Returns the first instant after a bucket that starts then."""
        return int(self.times.ends(np.array([start_ms]))[0])

    # What policies name in documents

    @property
    def own_fields(self) -> list[str]:
        """Returns the fields with a bucket's start."""
        return list(self.policy.time_fields)

    @property
    def changing_fields(self) -> set[str]:
        """Returns the fields that change as a bucket fills."""
        return set(self.policy.value_fields)

    def _value_path(self, path: str) -> Path:
        parts = ([it] * (len(self.levels) if it == "*" else 1) for it in split(path))
        return tuple(it for part in parts for it in part)

    def value_candidates(self, paths: Iterable[str]) -> list[str]:
        """Returns fields as `value_fields` would name them."""
        return list(paths)

    # Documents of buckets

    def room(self, lengths: NDArray[np.int64]) -> int | None:
        """Returns how many slots a bucket has."""
        return self.times.room // self.slot_width

    # How documents are written

    @classmethod
    def target_keys(cls, name: str, names: TargetNames, *, is_whole_minutes: bool) -> Document:
        """Returns the keys of a policy that reads the target: an hour has a slot a minute, or one a second
        inside each minute."""
        if name == "slots-minute":
            return {"slot": "second", "time_field": names.time}
        form: Document = {"slot": "minute"} if is_whole_minutes else {"slot_levels": ("minute", "second")}
        return {"time_field": names.time, **form}

    @property
    def written_at_once(self) -> int:
        """Returns how many slots a bucket has."""
        return self.times.room // self.slot_width

    def begins(self, series: NDArray[np.int32], time: Times, size: int) -> Flags:
        """Returns with which readings a document begins: with the first one of a series in a span."""
        if not len(time):
            return np.ones(0, dtype=np.bool_)
        return np.append(True, (np.diff(time // self.length_ms) != 0) | (np.diff(series) != 0))

    def closed(self, series: NDArray[np.int32], time: Times, size: int, end_ms: int) -> Flags:
        """Returns which readings lie in spans that are over."""
        return np.asarray((time // self.length_ms + 1) * self.length_ms <= end_ms)

    def document(self, times: list[int], values: dict[str, list[Any]]) -> Document:
        """Returns the fields of a bucket with these slots."""
        keys = [self._keys(ms) for ms in times]
        body: Document = {self.first_field: DatetimeMS(times[0] // self.length_ms * self.length_ms)}
        for name, held in values.items():
            slots: Document = {}
            for path, value in zip(keys, held, strict=True):
                if value is not None:
                    inner = slots
                    for key in path[:-1]:
                        inner = inner.setdefault(key, {})
                    inner[path[-1]] = value
            if slots:
                body[name] = slots
        return body

    def _keys(self, ms: int) -> list[str]:
        """Returns the keys of the slot of a time, outer first."""
        offset, found = ms % self.length_ms, []
        for level in self.levels:
            place, offset = divmod(offset, level.length)
            found.append(level.key(place))
        return found

    def written(
        self, document: Document, series: Document, ms: int, values: Document, size: int
    ) -> Operation:
        """Returns the update that sets the reading's slot in its bucket."""
        keys = ".".join(self._keys(ms))
        slots = {f"{name}.{keys}": value for name, value in values.items() if value is not None}
        when = {self.first_field: document[self.first_field]}
        return UpdateOne({**series, **when}, {"$set": slots}, upsert=True)

    def misfits(self, series: NDArray[np.int32], time: Times, is_empty: Flags) -> Iterator[tuple[str, int]]:
        """Yields readings that have no slot, or none of their own."""
        step = self.slot_width
        off = time % step != 0
        yield f"readings that are not on a slot of {step // 1000:,} s", int(off.sum())
        is_double = (np.diff(time // step) == 0) & (np.diff(series) == 0) & ~off[1:] & ~off[:-1]
        yield "readings of a slot that holds one already (same series, same time)", int(is_double.sum())
        yield "readings without any value, which are no reading in a slot", int(is_empty.sum())


def _any(layout: Layout, fields: dict[str, SlotField]) -> bool:
    return any(layout.get(field.slots) for field in fields.values())


def _slots(layout: Layout, field: SlotField, outer: list[SlotLevel]) -> dict[int, Cell]:
    """Returns the slots that hold something, by their milliseconds from the bucket's start. A missing or null
    slot is no reading."""
    slots: dict[int, Cell] = {}
    held = find_all(layout, field.slots)
    for offset, path, slot in _paths(layout, held, outer, 0) if held else ():
        cell = _value(layout, path, slot, field.inside) if field.inside else slot
        if cell and offset in slots:
            raise Breach(".".join(path), f'slot "{path[-1]}" appears twice')
        if cell:
            slots[offset] = cell
    return slots


def _paths(
    layout: Layout, cell: Cell, rest: list[SlotLevel], offset: int
) -> Iterator[tuple[int, Path, Cell]]:
    """Yields each slot's milliseconds from the bucket's start, its path, and what may stand there."""
    level, *inner = rest
    name = ".".join(cell[0].path)
    for element in cell:
        if element.type not in (DOCUMENT, ARRAY):
            where = "the sub-document of slots is needed"
            raise Breach(name, f"{TYPE_NAMES[element.type]} stands where {where}")
    kinds, children = {element.type for element in cell}, dict[Path, Cell]()
    for child in layout.children(cell[0].path):
        children[child.path] = (*children.get(child.path, ()), *([] if child.type in NOTHING else [child]))
    for path, held in children.items():
        start = offset + _place(level, path, offset, kinds) * level.length
        if path in layout.repeated:
            raise Breach(".".join(path), f'slot "{path[-1]}" appears twice')
        if held and inner:
            yield from _paths(layout, held, inner, start)
        elif held:
            yield start, path, held


def _place(level: SlotLevel, path: Path, offset: int, kinds: set[int]) -> int:
    """Returns which slot a key, or a place in an array, stands for. Raises Breach where it is none."""
    before, key = offset // level.length, path[-1]
    in_array = ARRAY in kinds
    place = level.at(key) if in_array else level.place(key, before)
    if place is None or (len(kinds) > 1 and level.place(key, before) != place):
        raise Breach(".".join(path), f'slot "{key}" is not one of {level.keys(before, in_array=in_array)}')
    return place


def _value(layout: Layout, slot: Path, held: Cell, inside: Path) -> Cell:
    """Returns the value in a slot that holds a sub-document."""
    for element in held:
        if element.type != DOCUMENT:
            where = f"a sub-document with {'.'.join(inside)} is needed"
            raise Breach(".".join(slot), f"{TYPE_NAMES[element.type]} stands where {where}")
    return find_all(layout, (*slot, *inside))
