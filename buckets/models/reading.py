"""The `reading` model: one document a reading, {symbol: "MDB", d: ISODate(…), p: 56.58}.

Its values are fields, or attributes: an array of names and values, [{k: "p", v: 56.58}, …].
"""

from __future__ import annotations

from typing import Any

from bucketwise.buckets.bson.types import ARRAY, DOCUMENT, STRING, TYPE_NAMES
from bucketwise.buckets.fields.timeforms import TimeForm, any_of, own_form
from bucketwise.buckets.layouts.layout import Cell, Layout, Path
from bucketwise.buckets.models.shape import Breach, Shape, find, find_all, need, need_all, split
from bucketwise.config.policies import Policy


def shape(layout: Layout, policy: Policy) -> Shape:
    """Returns where the reading's time and values lie in a layout. Raises Breach where one has no valid
    place."""
    form = own_form(policy)
    time = need_all(layout, (), split(policy.time_field or ""), form.types, "time")
    if policy.attributes_field is None:
        values = {name: [find_all(layout, split(path))] for name, path in policy.named_values}
    else:
        found = _attributes(layout, split(policy.attributes_field), policy)
        values = {name: [found.get(path, ())] for name, path in policy.named_values}
    return Shape(times=[time], form=form, values=values)


def _attributes(layout: Layout, array: Path, policy: Policy) -> dict[str, Cell]:
    """Returns the values of all attributes by their names, which are part of the layout: see `NamesIn`."""
    held = find(layout, array)
    if held is None:
        return {}
    if held.type != ARRAY:
        raise Breach(
            ".".join(array), f"{TYPE_NAMES[held.type]} stands where the array of attributes is needed"
        )
    found: dict[str, Cell] = {}
    for attribute in layout.children(array):
        if attribute.type != DOCUMENT:
            where = "an attribute is needed"
            raise Breach(".".join(attribute.path), f"{TYPE_NAMES[attribute.type]} stands where {where}")
        key = need(layout, (*attribute.path, *split(policy.attribute_key)), (STRING,), "attribute's name")
        name = layout.text(key)
        value = find_all(layout, (*attribute.path, *split(policy.attribute_value)))
        if name in found and name in policy.value_fields:
            raise Breach(".".join(attribute.path), f'the attribute "{name}" appears twice')
        found[name] = value
    return found


def range_query(policy: Policy, form: TimeForm, start_ms: int, end_ms: int) -> dict[str, Any]:
    """Returns a query for every bucket that may hold a reading in [start, end)."""
    return any_of(form.ranges(str(policy.time_field), start_ms, end_ms - 1))
