"""The `reading` model: one document a reading, {symbol: "MDB", d: ISODate(…), p: 56.58}.

Its values are fields, or attributes: an array of names and values, [{k: "p", v: 56.58}, …].
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar, TypeVar

from bson import DatetimeMS
from pymongo import InsertOne

from bucketwise.buckets.bson.types import ARRAY, DOCUMENT, STRING, TYPE_NAMES
from bucketwise.buckets.fields.textforms import own_form_of
from bucketwise.buckets.fields.timeforms import TimeForm, any_of
from bucketwise.buckets.layouts.layout import Cell, Layout, Path
from bucketwise.buckets.models.model import Attributes, BucketModel, Document, Operation
from bucketwise.buckets.models.shape import Breach, Shape, TargetNames, find, find_all, need, split
from bucketwise.config.models import ReadingPolicy, SinglePolicy

S = TypeVar("S", bound=SinglePolicy)


class SingleModel(BucketModel[S]):
    """A document a reading, in whichever collection."""

    @cached_property
    def own_form(self) -> TimeForm:
        """Returns the form of a reading's time."""
        policy = self.policy
        return own_form_of(policy, policy.time_unit or "date", policy.time_format)

    def _shape_in(self, layout: Layout) -> Shape:
        policy = self.policy
        time, form = self.own_time(layout, self.first_field)
        if policy.attributes_field is None:
            values = {name: [find_all(layout, split(path))] for name, path in policy.named_values}
        else:
            found = _attributes(layout, split(policy.attributes_field), policy)
            values = {name: [found.get(path, ())] for name, path in policy.named_values}
        return Shape(times=[time], form=form, values=values)

    @property
    def first_field(self) -> str:
        """Returns the field with the reading's time; of several, the first."""
        return self.policy.time_fields[0]

    last_field = first_field

    @property
    def attributes(self) -> Attributes | None:
        """Returns where a document has attributes; None where its values are fields."""
        if self.policy.attributes_field is None:
            return None
        return Attributes(split(self.policy.attributes_field), split(self.policy.attribute_key))

    def range_query(self, form: TimeForm, start_ms: int, end_ms: int) -> Document:
        """Returns a query for every reading in [start, end)."""
        return any_of(form.ranges(self.first_field, start_ms, end_ms - 1))

    @property
    def own_fields(self) -> list[str]:
        """Returns the fields with the reading's time and its attributes."""
        return [it for it in (*self.policy.time_fields, self.policy.attributes_field) if it]

    @classmethod
    def target_keys(cls, name: str, names: TargetNames, *, is_whole_minutes: bool) -> Document:
        """Returns the keys of a policy that reads the target."""
        return {"time_field": names.time}

    def document(self, times: list[int], values: dict[str, list[Any]]) -> Document:
        """Returns the fields of the document of one reading."""
        fields = {name: it[0] for name, it in values.items() if it[0] is not None}
        return {self.first_field: DatetimeMS(times[0]), **fields}

    def written(
        self, document: Document, series: Document, ms: int, values: Document, size: int
    ) -> Operation:
        """Returns the insertion of the reading."""
        return InsertOne(document)


class ReadingModel(SingleModel[ReadingPolicy]):
    """A document a reading."""

    name: ClassVar[str] = "reading"
    targets: ClassVar[tuple[str, ...]] = ("reading",)

    @property
    def telling_nulls(self) -> list[Path]:
        """Returns the value fields: a reading may have a value that is null."""
        return [split(it) for it in self.policy.value_fields]

    @property
    def against_duplicates(self) -> str:
        """Returns the unique index that keeps a reading from being written twice."""
        fields = (*self.policy.stored_series.values(), self.first_field)
        return f"a unique index keeps them out: {{{', '.join(f'{it}: 1' for it in fields)}}}"


def _attributes(layout: Layout, array: Path, policy: SinglePolicy) -> dict[str, Cell]:
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
