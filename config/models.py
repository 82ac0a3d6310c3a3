"""The policies of each bucket model: the keys that go with it, and which of them contradict each other."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from types import NoneType
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BeforeValidator, Field, TypeAdapter
from pydantic.fields import FieldInfo

from bucketwise.config.policies import SUMMARY_KEYS, ElapsedUnit, Policy, TimeUnit
from bucketwise.config.problems import Fault, InvalidValueError, Key, ProblemReport, nearest
from bucketwise.config.times import CALENDAR_DAYS, NEXT_UNIT, format_fault, length_of
from bucketwise.config.values import Fields, FirstSlot, List, SlotText, SpanText

SlotUnit = Literal["second", "minute", "hour"]
#: What keys of slots are: numbers, clock times, or numbers that count on through the bucket.
SlotKeys = Literal["number", "clock", "running"]
#: What numbers may count since 1970.
_COUNTED = ("s", "ms", "us", "ns")
_UNITS: tuple[str, ...] = (*get_args(TimeUnit), *get_args(ElapsedUnit))
#: Of several fields, the largest first.
_PARTS = ("h", "m", "s", "ms")
_SOME_PARTS = 'write units of times in a bucket, the largest first, such as ["m", "s"] or ["+m", "+s"]'


def _units(value: Any) -> Any:
    if isinstance(value, list | tuple):
        parts = [it.removeprefix("+") if isinstance(it, str) else "" for it in value]
        if len(parts) < 2 or [it for it in _PARTS if it in parts] != parts:
            raise InvalidValueError("these are not the units of several fields", _SOME_PARTS)
        if len({it.startswith("+") for it in value}) > 1:
            raise InvalidValueError("some count from the bucket's start, and some do not", _SOME_PARTS)
        return tuple(value)
    if value is not None and value not in _UNITS:
        near = nearest(str(value), _UNITS)
        some = " or ".join(f'"{it}"' for it in _UNITS)
        remedy = f'did you mean "{near}"? It may be {some}' if near else f"write {some}"
        raise InvalidValueError("it is not one of the choices", remedy)
    return value


#: The unit of the time in a sample, or those of the fields that make it.
SampleUnits = Annotated[str | tuple[str, ...] | None, BeforeValidator(_units)]


class SinglePolicy(Policy):
    """A policy of documents of one reading each: its values are fields, or attributes."""

    bucket_keys: ClassVar[tuple[str, ...]] = ("attributes_field",)

    time_field: Fields
    time_unit: TimeUnit | None = None  # of `time_field`; None: dates
    time_format: str | None = None  # of text in `time_field`, as strptime has it
    attributes_field: str | None = None  # an array of {k: name, v: value}
    attribute_key: str = "k"
    attribute_value: str = "v"
    overflow: None = None

    @property
    def has_values_inside(self) -> bool:
        """Returns whether its values are attributes."""
        return self.attributes_field is not None

    @property
    def inside(self) -> list[tuple[str, str]]:
        """Returns the fields that each attribute has, each with its key."""
        names = [("attribute_key", self.attribute_key), ("attribute_value", self.attribute_value)]
        return names if self.attributes_field is not None else []

    def check(self, at: Key, report: ProblemReport) -> None:
        """Reports names of an attribute's fields where there are no attributes, and times of no form."""
        _check_format("time", self.time_format, self.time_unit, at, report)
        _check_several(self, self.time_format, at, report)
        for key in ("attribute_key", "attribute_value"):
            if self.attributes_field is None and key in self.model_fields_set:
                fault = Fault("the policy names no attributes", "add `attributes_field`, or remove this")
                report.add((*at, key), fault, rests_on=[(*at, "attributes_field")])


class ReadingPolicy(SinglePolicy):
    """A policy of a collection with a document a reading."""

    model: Literal["reading"]


class TimeSeriesPolicy(SinglePolicy):
    """A policy of a native time-series collection."""

    #: Why such a collection has no change streams.
    UNSTREAMED: ClassVar[str] = "native time-series collections have no change streams"

    model: Literal["timeseries"]
    time_field: str
    time_unit: None = None
    time_format: None = None

    def check(self, at: Key, report: ProblemReport) -> None:
        """Reports a roll-up that insists on a change stream."""
        super().check(at, report)
        if self.rollup is not None and self.rollup.late_data == "stream":
            report.add((*at, "rollup", "late_data"), Fault(self.UNSTREAMED, 'write "auto" or "scan"'))


