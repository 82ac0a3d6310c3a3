"""Each bucket model: its shapes, and where its documents may be irregular."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from weakref import WeakKeyDictionary

from buckets import reading, samples, slots, timeseries
from buckets.groups import Loose
from buckets.layout import Layout
from buckets.shape import Breach, Shape, split
from config.policies import Policy

#: Of so many policies something is remembered.
_POLICIES = 8

Shaper = Callable[[Layout, Policy], Shape]


def _once(shaper: Shaper) -> Shaper:
    """A layout's shape is made once for a policy, and kept as long as the layout is."""
    made: WeakKeyDictionary[Layout, tuple[Policy, Shape]] = WeakKeyDictionary()

    def shape(layout: Layout, policy: Policy) -> Shape:
        held = made.get(layout)
        if held is None or held[0] != policy:
            made[layout] = held = policy, shaper(layout, policy)
        return held[1]

    return shape


SHAPES: dict[str, Shaper] = {
    "reading": _once(reading.shape),
    "slots": _once(slots.shape),
    "samples": _once(samples.shape),
    "timeseries": _once(timeseries.shape),
}
OVERFLOW_SHAPES = {"slots": _once(slots.overflow_shape), "samples": _once(samples.overflow_shape)}


@lru_cache(_POLICIES)
def loose(policy: Policy) -> Loose | None:
    """Of a bucket's own documents: slots, or samples."""
    if policy.model == "slots":
        return _loose(list(policy.value_fields), SHAPES[policy.model], policy)
    if policy.model == "samples":
        return _loose([policy.samples_field or ""], SHAPES[policy.model], policy)
    return None


@lru_cache(_POLICIES)
def loose_overflow(policy: Policy) -> Loose | None:
    """Of its overflow: samples, or slots under the value fields or inside the samples field."""
    if policy.overflow is None:
        return None
    fields = [policy.overflow.samples_field]
    if policy.model == "slots":
        fields += policy.value_fields
    return _loose(fields, OVERFLOW_SHAPES[policy.model], policy)


def _loose(fields: list[str], shape: Callable[[Layout, Policy], Shape], policy: Policy) -> Loose:
    def is_sound(layout: Layout) -> bool:
        try:
            shape(layout, policy)
        except Breach:
            return False
        return True

    return Loose(frozenset(map(split, fields)), is_sound)
