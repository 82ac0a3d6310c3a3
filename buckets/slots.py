"""The `slots` model: one document a minute (an hour), the seconds (minutes) as keys of a sub-document."""

from __future__ import annotations

from typing import Any

import numpy as np

from buckets.bsontypes import ARRAY, DATE, DOCUMENT, NULL, TYPE_NAMES, UNDEFINED
from buckets.layout import Cell, Cells, Element, Layout, Path
from buckets.samples import sampled
from buckets.shape import Breach, Shape, find, need, split
from buckets.times import as_date
from config.policies import Policy

_SLOT_MS = {"second": 1_000, "minute": 60_000}
#: A bucket's start is a multiple of this. Hours of zones with quarter-hour offsets are served as well.
_ALIGNMENT_MS = {"second": 60_000, "minute": 900_000}
_SLOTS = {str(slot): slot for slot in range(60)}


def shape(layout: Layout, policy: Policy) -> Shape:
    start = need(layout, split(policy.time_field or ""), (DATE,), "time")
    return _slotted(layout, policy, {name: split(path) for name, path in policy.named_values}, start)


def overflow_shape(layout: Layout, policy: Policy) -> Shape:
    """Of an overflow document: an array of readings (their time under `time_field`), or further slots
    of its bucket: under the value fields, or under those inside `samples_field`."""
    assert policy.overflow is not None
    path = split(policy.overflow.samples_field)
    held = find(layout, path)
    if held is not None and held.type == ARRAY:
        return sampled(layout, path, split(policy.time_field or ""), policy, (DATE,))
    paths = {name: (*path, *split(field)) for name, field in policy.named_values}
    if not any(map(layout.get, paths.values())):
        if held is not None and len(policy.value_fields) == 1:
            paths = {policy.value_names[0]: path}
        elif held is None or policy.overflow.samples_field in policy.value_fields:
            paths = {name: split(field) for name, field in policy.named_values}
    if not any(map(layout.get, paths.values())):
        raise Breach(policy.overflow.samples_field, "no samples: here is neither an array nor slots")
    return _slotted(layout, policy, paths, None)


def _slotted(layout: Layout, policy: Policy, paths: dict[str, Path], start: Element | None) -> Shape:
    found = {name: _slots(layout, path) for name, path in paths.items()}
    slots = sorted(set().union(*found.values()))
    unit = policy.slot or "second"
    return Shape(
        start=start,
        step=_ALIGNMENT_MS[unit],
        offsets=np.array(slots, dtype=np.int64) * _SLOT_MS[unit],
        values={name: Cells(filled.get(slot, ()) for slot in slots) for name, filled in found.items()},
    )


def _slots(layout: Layout, path: Path) -> dict[int, Cell]:
    """The slots that hold something; a slot that is missing or null is no reading."""
    parent = find(layout, path)
    if parent is None:
        return {}
    name = ".".join(path)
    if parent.type not in (DOCUMENT, ARRAY):
        raise Breach(name, f"{TYPE_NAMES[parent.type]} stands where the sub-document of slots is needed")
    slots: dict[int, Cell] = {}
    for element in layout.children(path):
        key = element.path[-1]
        if key not in _SLOTS:
            raise Breach(f"{name}.{key}", f'slot "{key}" is not one of "0" to "59"')
        if element.path in layout.repeated:
            raise Breach(f"{name}.{key}", f'slot "{key}" appears twice')
        if element.type not in (NULL, UNDEFINED):
            slots[_SLOTS[key]] = (*slots.get(_SLOTS[key], ()), element)
    return slots


def length_ms(policy: Policy) -> int:
    """How long a bucket is."""
    return 60 * _SLOT_MS[policy.slot or "second"]


def holding(policy: Policy, start_ms: int, end_ms: int) -> dict[str, Any]:
    """A query for every bucket that may hold a reading in [start, end)."""
    first = start_ms - length_ms(policy) + 1
    return {str(policy.time_field): {"$gte": as_date(first), "$lte": as_date(end_ms - 1)}}