class SlotsPolicy(Policy):
    """A policy of buckets with a slot for each unit of their time."""

    stars_values: ClassVar[bool] = True
    alternatives: ClassVar[dict[str, str]] = {"slot": "slot_levels"}

    model: Literal["slots"]
    time_field: Fields
    time_unit: TimeUnit | None = None  # of `time_field`; None: dates
    time_format: str | None = None  # of text in `time_field`, as strptime has it
    slot: SlotText | None = None
    slot_levels: List[SlotUnit] = ()  # outer first; replaces `slot`
    span: SpanText | None = None  # of a bucket; None: the next larger unit
    first_slot: FirstSlot = 0  # what the first one is called
    slot_keys: SlotKeys = "number"
    slot_time: Literal["elapsed", "local"] = "elapsed"

    def check(self, at: Key, report: ProblemReport) -> None:
        """Reports slots that are not told, or told twice, units that do not lie inside each other, and times
        of no form."""
        levels = self.slot_levels
        _check_format("time", self.time_format, self.time_unit, at, report)
        _check_several(self, self.time_format, at, report)
        if self.slot is None and "slot_levels" not in self.model_fields_set:
            rests_on = [(*at, "model"), (*at, "slot_levels")]
            report.add((*at, "slot"), missing("slots", "slot"), rests_on=rests_on)
        if levels and self.slot is not None:
            fault = Fault("`slot_levels` says the same", "write one of the two")
            report.add((*at, "slot"), fault, rests_on=[(*at, "slot_levels")])
        if "slot_levels" in self.model_fields_set and not levels:
            remedy = 'name the units of the slots, outer first, such as ["minute", "second"]'
            report.add((*at, "slot_levels"), Fault("it is empty", remedy))
        for outer, inner in itertools.pairwise(levels):
            if length_of(outer) <= length_of(inner):
                message = f'"{inner}" slots do not lie inside "{outer}" slots'
                report.add((*at, "slot_levels"), Fault(message, "name the larger unit first"))
        if outermost := levels[0] if levels else self.slot:
            self._check_span(outermost, at, report)
            self._check_keys(self.span or NEXT_UNIT.get(outermost), at, report)

    def _check_span(self, slot: str, at: Key, report: ProblemReport) -> None:
        """Reports a bucket that slots of this width don't divide."""
        key, span = (*at, "span"), self.span
        rests_on = [(*at, "slot"), (*at, "slot_levels")]
        if span is None and slot not in NEXT_UNIT:
            some = '"week" or "month"' if slot == "day" else 'such as "day"'
            message = f'it is missing, and slots of "{slot}" need it'
            fault = Fault(message, f"add `span`: how long a bucket is, {some}")
            report.add(key, fault, rests_on=rests_on)
        elif span is not None and slot == "day" and span not in ("week", "month"):
            fault = Fault("slots of a day are in buckets of a week or a month", 'write "week" or "month"')
            report.add(key, fault, rests_on=rests_on)
        elif span is not None and length_of(span) <= length_of(slot):
            message = f"a bucket of a {span} does not hold slots of a {slot}"
            report.add(key, Fault(message, "write a larger unit, or leave it out"), rests_on=rests_on)
        elif span is not None and length_of("day" if span in CALENDAR_DAYS else span) % length_of(slot):
            fault = Fault(f'slots of "{slot}" do not divide it', "write a multiple of the slot")
            report.add(key, fault, rests_on=rests_on)

    def _check_keys(self, span: str | None, at: Key, report: ProblemReport) -> None:
        """Reports names of slots that don't go with the slots, or with a bucket of this span."""
        key = (*at, "slot_keys")
        rests_on = [(*at, "span"), (*at, "slot"), (*at, "slot_levels")]
        if self.slot_keys == "running" and len(self.slot_levels) < 2:
            remedy = 'remove it, or write such as slot_levels = ["hour", "minute"]'
            report.add(key, Fault("only slots inside slots count on", remedy), rests_on=rests_on)
        if self.slot_keys == "clock":
            if len(self.slot_levels) > 1 or span != "day":
                remedy = 'write span = "day", or remove it'
                fault = Fault("clock times are keys of a day, on one level", remedy)
                report.add(key, fault, rests_on=rests_on)
            if self.first_slot:
                fault = Fault("clock times are not counted", "remove it")
                report.add((*at, "first_slot"), fault, rests_on=[key])
        if self.slot_time == "local" and span not in CALENDAR_DAYS:
            message = "only in days, weeks and months do clocks tell the slot"
            report.add(
                (*at, "slot_time"), Fault(message, 'write span = "day", or "elapsed"'), rests_on=rests_on
            )


