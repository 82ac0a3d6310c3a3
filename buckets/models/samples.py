"""The `samples` model: an array of samples, closed by size or by time, with a first and often a last time."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from bson import DatetimeMS
from numpy.typing import NDArray
from pymongo import UpdateOne

from bucketwise.buckets.bson.types import ARRAY
from bucketwise.buckets.fields.forms import form_of
from bucketwise.buckets.fields.timeforms import TimeForm, any_of
from bucketwise.buckets.fields.times import FIRST_MS, LAST_MS
from bucketwise.buckets.fields.values import NUMBERS
from bucketwise.buckets.layouts.layout import Flags, Layout, Path
from bucketwise.buckets.layouts.merge import Containers
from bucketwise.buckets.models.model import BucketModel, Document, Operation, Times
from bucketwise.buckets.models.sampled import SampleDocuments, SamplePairs
from bucketwise.buckets.models.shape import COUNT_TYPES, Shape, need, split
from bucketwise.buckets.models.target import TargetNames
from bucketwise.config.models import SamplesPolicy
from bucketwise.config.policies import Policy

#: By `samples_as`.
_SAMPLES: dict[str, type[SampleDocuments]] = {"documents": SampleDocuments, "pairs": SamplePairs}
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
        return _SAMPLES[self.policy.samples_as].of(self.policy, self.policy.sample_time_field)

    # How documents are read

    def _shape_in(self, layout: Layout) -> Shape:
        policy, own = self.policy, self.own_form
        first = need(layout, split(self.first_field), own.types, "time")
        last = need(layout, split(policy.end_field), own.types, "time") if policy.end_field else None
        inner = self.samples.shape(layout, self.array, self.reading_form)
        count = need(layout, split(policy.count_field), COUNT_TYPES, "count") if policy.count_field else None
        sums = {name: need(layout, split(it), NUMBERS, "sum") for name, it in policy.named_sums.items()}
        return replace(inner, bounds=(first, last), own_form=own, count=count, sums=sums)

    def _overflow_shape_in(self, layout: Layout) -> Shape:
        assert self.policy.overflow is not None
        return self.samples.shape(layout, split(self.policy.overflow.samples_field), self.reading_form)

    def _containers(self, paths: Iterable[Path]) -> Containers:
        return super()._containers(paths)._replace(pairs=self.samples.kind == ARRAY)

    @property
    def holders(self) -> list[Path]:
        """Returns the path of the array."""
        return [self.array]

    @property
    def array(self) -> Path:
        """Returns the path of the array of samples."""
        return split(self.policy.samples_field)

    @property
    def sample_time(self) -> Path:
        """Returns the path of a sample's time inside the sample."""
        return self.samples.time

    # Times

    @cached_property
    def own_form(self) -> TimeForm:
        """Returns the form of a bucket's first and last time."""
        return form_of(self.policy.time_unit or "s", self.policy.time_format, self.policy.timezone)

    @cached_property
    def reading_form(self) -> TimeForm:
        """Returns the form of the time inside a sample."""
        policy = self.policy
        return form_of(policy.sample_time_unit or "s", policy.sample_time_format, policy.timezone)

    @property
    def first_field(self) -> str:
        """Returns the field with a bucket's first time."""
        return self.policy.start_field

    @property
    def last_field(self) -> str:
        """Returns the field with a bucket's last time; with its first where no field tells the last."""
        return self.policy.end_field or self.first_field

    @property
    def time_field(self) -> str | None:
        """Returns the name of the field in which a sample has its time; None where it has no name."""
        return self.policy.sample_time_field

    @property
    def tells_last(self) -> bool:
        """Returns whether a field tells a bucket's last time."""
        return self.policy.end_field is not None

    @property
    def span_fields(self) -> tuple[str, str]:
        """Returns the fields that tell which time a bucket covers: its first time, and its last or its
        samples."""
        return self.first_field, self.policy.end_field or ".".join(self.array)

    @property
    def span_values(self) -> tuple[str, str]:
        """Returns the same fields; of samples the times, where these have a name."""
        first, last = self.span_fields
        return first, last if self.tells_last else self.samples.time_path(self.array) or last

    @property
    def sample_index(self) -> str | None:
        """Returns the field of an index that tells where samples lie, where no field tells a bucket's last
        time. It has an entry for each sample."""
        return None if self.tells_last else self.samples.time_path(self.array)

    @property
    def length_ms(self) -> int | None:
        """Returns None: a bucket may be of any length."""
        return None

    def _end(self, last: object, start: int | None) -> int | None:
        if not isinstance(last, list):
            return self.own_form.milliseconds(last)
        times = (self.reading_form.milliseconds(self.samples.time_of(it)) for it in last)
        return max((time for time in (start, *times) if time is not None), default=None)

    # Queries

    def range_query(self, form: TimeForm, start_ms: int, end_ms: int) -> Document:
        """Returns a query for every bucket that may hold a reading in [start, end)."""
        starts = form.ranges(self.first_field, FIRST_MS, end_ms - 1)
        if self.tells_last:
            ends = form.ranges(self.last_field, start_ms, LAST_MS, is_end=True)
        else:  # one without any sample is where it starts
            ends = [self._sampled_in(start_ms, end_ms - 1)]
            ends += form.ranges(self.first_field, start_ms, end_ms - 1)
        return any_of([{"$and": list(both)} for both in itertools.product(starts, ends)])

    def running_query(self, form: TimeForm, at_ms: int) -> Document | None:
        """Returns a query for every bucket that starts before the instant and may hold a reading at or after
        it."""
        if self.tells_last:
            return self.range_query(form, at_ms, at_ms + 1)
        starts = any_of(form.ranges(self.first_field, FIRST_MS, at_ms))
        return {"$and": [starts, self._sampled_in(at_ms, LAST_MS)]}

    def _sampled_in(self, first_ms: int, last_ms: int) -> Document:
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
        """Returns the fields with a bucket's bounds, count and sums."""
        return self.own_fields

    @property
    def changing_fields(self) -> set[str]:
        """Returns the fields that change as a bucket fills: all that are kept up to date but its start."""
        return set(self.own_fields) - {self.first_field}

    @property
    def bounds(self) -> list[tuple[str, int]]:
        """Returns the fields that hold the first and the last time."""
        return [(self.first_field, 0), *([(self.last_field, 1)] if self.tells_last else [])]

    @property
    def reading_fields(self) -> Sequence[str]:
        """Returns the array."""
        return [".".join(self.array)]

    def _value_path(self, path: str) -> Path:
        return self.samples.value_path(self.array, path)

    @property
    def used_paths(self) -> list[Path]:
        """Returns where in a document everything lies that the policy names."""
        inside = (self.policy.sample_time_field, self.policy.local_offset_field)
        return [*super().used_paths, *((*self.array, "*", *split(it)) for it in inside if it)]

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
        by_series, by_last = super().indexes
        return [by_series, [(self.first_field, 1)], by_last]

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
