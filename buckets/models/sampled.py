"""How samples lie in their array: as sub-documents with named fields, or as pairs of a time and values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from bson import DatetimeMS

from bucketwise.buckets.bson.types import ARRAY, DOCUMENT, NOTHING, TYPE_NAMES, elements, first_at
from bucketwise.buckets.fields.elapsed import BucketStart, ElapsedForm
from bucketwise.buckets.fields.timeforms import TimeForm, any_of
from bucketwise.buckets.fields.times import as_date
from bucketwise.buckets.layouts.layout import Cell, Layout, Path, ReadingCells
from bucketwise.buckets.models.series import SERIES_TYPES_IN_SAMPLE
from bucketwise.buckets.models.shape import Breach, Shape, find_all, need, need_all, nested, split, take_all
from bucketwise.config.policies import Policy

Document = dict[str, Any]
#: The date that a variable holds, or that its text says; null where it is none.
_DATE: Document = {
    "$cond": [
        {"$in": [{"$type": "$$time"}, ["date", "string"]]},
        {"$convert": {"input": "$$time", "to": "date", "onError": None, "onNull": None}},
        None,
    ]
}


@dataclass(frozen=True)
class SampleDocuments:
    """Samples that are sub-documents, [{time: ISODate(…), val: 50}, …]: where each has what."""

    #: The BSON type of a sample.
    kind: ClassVar[int] = DOCUMENT
    time: Path
    values: dict[str, Path]  # by the name of the value field
    series: dict[str, Path]  # by the name of the series field
    defaulted: frozenset[str] = frozenset()  # series fields that may be missing
    further: tuple[Path, ...] = ()  # of the time, where several fields make it

    @classmethod
    def of(cls, policy: Policy, time: Sequence[str]) -> SampleDocuments:
        """Returns how samples lie in an array. `time`: the fields of their time."""
        series = {name: split(path) for name, path in policy.sample_series.items()}
        values = {name: split(path) for name, path in policy.named_values}
        first, *further = map(split, time)
        return cls(first, values, series, frozenset(policy.default_series), tuple(further))

    @property
    def holders(self) -> list[Path]:
        """Returns the paths of further arrays that hold something of each sample."""
        return []

    def used_paths(self, array: Path) -> list[Path]:
        """Returns where in a bucket times lie; "*" stands for any sample."""
        return [(*array, "*", *it) for it in (self.time, *self.further)]

    def raw_times(self, document: bytes, array: Path) -> list[bytes]:
        """Returns the time of each sample of a bucket, its BSON type in front."""
        held = first_at(document, array)[1:]
        return [first_at(held[value:end], self.time) for _, value, end in elements(held)]

    def shape(self, layout: Layout, array: Path, form: TimeForm) -> Shape:
        """Returns where the readings of an array lie, each with its time in this form. Raises Breach."""
        need(layout, array, (ARRAY,), "array of samples")
        times, further = ReadingCells(), tuple(ReadingCells() for _ in self.further)
        values = {name: ReadingCells() for name in self.values}
        series = {name: ReadingCells() for name in self.series}
        for sample in layout.children(array):
            if sample.type != self.kind:
                found = f"{TYPE_NAMES[sample.type]} stands where a sample is needed"
                raise Breach(".".join(sample.path), found)
            times.append(need_all(layout, sample.path, self.time, form.types, "time"))
            for cells, path in zip(further, self.further, strict=True):
                cells.append(need_all(layout, sample.path, path, form.types, "time"))
            for name, path in self.values.items():
                values[name].append(find_all(layout, (*sample.path, *path)))
            for name, path in self.series.items():
                find = take_all if name in self.defaulted else need_all
                series[name].append(find(layout, sample.path, path, SERIES_TYPES_IN_SAMPLE, "series"))
        if isinstance(form, ElapsedForm):
            form = form.beside(further)
        return Shape(values=values, times=times, form=form, series=series)

    def value_path(self, array: Path, path: str) -> Path:
        """Returns where in a bucket a value field is; "*" stands for any sample."""
        return (*array, "*", *split(path))

    def time_path(self, array: Path) -> str | None:
        """Returns the path of all times, as an index or a projection names it; None where there is none."""
        return None if self.further else ".".join((*array, *self.time))

    def time_of(self, sample: object) -> Any:
        """Returns the time of a sample, as pymongo gives it; a tuple where several fields make it. A time may
        be given in place of its sample."""
        if isinstance(sample, list):
            return sample[0] if sample else None
        if not isinstance(sample, Mapping):  # a raw document is no dict
            return sample
        found = tuple(_at(sample, it) for it in (self.time, *self.further))
        return found if self.further else found[0]

    def query(self, array: str, form: TimeForm, first_ms: int, last_ms: int) -> Document:
        """Returns a query for buckets with a sample from first to last."""
        return {array: {"$elemMatch": any_of(form.roughly(".".join(self.time), first_ms, last_ms))}}

    def last_within(self, array: str, first_ms: int, last_ms: int) -> Document:
        """Returns a query for buckets whose last time, a date or text, is from first to last: the server
        looks into each."""
        of_sample = {"$let": {"vars": {"time": self._time_in("$$this")}, "in": _DATE}}
        last = {"$max": {"$map": {"input": held_in(array), "in": of_sample}}}
        return {"$expr": {"$and": [{"$gte": [last, as_date(first_ms)]}, {"$lte": [last, as_date(last_ms)]}]}}

    def elapsed_query(
        self, array: str, form: ElapsedForm, own: BucketStart, span: tuple[int, int]
    ) -> Document:
        """Returns a query for buckets with a sample in the span, whose time counts from their start."""
        times = [self._time_in("$$this"), *(".".join(("$$this", *it)) for it in self.further)]
        return form.query(own, times, held_in(array), span)

    def _time_in(self, sample: str) -> Any:
        """Returns the expression of the time in a sample."""
        return ".".join((sample, *self.time))

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
    def of(cls, policy: Policy, time: Sequence[str]) -> SamplePairs:
        """Returns how pairs lie in an array."""
        return cls(("0",), {name: (str(at),) for at, name in enumerate(policy.value_names, start=1)}, {})

    def used_paths(self, array: Path) -> list[Path]:
        """Returns nothing: times are in pairs, as values are."""
        return []

    def value_path(self, array: Path, path: str) -> Path:
        """Returns the array: places in it have no names."""
        return array

    def time_path(self, array: Path) -> str | None:
        """Returns None: MongoDB has indexes on fields of samples, and none on what is in pairs."""
        return None

    def time_of(self, sample: object) -> Any:
        """Returns the first element of a pair. A time may be given in place of its sample."""
        return None if isinstance(sample, Mapping) else super().time_of(sample)

    def query(self, array: str, form: TimeForm, first_ms: int, last_ms: int) -> Document:
        """Returns a query for buckets with a pair from first to last."""
        within = form.is_roughly("$$time", first_ms, last_ms)
        inside = {"$let": {"vars": {"time": self._time_in("$$this")}, "in": within}}
        return {"$expr": {"$anyElementTrue": [{"$map": {"input": held_in(array), "in": inside}}]}}

    def _time_in(self, sample: str) -> Any:
        """Returns the expression of the first element of a pair."""
        return {"$cond": [{"$isArray": sample}, {"$arrayElemAt": [sample, 0]}, None]}

    def surplus(self, layout: Layout, array: Path) -> Iterator[str]:
        """Yields the places behind the last value."""
        for element in layout.elements:
            if element.path[:-2] == array and int(element.path[-1]) > len(self.values):
                yield ".".join((*array, "*", element.path[-1]))


class ParallelArrays(SampleDocuments):
    """Samples that lie in arrays side by side, {ts: [ISODate(…), …], val: [50, …]}: the n-th elements of all
    are one. The array of times stands for them."""

    @classmethod
    def of(cls, policy: Policy, time: Sequence[str]) -> ParallelArrays:
        """Returns which arrays hold the values of samples."""
        return cls((), {name: split(path) for name, path in policy.named_values}, {})

    @property
    def holders(self) -> list[Path]:
        """Returns the paths of the arrays of values."""
        return list(self.values.values())

    def shape(self, layout: Layout, array: Path, form: TimeForm) -> Shape:
        """Returns where the readings of the arrays lie. Raises Breach."""
        need(layout, array, (ARRAY,), "array of times")
        places = _places(layout, array)
        times = ReadingCells(need_all(layout, (*array, place), (), form.types, "time") for place in places)
        values = {name: ReadingCells(_cells(layout, path, places)) for name, path in self.values.items()}
        parallel = {}
        for path in self.values.values():
            if not find_all(layout, path):
                continue  # of the whole bucket there is no value
            held = _places(layout, path)
            alike = min(len(held), len(places)) if layout.variants else None  # of a union, each is looked at
            if held[:alike] != places[:alike]:
                raise Breach(".".join(path), unlike(len(held), ".".join(array), len(places)))
            parallel[".".join(path)] = ReadingCells(layout.cell((*path, place)) for place in held)
        return Shape(values=values, times=times, form=form, parallel=parallel)

    def value_path(self, array: Path, path: str) -> Path:
        """Returns where in a bucket a value field is; "*" stands for any sample."""
        return (*split(path), "*")

    def used_paths(self, array: Path) -> list[Path]:
        """Returns where in a bucket times lie; "*" stands for any sample."""
        return [(*array, "*")]

    def raw_times(self, document: bytes, array: Path) -> list[bytes]:
        """Returns the time of each sample of a bucket, its BSON type in front."""
        held = first_at(document, array)[1:]
        return [held[start : start + 1] + held[value:end] for start, value, end in elements(held)]

    def time_path(self, array: Path) -> str | None:
        """Returns the path of the array of times: it has an index of each of them."""
        return ".".join(array)

    def time_of(self, sample: object) -> Any:
        """Returns the time itself."""
        return sample

    def query(self, array: str, form: TimeForm, first_ms: int, last_ms: int) -> Document:
        """Returns a query for buckets with a time from first to last."""
        return any_of([{array: {"$elemMatch": it[array]}} for it in form.roughly(array, first_ms, last_ms)])

    def _time_in(self, sample: str) -> Any:
        """Returns the expression of the time itself."""
        return sample


def unlike(length: int, times: str, places: int) -> str:
    """Returns what is wrong with an array of values that is not as long as that of the times."""
    return f"the array holds {length:,} values, and {times} holds {places:,} times"


def _places(layout: Layout, array: Path) -> list[str]:
    """Returns the names of an array's elements, each once."""
    children = layout.children(array)
    if array in layout.repeated or any(it.path in layout.repeated for it in children):
        raise Breach(".".join(array), "the field appears twice")
    return list(dict.fromkeys(it.path[-1] for it in children))


def _cells(layout: Layout, array: Path, places: list[str]) -> Iterator[Cell]:
    """Yields the value at each place of an array."""
    held = find_all(layout, array)
    for element in held:
        if element.type != ARRAY:
            reason = f"{TYPE_NAMES[element.type]} stands where an array of values is needed"
            raise Breach(".".join(array), reason)
    for place in places:
        cell = layout.cell((*array, place)) if held else ()
        yield tuple(it for it in cell if it.type not in NOTHING)


def _at(sample: object, path: Path) -> Any:
    for part in path:
        sample = sample.get(part) if isinstance(sample, Mapping) else None
    return sample


def held_in(array: str) -> Document:
    """Returns the expression of what an array holds: nothing where another type stands there."""
    return {"$cond": [{"$isArray": f"${array}"}, f"${array}", []]}