class SamplesPolicy(Policy):
    """A policy of buckets with an array of samples."""

    bucket_keys: ClassVar[tuple[str, ...]] = ("samples_field", "start_field", "end_field", "count_field")
    alternatives: ClassVar[dict[str, str]] = {
        "samples_field": "samples_as",
        "sample_time_field": "samples_as",
    }

    model: Literal["samples"]
    time_field: None = None
    time_unit: TimeUnit | None = None  # of `start_field` and `end_field`; None: seconds
    time_format: str | None = None  # of text in them, as strptime has it
    samples_field: str | None = None
    samples_as: Literal["documents", "pairs", "arrays"] = "documents"
    sample_time_field: Fields | None = None
    sample_time_unit: SampleUnits = None  # None: seconds; a list goes with several fields
    sample_time_format: str | None = None
    start_field: str | None = None  # None: it starts with its first sample
    end_field: str | None = None  # None: it ends with its last sample
    count_field: str | None = None
    sum_fields: dict[str, str] = Field(default={})  # value field -> the bucket's field that holds its sum

    @property
    def sample_time_fields(self) -> tuple[str, ...]:
        """Returns the fields of the time in a sample: mostly one; none in pairs."""
        named = self.sample_time_field
        return (named,) if isinstance(named, str) else named or ()

    @property
    def elapsed_units(self) -> tuple[str, ...]:
        """Returns the units of times that count within a bucket; none where samples tell times as such."""
        units = self.sample_time_unit
        if isinstance(units, tuple):
            return units
        return (units,) if units is not None and units.startswith("+") else ()

    @property
    def named_sums(self) -> dict[str, str]:
        """Returns the bucket's field that holds the sum of a value field, by the name of that."""
        return {name: self.sum_fields[path] for name, path in self.named_values if path in self.sum_fields}

    @property
    def starred_array(self) -> str | None:
        """Returns the array in which a series field may lie; None where samples have no fields."""
        return self.samples_field if self.samples_as == "documents" else None

    @property
    def has_values_inside(self) -> bool:
        """Returns whether values lie in samples, and not in arrays of their own."""
        return self.samples_as != "arrays"

    @property
    def sums(self) -> dict[str, str]:
        """Returns the bucket's field that holds the sum of a value field."""
        return self.sum_fields

    @property
    def inside(self) -> list[tuple[str, str]]:
        """Returns the fields that a sample has, each with its key."""
        time = [("sample_time_field", it) for it in self.sample_time_fields]
        series = [("series_fields", it) for it in self.sample_series.values()]
        values = [("value_fields", it) for it in self.value_fields]
        offset = [("local_offset_field", self.local_offset_field)] if self.local_offset_field else []
        if self.samples_as == "arrays":  # in the bucket, beside all else
            named = [(key, path) for key in self.bucket_keys if (path := getattr(self, key)) is not None]
            return [*time, *values, *offset, *named]
        return [*time, *series, *values, *offset]

    def check(self, at: Key, report: ProblemReport) -> None:
        """Reports a time of samples that is not told, or told of pairs, times of no form, and overflow
        without bounds."""
        _check_format("time", self.time_format, self.time_unit, at, report)
        _check_format("sample_time", self.sample_time_format, self.sample_time_unit, at, report)
        self._check_array(at, report)
        self._check_elapsed(at, report)
        key = (*at, "sample_time_field")
        if self.samples_as == "pairs" and self.sample_time_field is not None:
            fault = Fault("the time of a pair is its first element, and has no name", "remove it")
            report.add(key, fault, rests_on=[(*at, "samples_as")])
        if self.samples_as != "pairs" and self.sample_time_field is None:
            fault = missing("samples", "sample_time_field")
            report.add(key, fault, rests_on=[(*at, "model"), (*at, "samples_as")])
        for name, what in (("start_field", "begin"), ("end_field", "end")):
            if self.overflow is not None and getattr(self, name) is None:
                message = "it is missing, and buckets with overflow need it: "
                message += f"their own samples don't show when they {what}"
                fault = Fault(message, f"add `{name}` to the policy")
                report.add((*at, name), fault, rests_on=[(*at, "overflow")])
        if self.start_field is None and self.end_field is None and self.time_unit is not None:
            message = "the policy names no field for a bucket's own times"
            fault = Fault(message, "add `start_field` or `end_field`, or let `sample_time_unit` say it")
            report.add((*at, "time_unit"), fault, rests_on=[(*at, "start_field"), (*at, "end_field")])
        if self.start_field is None and self.end_field is None and self.sample_time_format is not None:
            fault = Fault("MongoDB can't find buckets by text of such a format", "add `start_field`")
            report.add((*at, "sample_time_format"), fault, rests_on=[(*at, "start_field")])

    def _check_elapsed(self, at: Key, report: ProblemReport) -> None:
        """Reports times within a bucket that have nothing to count from, and fields without a unit each."""
        key, fields, units = (*at, "sample_time_unit"), self.sample_time_fields, self.elapsed_units
        if len(fields) > 1 and len(units) != len(fields):
            remedy = 'write a list with a unit for each, such as ["m", "s"] or ["+m", "+s"]'
            fault = Fault("each field of a sample's time needs a unit", remedy)
            report.add(key, fault, rests_on=[(*at, "sample_time_field")])
        elif len(units) > 1 and len(fields) != len(units):
            fault = Fault("a list of units goes with a list of fields", "write one unit, or name the fields")
            report.add(key, fault, rests_on=[(*at, "sample_time_field"), (*at, "samples_as")])
        elif len(fields) > 1 and self.samples_as != "documents":
            fault = Fault("only samples that are documents have several fields for their time", "name one")
            report.add((*at, "sample_time_field"), fault, rests_on=[(*at, "samples_as")])
        if units and self.start_field is None:
            fault = Fault("it counts from the start of a bucket, and nothing tells that", "add `start_field`")
            report.add(key, fault, rests_on=[(*at, "start_field")])
        if units and self.overflow is not None:
            fault = Fault("times in overflow do not count from the bucket's start", "write another unit")
            report.add(key, fault, rests_on=[(*at, "overflow")])

    def _check_array(self, at: Key, report: ProblemReport) -> None:
        """Reports an array of samples that is not told, or told of arrays side by side."""
        key, rests_on = (*at, "samples_field"), [(*at, "model"), (*at, "samples_as")]
        if self.samples_as == "arrays":
            if self.samples_field is not None:
                message = (
                    "parallel arrays are fields of the document: sample_time_field and value_fields name them"
                )
                report.add(key, Fault(message, "remove it"), rests_on=rests_on)
            if self.overflow is not None:
                fault = Fault("parallel arrays have no overflow", "remove it, or let samples be documents")
                report.add((*at, "overflow"), fault, rests_on=rests_on)
        elif self.samples_field is None:
            report.add(key, missing("samples", "samples_field"), rests_on=rests_on)


