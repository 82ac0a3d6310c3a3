"""Each bucket model: its shapes, and where its documents may be irregular."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from weakref import WeakKeyDictionary

from bucketwise.buckets.layouts.groups import UnionRules
from bucketwise.buckets.layouts.layout import Layout, NamesIn, Path
from bucketwise.buckets.layouts.merge import Containers
from bucketwise.buckets.models import reading, samples, slots, timeseries
from bucketwise.buckets.models.shape import Breach, Shape, split
from bucketwise.config.policies import Policy

#: Policies for which something is cached.
_POLICIES = 8

Shaper = Callable[[Layout, Policy], Shape]


def _once(shaper: Shaper) -> Shaper:
    """Returns a shaper that makes a layout's shape once for a policy, and keeps it as long as the layout."""
    shapes: WeakKeyDictionary[Layout, tuple[Policy, Shape]] = WeakKeyDictionary()

    def shape(layout: Layout, policy: Policy) -> Shape:
        known = shapes.get(layout)
        if known is None or known[0] != policy:
            shapes[layout] = known = policy, shaper(layout, policy)
        return known[1]

    return shape


SHAPES: dict[str, Shaper] = {
    "reading": _once(reading.shape),
    "slots": _once(slots.shape),
    "samples": _once(samples.shape),
    "timeseries": _once(timeseries.shape),
}
OVERFLOW_SHAPES = {"slots": _once(slots.overflow_shape), "samples": _once(samples.overflow_shape)}


@lru_cache(_POLICIES)
def union_rules(policy: Policy) -> UnionRules | None:
    """Returns the rules for unions of a bucket's own documents: slots or samples, and attributes by their
    names. None: no unions."""
    paths = slots.containers(policy)
    if policy.model == "samples":
        paths = [split(policy.samples_field or "")]
    elif not paths and policy.attributes_field is None:
        return None
    return _union_rules(paths, SHAPES[policy.model], policy)


@lru_cache(_POLICIES)
def overflow_union_rules(policy: Policy) -> UnionRules | None:
    """Returns the rules for unions of overflow: samples, or slots under the value fields or inside the
    samples field. None: no unions."""
    if policy.overflow is None:
        return None
    paths = [split(policy.overflow.samples_field), *slots.containers(policy)]
    return _union_rules(paths, OVERFLOW_SHAPES[policy.model], policy)


def _union_rules(paths: list[Path], shape: Callable[[Layout, Policy], Shape], policy: Policy) -> UnionRules:
    def is_sound(layout: Layout) -> bool:
        try:
            shape(layout, policy)
        except Breach:
            return False
        return True

    names = None
    if policy.attributes_field is not None:
        names = NamesIn(split(policy.attributes_field), split(policy.attribute_key))
    containers = Containers(frozenset(paths), policy.samples_as == "pairs", names)
    return UnionRules(containers, is_sound)
