"""The `samples` model: an array of samples, closed by size or by time, with a first and often a last time."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np
from bson import DatetimeMS
from numpy.typing import NDArray
from pymongo import UpdateOne

from bucketwise.buckets.bson.types import ARRAY
from bucketwise.buckets.fields.elapsed import BucketStart, ElapsedForm
from bucketwise.buckets.fields.textforms import form_of
from bucketwise.buckets.fields.timeforms import TimeForm, any_of
from bucketwise.buckets.fields.times import FIRST_MS, LAST_MS
from bucketwise.buckets.fields.values import NUMBERS
from bucketwise.buckets.layouts.layout import Flags, Layout, Path
from bucketwise.buckets.layouts.union import Containers
from bucketwise.buckets.models.model import BucketModel, Document, Operation, Times
from bucketwise.buckets.models.sampled import ParallelArrays, SampleDocuments, SamplePairs
from bucketwise.buckets.models.shape import COUNT_TYPES, Shape, TargetNames, need, split
from bucketwise.config.models import SamplesPolicy
from bucketwise.config.policies import Policy, TimeUnit

#: By `samples_as`.
_SAMPLES: dict[str, type[SampleDocuments]] = {
    "documents": SampleDocuments,
    "pairs": SamplePairs,
    "arrays": ParallelArrays,
}
_MAX_SAMPLES = 10_000


class SamplesModel(BucketModel[SamplesPolicy]):
    """An array of samples."""

    name: ClassVar[str] = "samples"
    may_overflow: ClassVar[bool] = True
    merges_versions: ClassVar[bool] = True
    targets: ClassVar[tuple[str, ...]] = ("samples-50", "samples-200", "samples-1000")
    target_aliases: ClassVar[dict[str, str]] = {"samples": "samples-200"}

    @cached_property
    def samples(self) -> SampleDocuments:
        """Returns how samples lie in the array."""
        return _SAMPLES[self.policy.samples_as].of(self.policy, self.policy.sample_time_fields)

    # How documents are read

    def _shape_in(self, layout: Layout) -> Shape:
        policy, own = self.policy, self.own_form
        first = need(layout, split(policy.start_field), own.types, "time") if policy.start_field else None
        last = need(layout, split(policy.end_field), own.types, "time") if policy.end_field else None
        inner = self.samples.shape(layout, self.array, self.reading_form)
        count = need(layout, split(policy.count_field), COUNT_TYPES, "count") if policy.count_field else None
        sums = {name: need(layout, split(it), NUMBERS, "sum") for name, it in policy.named_sums.items()}
        return replace(
            inner,
            bounds=(first, last),
            holder=".".join(self.array),
            own_form=own,
            count=count,
            sums=sums,
        )

    def _overflow_shape_in(self, layout: Layout) -> Shape:
        overflow = self.policy.overflow  # without any, these are samples that a long bucket was cut into
        array = self.array if overflow is None else split(overflow.samples_field)
        return self.samples.shape(layout, array, self.reading_form)

    def _containers(self, paths: Iterable[Path]) -> Containers:
        return super()._containers(paths)._replace(pairs=self.samples.kind == ARRAY)

    @property
    def holders(self) -> list[Path]:
        """Returns the path of the array, or of those that lie side by side: that of the times first."""
        return [self.array, *self.samples.holders]

    @property
    def array(self) -> Path:
        """Returns the path of the array of samples."""
        return split(self.policy.samples_field or "".join(self.policy.sample_time_fields[:1]))

    @property
    def sample_time(self) -> Path | None:
        """Returns the path of a sample's time inside the sample; None where samples have no inside."""
        return self.samples.time or None

    def raw_times(self, document: bytes) -> list[bytes]:
        """Returns the time of each sample of a bucket, its BSON type in front."""
        return self.samples.raw_times(document, self.array)

    # Times

    @cached_property
    def own_form(self) -> TimeForm:
        """Returns the form of a bucket's first and last time; that of its samples where these alone tell."""
        if not self.own_times:
            return self.reading_form
        return form_of(self.policy.time_unit or "s", self.policy.time_format, self.policy.timezone)

    @cached_property
    def reading_form(self) -> TimeForm:
        """Returns the form of the time inside a sample."""
        policy = self.policy
        if units := self.policy.elapsed_units:
            return ElapsedForm.of(units, self.policy.timezone)
        unit = cast(TimeUnit, policy.sample_time_unit or "s")
        return form_of(unit, policy.sample_time_format, policy.timezone)

    @property
    def first_field(self) -> str:
        """Returns the field with a bucket's first time; with its last where no field tells the first; with
        its samples where none tells either."""
        return next(iter(self.own_times), self.samples.time_path(self.array) or ".".join(self.array))

    @property
    def last_field(self) -> str:
        """Returns the field with a bucket's last time; with its first where no field tells the last."""
        return self.policy.end_field or self.first_field

    @property
    def time_field(self) -> str | None:
        """Returns the name of the field in which a sample has its time; None where it has no name."""
        return next(iter(self.policy.sample_time_fields), None)

    @property
    def own_times(self) -> list[str]:
        """Returns the fields of a bucket's first and last time, as far as it has them."""
        return [it for it in (self.policy.start_field, self.policy.end_field) if it]

    @property
    def tells_span(self) -> bool:
        """Returns whether fields tell both a bucket's first and its last time."""
        return self.tells_first and self.tells_last

    @property
    def tells_first(self) -> bool:
        """Returns whether a field tells a bucket's first time."""
        return self.policy.start_field is not None

    @property
    def tells_last(self) -> bool:
        """Returns whether a field tells a bucket's last time."""
        return self.policy.end_field is not None

    @property
    def indexed_fields(self) -> list[str]:
        """Returns the fields of a bucket's own times; without any the times of its samples, where these have
        a name."""
        by_sample = self.samples.time_path(self.array)
        return self.own_times or [it for it in (by_sample,) if it]

    @property
    def span_fields(self) -> tuple[str, str]:
        """Returns the fields that tell which time a bucket covers: its first time, or its samples; and its
        last, or its samples."""
        samples = ".".join(self.array)
        return self.policy.start_field or samples, self.policy.end_field or samples

    @property
    def span_values(self) -> tuple[str, str]:
        """Returns the same fields; of samples the times, where these have a name."""
        samples = self.samples.time_path(self.array) or ".".join(self.array)
        return self.policy.start_field or samples, self.policy.end_field or samples

    @property
    def sample_index(self) -> str | None:
        """Returns the field of an index that tells where samples lie, where no field tells a bucket's last
        time. It has an entry for each sample."""
        if self.tells_last or self.policy.elapsed_units:
            return None
        return self.samples.time_path(self.array)

    @property
    def length_ms(self) -> int | None:
        """Returns None: a bucket may be of any length."""
        return None

    def _told(self, first: object, last: object) -> tuple[int | None, int | None]:
        start = min(self._times(first, None), default=None)
        end = max(self._times(last, start), default=None)
        if start is None and not self.tells_first:
            start = end
        if start is not None and not self.tells_last:
            end = max(start, end or start)
        return start, end

    def _times(self, value: object, start: int | None) -> list[int]:
        """Returns the times in the value of a field: its own, or those of samples in a bucket that starts
        then."""
        form = self.reading_form
        if isinstance(value, list) and isinstance(form, ElapsedForm):
            return [] if start is None else form.after(start, map(self.samples.time_of, value))
        if isinstance(value, list):
            found = (self.reading_form.milliseconds(self.samples.time_of(it)) for it in value)
        else:
            found = (self.own_form.milliseconds(it) for it in [value])
        return [it for it in found if it is not None]

    def sample_ms(self, sample: object, start: int | None) -> int | None:
        """Returns the time of a sample, as pymongo gives that, in milliseconds; None where it has none.
        `start`: of its bucket."""
        form, told = self.reading_form, self.samples.time_of(sample)
        if not isinstance(form, ElapsedForm):
            return form.milliseconds(told)
        return next(iter(form.after(start, [told])), None) if start is not None else None

    # Queries

    def range_query(self, form: TimeForm, start_ms: int, end_ms: int) -> Document:
        """Returns a query for every bucket that may hold a reading in [start, end)."""
        if not self.own_times:
            return self.sample_query(start_ms, end_ms - 1)
        within = form.ranges(self.first_field, start_ms, end_ms - 1)  # one without any sample is there
        if self.tells_first:
            starts = form.ranges(self.first_field, FIRST_MS, end_ms - 1)
        else:
            starts = [self.sample_query(FIRST_MS, end_ms - 1), *within]
        if self.tells_last:
            ends = form.ranges(self.last_field, start_ms, LAST_MS, is_end=True)
        else:
            ends = [self.sample_query(start_ms, end_ms - 1), *within]
        return any_of([{"$and": list(both)} for both in itertools.product(starts, ends)])

    def running_query(self, form: TimeForm, at_ms: int) -> Document | None:
        """Returns a query for every bucket that starts before the instant and may hold a reading at or after
        it."""
        if self.tells_last:
            return self.range_query(form, at_ms, at_ms + 1)
        starts = self.sample_query(FIRST_MS, at_ms)
        if self.tells_first:
            starts = any_of(form.ranges(self.first_field, FIRST_MS, at_ms))
        return {"$and": [starts, self.sample_query(at_ms, LAST_MS)]}

    def ending_queries(self, form: TimeForm, first_ms: int, last_ms: int) -> list[Document]:
        """Returns queries for the buckets whose last time by their fields, or their samples, lies from first
        to last."""
        if self.own_times:
            return super().ending_queries(form, first_ms, last_ms)
        inside = self.sample_query(first_ms, last_ms)
        if form.has_texts:  # these are looked up roughly
            return [{"$and": [inside, self.samples.last_within(".".join(self.array), first_ms, last_ms)]}]
        return [{"$and": [inside, {"$nor": [self.sample_query(last_ms + 1, LAST_MS)]}]}]

    def untimed_queries(self, form: TimeForm) -> list[Document]:
        """Returns queries for the buckets with no usable time: where none has a field for it, those without
        any sample that has one."""
        if self.own_times:
            return super().untimed_queries(form)
        return [{"$nor": [self.sample_query(FIRST_MS, LAST_MS)]}]

    def sample_query(self, first_ms: int, last_ms: int) -> Document:
        """Returns a query for the buckets with a sample from first to last."""
        form = self.reading_form
        if isinstance(form, ElapsedForm):
            start = BucketStart(self.first_field, self.own_form)
            return self.samples.elapsed_query(".".join(self.array), form, start, (first_ms, last_ms))
        return self.samples.query(".".join(self.array), self.reading_form, first_ms, last_ms)

    @property
    def starting_date(self) -> str | None:
        """Returns None: a bucket that is found by its first date may have been running for long."""
        return None

    # What policies name in documents

    @property
    def own_fields(self) -> list[str]:
        """Returns the fields with a bucket's bounds, count and sums."""
        policy = self.policy
        named = (policy.start_field, policy.end_field, policy.count_field, *policy.sum_fields.values())
        return [it for it in named if it]

    @property
    def count_field(self) -> str | None:
        """Returns the field in which a writer counts the samples of a bucket; None where none does."""
        return self.policy.count_field

    @property
    def sums(self) -> dict[str, str]:
        """Returns the fields in which a writer sums the values of a bucket, by the names of the value
        fields."""
        return self.policy.named_sums

    @property
    def without_totals(self) -> Policy:
        """Returns the policy without count and sums, so that buckets are read whatever these say."""
        return self.policy.model_copy(update={"count_field": None, "sum_fields": {}})

    @property
    def kept_fields(self) -> list[str]:
        """Returns the fields with a bucket's bounds, count and sums; not with a start that its samples count
        from."""
        start = self.policy.start_field if self.policy.elapsed_units else None
        return [it for it in self.own_fields if it != start]

    @property
    def changing_fields(self) -> set[str]:
        """Returns the fields that change as a bucket fills: all that are kept up to date but its start."""
        return set(self.own_fields) - {self.policy.start_field}

    @property
    def bounds(self) -> list[tuple[str, int]]:
        """Returns the fields that hold the first and the last time."""
        named = ((self.policy.start_field, 0), (self.policy.end_field, 1))
        return [(name, end) for name, end in named if name is not None]

    @property
    def reading_fields(self) -> Sequence[str]:
        """Returns the arrays."""
        return [".".join(it) for it in self.holders]

    def _value_path(self, path: str) -> Path:
        return self.samples.value_path(self.array, path)

    @property
    def used_paths(self) -> list[Path]:
        """Returns where in a document everything lies that the policy names."""
        found = [*super().used_paths, *self.samples.used_paths(self.array)]
        if self.sample_time is not None and self.policy.local_offset_field is not None:
            found.append((*self.array, "*", *split(self.policy.local_offset_field)))
        return found

    @property
    def overflow_paths(self) -> list[Path]:
        """Returns where in an overflow document everything lies that the policy names."""
        assert self.policy.overflow is not None
        array, own = split(self.policy.overflow.samples_field), self.array
        inside = [(*array, *it[len(own) :]) for it in self.used_paths if it[: len(own)] == own]
        return [split(self.policy.overflow.ref_field), *inside]

    def surplus(self, layout: Layout) -> Iterator[str]:
        """Yields what samples hold that no name of the policy could stand for."""
        return self.samples.surplus(layout, self.array)

    def value_candidates(self, paths: Iterable[str]) -> list[str]:
        """Returns fields of samples as `value_fields` would name them."""
        inside = f"{'.'.join(self.array)}.*."
        return [it.removeprefix(inside) for it in paths if it.startswith(inside)]

    # Documents of buckets

    def room(self, lengths: NDArray[np.int64]) -> int | None:
        """Returns how many readings a large bucket holds; None where there are no buckets."""
        return int(np.percentile(lengths, 95)) if len(lengths) else None

    @property
    def indexes(self) -> list[list[tuple[str, int]]]:
        """Returns the indexes that a run and the usual queries need."""
        series = [(it, 1) for it in self.policy.stored_series.values()]
        fields = self.indexed_fields
        return [*([*series, (it, 1)] for it in fields[-1:]), *([(it, 1)] for it in fields)]

    # How documents are written

    @classmethod
    def target_keys(cls, name: str, names: TargetNames, *, is_whole_minutes: bool) -> Document:
        """Returns the keys of a policy that reads the target."""
        named = {"samples_field": "samples", "start_field": "first", "end_field": "last"}
        named["count_field"] = "nsamples"
        return {**{key: names.free(it) for key, it in named.items()}, "sample_time_field": names.time}

    @classmethod
    def has_target(cls, name: str) -> bool:
        """Returns whether it is one of `samples-N`."""
        found = re.fullmatch("samples-([0-9]{1,6})", name)
        return found is not None and 0 < int(found[1]) <= _MAX_SAMPLES

    @classmethod
    def target_size(cls, name: str) -> int:
        """Returns how many samples a bucket of the target holds."""
        return int(name.partition("-")[2])

    def begins(self, series: NDArray[np.int32], time: Times, size: int) -> Flags:
        """Returns with which readings a document begins: of each series, every so many."""
        return np.asarray(_within(series)[0] % size == 0)

    def closed(self, series: NDArray[np.int32], time: Times, size: int, end_ms: int) -> Flags:
        """Returns which readings lie in documents that are full."""
        place, length = _within(series)
        return np.asarray(place < length // size * size)

    def document(self, times: list[int], values: dict[str, list[Any]]) -> Document:
        """Returns the fields of a bucket with these samples."""
        samples = []
        for i, ms in enumerate(times):
            fields = {name: it[i] for name, it in values.items() if it[i] is not None}
            samples.append(self.samples.sample(ms, fields))
        return {
            str(self.policy.count_field): len(times),
            self.first_field: DatetimeMS(times[0]),
            self.last_field: DatetimeMS(times[-1]),
            ".".join(self.array): samples,
        }

    def written(
        self, document: Document, series: Document, ms: int, values: Document, size: int
    ) -> Operation:
        """Returns the update that pushes a sample into a bucket which is not full."""
        count, array, at = str(self.policy.count_field), ".".join(self.array), DatetimeMS(ms)
        change = {
            "$push": {array: document[array][0]},
            "$inc": {count: 1},
            "$min": {self.first_field: at},
            "$max": {self.last_field: at},
        }
        return UpdateOne({**series, count: {"$lt": size}}, change, upsert=True)


def _within(series: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the place of each reading among those of its series that lie together, (n,), and how many these
    are."""
    starts = np.append(0, np.flatnonzero(np.diff(series)) + 1)
    lengths = np.diff(np.append(starts, len(series)))
    return np.arange(len(series)) - np.repeat(starts, lengths), np.repeat(lengths, lengths)