def _check_format(name: str, text: str | None, unit: object, at: Key, report: ProblemReport) -> None:
    """Reports a format that tells no time, and a unit beside it. `name`: of the keys, before `_format`."""
    key = (*at, f"{name}_format")
    if text is not None and (fault := format_fault(text)):
        report.add(key, fault)
    elif text is not None and unit is not None and not (text == "%s" and unit in _COUNTED):
        message = f'{name}_format says what the text is; a unit goes with "%s" alone'
        report.add((*at, f"{name}_unit"), Fault(message, "remove one of the two"), rests_on=[key])


def _check_several(policy: Policy, format: str | None, at: Key, report: ProblemReport) -> None:
    """Reports times that lie in several fields, and have no format."""
    if len(policy.time_fields) > 1 and format is None:
        remedy = 'add `time_format`, such as "%Y-%m-%d %H:%M:%S": values are joined by spaces'
        fault = Fault("the text of several fields needs a format", remedy)
        report.add((*at, "time_field"), fault, rests_on=[(*at, "time_format")])
    if len(policy.time_fields) > 1 and policy.overflow is not None:
        fault = Fault("overflow tells the time of a reading in one field", "name one field, or no overflow")
        report.add((*at, "time_field"), fault, rests_on=[(*at, "overflow")])


