"""How samples lie in their array: as sub-documents with named fields, or as pairs of a time and values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from bson import DatetimeMS

from bucketwise.buckets.bson.types import ARRAY, DOCUMENT, TYPE_NAMES
from bucketwise.buckets.fields.timeforms import TimeForm, any_of
from bucketwise.buckets.layouts.layout import Layout, Path, ReadingCells
from bucketwise.buckets.models.series import SERIES_TYPES_IN_SAMPLE
from bucketwise.buckets.models.shape import Breach, Shape, find_all, need, need_all, nested, split, take_all
from bucketwise.config.policies import Policy

Document = dict[str, Any]


@dataclass(frozen=True)
class SampleDocuments:
    """Samples that are sub-documents, [{time: ISODate(…), val: 50}, …]: where each has what."""

    #: The BSON type of a sample.
    kind: ClassVar[int] = DOCUMENT
    time: Path
    values: dict[str, Path]  # by the name of the value field
    series: dict[str, Path]  # by the name of the series field
    defaulted: frozenset[str] = frozenset()  # series fields that may be missing

    @classmethod
    def of(cls, policy: Policy, time: str | None) -> SampleDocuments:
        """Returns how samples lie in an array. `time`: the field of their time."""
        series = {name: split(path) for name, path in policy.sample_series.items()}
        values = {name: split(path) for name, path in policy.named_values}
        return cls(split(time or ""), values, series, frozenset(policy.default_series))

    def shape(self, layout: Layout, array: Path, form: TimeForm) -> Shape:
        """Returns where the readings of an array lie, each with its time in this form. Raises Breach."""
        need(layout, array, (ARRAY,), "array of samples")
        times = ReadingCells()
        values = {name: ReadingCells() for name in self.values}
        series = {name: ReadingCells() for name in self.series}
        for sample in layout.children(array):
            if sample.type != self.kind:
                found = f"{TYPE_NAMES[sample.type]} stands where a sample is needed"
                raise Breach(".".join(sample.path), found)
            times.append(need_all(layout, sample.path, self.time, form.types, "time"))
            for name, path in self.values.items():
                values[name].append(find_all(layout, (*sample.path, *path)))
            for name, path in self.series.items():
                find = take_all if name in self.defaulted else need_all
                series[name].append(find(layout, sample.path, path, SERIES_TYPES_IN_SAMPLE, "series"))
        return Shape(values=values, times=times, form=form, series=series)

    def value_path(self, array: Path, path: str) -> Path:
        """Returns where in a bucket a value field is; "*" stands for any sample."""
        return (*array, "*", *split(path))

    def time_path(self, array: Path) -> str | None:
        """Returns the path of all times, as an index or a projection names it; None where there is none."""
        return ".".join((*array, *self.time))

    def time_of(self, sample: object) -> Any:
        """Returns the time of a sample, as pymongo gives it. A time may be given in place of its sample."""
        if isinstance(sample, list):
            return sample[0] if sample else None
        if not isinstance(sample, dict):
            return sample
        found: Any = sample
        for part in self.time:
            found = found.get(part) if isinstance(found, dict) else None
        return found

    def query(self, array: str, form: TimeForm, first_ms: int, last_ms: int) -> Document:
        """Returns a query for buckets with a sample from first to last."""
        return {array: {"$elemMatch": any_of(form.roughly(".".join(self.time), first_ms, last_ms))}}

    def surplus(self, layout: Layout, array: Path) -> Iterator[str]:
        """Yields what samples hold that no name of the policy could stand for."""
        yield from ()

    def sample(self, ms: int, values: Document) -> Document:
        """Returns a sample with these values, by dotted names."""
        return {".".join(self.time): DatetimeMS(ms), **nested(values)}


class SamplePairs(SampleDocuments):
    """Samples that are arrays of their time and their values, in the order of `value_fields`: [[ISODate(…),
    50], …]."""

    kind: ClassVar[int] = ARRAY

    @classmethod
    def of(cls, policy: Policy, time: str | None) -> SamplePairs:
        """Returns how pairs lie in an array."""
        return cls(("0",), {name: (str(at),) for at, name in enumerate(policy.value_names, start=1)}, {})

    def value_path(self, array: Path, path: str) -> Path:
        """Returns the array: places in it have no names."""
        return array

    def time_path(self, array: Path) -> str | None:
        """Returns None: MongoDB has indexes on fields of samples, and none on what is in pairs."""
        return None

    def time_of(self, sample: object) -> Any:
        """Returns the first element of a pair. A time may be given in place of its sample."""
        return None if isinstance(sample, dict) else super().time_of(sample)

    def query(self, array: str, form: TimeForm, first_ms: int, last_ms: int) -> Document:
        """Returns a query for buckets with a pair from first to last."""
        held: Document = {"$cond": [{"$isArray": f"${array}"}, f"${array}", []]}
        time_of: Document = {"$cond": [{"$isArray": "$$this"}, {"$arrayElemAt": ["$$this", 0]}, None]}
        inside = {"$let": {"vars": {"time": time_of}, "in": form.is_roughly("$$time", first_ms, last_ms)}}
        return {"$expr": {"$anyElementTrue": [{"$map": {"input": held, "in": inside}}]}}

    def surplus(self, layout: Layout, array: Path) -> Iterator[str]:
        """Yields the places behind the last value."""
        for element in layout.elements:
            if element.path[:-2] == array and int(element.path[-1]) > len(self.values):
                yield ".".join((*array, "*", element.path[-1]))
