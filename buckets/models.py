"""Each bucket model: its shapes, and where its documents may be irregular."""

from __future__ import annotations

from collections.abc import Callable

from buckets import reading, samples, slots, timeseries
from buckets.groups import Loose
from buckets.layout import Layout
from buckets.shape import Breach, Shape, split
from config.policies import Policy

SHAPES: dict[str, Callable[[Layout, Policy], Shape]] = {
    "reading": reading.shape,
    "slots": slots.shape,
    "samples": samples.shape,
    "timeseries": timeseries.shape,
}
OVERFLOW_SHAPES = {"slots": slots.overflow_shape, "samples": samples.overflow_shape}


def loose(policy: Policy) -> Loose | None:
    """Of a bucket's own documents: slots, or samples."""
    if policy.model == "slots":
        return _loose(list(policy.value_fields), SHAPES[policy.model], policy)
    if policy.model == "samples":
        return _loose([policy.samples_field or ""], SHAPES[policy.model], policy)
    return None


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