#: The policies of all models, told apart by `model`.
AnyPolicy = Annotated[
    ReadingPolicy | SlotsPolicy | SamplesPolicy | TimeSeriesPolicy, Field(discriminator="model")
]
_POLICY: TypeAdapter[Policy] = TypeAdapter(AnyPolicy)
MODELS: dict[str, type[Policy]] = {
    "reading": ReadingPolicy,
    "timeseries": TimeSeriesPolicy,
    "slots": SlotsPolicy,
    "samples": SamplesPolicy,
}


def fields_of(kind: type[Policy]) -> dict[str, FieldInfo]:
    """Returns the keys that go with a model, by their attributes, in the order of the policy file: those of
    the model come before `earliest`."""
    fields = {name: it for name, it in kind.model_fields.items() if it.annotation is not NoneType}
    shared = [name for name in fields if name in Policy.model_fields]
    own = [name for name in fields if name not in Policy.model_fields]
    at = shared.index("earliest")
    return {name: fields[name] for name in (*shared[:at], *own, *shared[at:])}


def _all_fields() -> dict[str, FieldInfo]:
    shared = list(Policy.model_fields)
    at = shared.index("earliest")
    own = {name: it for kind in MODELS.values() for name, it in fields_of(kind).items()}
    names = (*shared[:at], *(name for name in own if name not in shared), *shared[at:])
    return {name: Policy.model_fields.get(name) or own[name] for name in names}


#: The keys of the policies of all models, by their attributes, in the order of the policy file.
POLICY_FIELDS = _all_fields()
#: The keys of a policy that say how readings lie in its buckets.
LAYOUT_KEYS = (POLICY_FIELDS.keys() - Policy.model_fields.keys()) | {
    *(
        "model",
        "time_field",
        "series_fields",
        "series_defaults",
        "value_fields",
        "values",
        "overflow",
        "timezone",
    )
}
#: What records of a policy hold of keys that may not even go with its model.
_DEFAULTS = {
    name: list(it.default) if isinstance(it.default, tuple) else it.default
    for name, it in POLICY_FIELDS.items()
    if name in LAYOUT_KEYS - Policy.model_fields.keys() and not it.is_required() and it.default is not None
}


def make_policy(**keys: Any) -> Policy:
    """Returns the policy with these keys, by the class of its model. Raises ValidationError."""
    return _POLICY.validate_python(keys)


def layout_of(policy: Policy) -> dict[str, Any]:
    """Returns the keys that say how readings lie in a policy's buckets, as manifests record them."""
    said = policy.model_dump(mode="json", include=LAYOUT_KEYS, exclude_none=True, by_alias=True)
    for field in said["values"].values():
        for key in SUMMARY_KEYS:
            field.pop(key, None)
    return {**_DEFAULTS, **said}


def recorded_policy(said: Mapping[str, Any]) -> Policy:
    """Returns the policy whose keys were recorded. Those that don't go with its model are defaults of others.
    Raises ValidationError."""
    kind = MODELS.get(str(said.get("model")))
    known = said if kind is None else {key: it for key, it in said.items() if key in fields_of(kind)}
    return make_policy(**known)


def missing(model: str, key: str) -> Fault:
    """Returns what is wrong where a key is not there that a model needs."""
    return Fault(f'it is missing, and a "{model}" bucket needs it', f"add `{key}` to the policy")
