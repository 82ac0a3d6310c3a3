"""What a bucket model answers. Each model is a class, so that nobody else asks which one a policy has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from pymongo import InsertOne, UpdateOne

from bucketwise.buckets.bson.raw import Batch, as_queried
from bucketwise.buckets.bson.types import first_at
from bucketwise.buckets.fields.timeforms import TimeForm
from bucketwise.buckets.layouts.groups import UnionRules
from bucketwise.buckets.layouts.layout import Cell, Flags, Layout, NamesIn, Path
from bucketwise.buckets.layouts.union import Containers
from bucketwise.buckets.models.shape import Shape, TargetNames, need_all, soundness_by, split
from bucketwise.buckets.models.slot_times import SlotLevel
from bucketwise.config.policies import Policy

P = TypeVar("P", bound=Policy)

Document = dict[str, Any]
Operation = InsertOne[Document] | UpdateOne
Times = NDArray[np.int64]


class Attributes(NamedTuple):
    """Where a document has its attributes: the path of their array, and what holds each one's name."""

    array: Path
    name: Path


class BucketModel(ABC, Generic[P]):
    """How readings lie in the documents of one policy, and what follows from that.

    What is answered here holds for a document a reading in an ordinary collection, where models differ."""

    #: As the policy file has it.
    name: ClassVar[str]
    #: The type of the collection, as MongoDB lists it.
    collection_type: ClassVar[str] = "collection"
    #: Why nothing is deleted from the collection; None where buckets can go.
    undeletable: ClassVar[str | None] = None
    #: Why there are no change streams; None where there are.
    unstreamed: ClassVar[str | None] = None
    #: Whether one document alone has an `_id`, so that buckets are found and compared by it.
    keeps_ids_unique: ClassVar[bool] = True
    #: Whether it takes an index of the application's to find buckets by their times.
    needs_index: ClassVar[bool] = True
    #: Whether a bucket may have overflow.
    may_overflow: ClassVar[bool] = False
    #: Whether versions of a bucket are merged; else the later one counts.
    merges_versions: ClassVar[bool] = False
    #: Whether each value of a reading is merged by itself; else all of them together.
    merges_values: ClassVar[bool] = False
    #: The names of the targets that a collection can be rewritten in, and other names for some.
    targets: ClassVar[tuple[str, ...]]
    target_aliases: ClassVar[dict[str, str]] = {}

    def __init__(self, policy: P) -> None:
        self.policy = policy
        self._shapes: WeakKeyDictionary[Layout, Shape] = WeakKeyDictionary()
        self._overflow_shapes: WeakKeyDictionary[Layout, Shape] = WeakKeyDictionary()

    # How documents are read

    def shape(self, layout: Layout) -> Shape:
        """Returns where times and values lie in a bucket's own documents. Raises Breach where one has no
        valid place."""
        return _remembered(self._shapes, layout, self._shape_in)

    def overflow_shape(self, layout: Layout) -> Shape:
        """Returns where times and values lie in overflow documents. Raises Breach where one has no valid
        place."""
        return _remembered(self._overflow_shapes, layout, self._overflow_shape_in)

    @abstractmethod
    def _shape_in(self, layout: Layout) -> Shape: ...

    def _overflow_shape_in(self, layout: Layout) -> Shape:
        raise NotImplementedError(f"{self.name} has no overflow")

    @cached_property
    def union_rules(self) -> UnionRules | None:
        """Returns where buckets may be irregular, and attributes have their names. None: no unions."""
        if not self.holders and self.attributes is None:
            return None
        return UnionRules(self._containers(self.holders), soundness_by(self.shape))

    @cached_property
    def overflow_union_rules(self) -> UnionRules | None:
        """Returns where overflow documents may be irregular. None: no unions."""
        if self.policy.overflow is None:
            return None
        paths = [split(self.policy.overflow.samples_field), *self.slot_holders]
        return UnionRules(self._containers(paths), soundness_by(self.overflow_shape))

    def _containers(self, paths: Iterable[Path]) -> Containers:
        return Containers(frozenset(paths), names=self.attributes and NamesIn(*self.attributes))

    @property
    def holders(self) -> list[Path]:
        """Returns the paths of what holds many readings: an array, or sub-documents of slots."""
        return self.slot_holders

    @property
    def slot_holders(self) -> list[Path]:
        """Returns the paths of what holds slots; none where there are no slots."""
        return []

    @property
    def levels(self) -> Sequence[SlotLevel]:
        """Returns the levels of slots, outer first; none where there are no slots."""
        return ()

    @property
    def array(self) -> Path | None:
        """Returns the path of the array of samples; None where there is none."""
        return None

    @property
    def attributes(self) -> Attributes | None:
        """Returns where a document has attributes; None where there are none."""
        return None

    @property
    def sample_time(self) -> Path | None:
        """Returns the path of a sample's time inside the sample; None where there are no samples."""
        return None

    def raw_times(self, document: bytes) -> list[bytes]:
        """Returns the time of each sample of a bucket, its BSON type in front."""
        raise NotImplementedError(f"{self.name} has no samples")

    # Times

    @property
    @abstractmethod
    def own_form(self) -> TimeForm:
        """Returns the form of a bucket's own times: a single one, or its first and its last."""

    def own_time(self, layout: Layout, field: str) -> tuple[Cell, TimeForm]:
        """Returns where a bucket's own time lies in a layout, and the form to read it by. Raises Breach."""
        form = self.own_form
        cells = [need_all(layout, (), split(it), form.types, "time") for it in form.fields(field)]
        return cells[0], form.at(cells)

    @property
    def reading_form(self) -> TimeForm:
        """Returns the form of the times that lie beside values."""
        return self.own_form

    @property
    @abstractmethod
    def first_field(self) -> str:
        """Returns the field with a bucket's first time."""

    @property
    @abstractmethod
    def last_field(self) -> str:
        """Returns the field with a bucket's last time; with its first where no field tells the last."""

    @property
    def time_field(self) -> str | None:
        """Returns the name of the field in which a reading or a bucket of slots has its time."""
        return self.first_field

    @property
    def own_times(self) -> list[str]:
        """Returns the fields of a bucket's own times; none where its samples alone tell them."""
        return list(dict.fromkeys((self.first_field, self.last_field)))

    @property
    def tells_span(self) -> bool:
        """Returns whether two fields tell a bucket's first and last time, however long it is."""
        return False

    @property
    def tells_first(self) -> bool:
        """Returns whether `first_field` tells a bucket's first time."""
        return True

    @property
    def tells_last(self) -> bool:
        """Returns whether `last_field` tells a bucket's last time."""
        return True

    @property
    def indexed_fields(self) -> list[str]:
        """Returns the fields of which an index finds the buckets of a range of time; none where none does."""
        return self.own_times

    @property
    def span_fields(self) -> tuple[str, str]:
        """Returns the fields that tell which time a bucket covers: its first time, and its last or its
        samples."""
        return self.first_field, self.last_field

    @property
    def span_paths(self) -> list[str]:
        """Returns all fields that the times in `span_fields` lie in."""
        return list(dict.fromkeys(path for it in self.span_fields for path in self.own_form.fields(it)))

    @property
    def span_values(self) -> tuple[str, str]:
        """Returns the same fields, with no more of samples than `covered` needs."""
        return self.span_fields

    @property
    def sample_index(self) -> str | None:
        """Returns the field of an index that tells where samples lie, where no field tells a bucket's last
        time. None where none is needed, or possible."""
        return None

    @property
    def length_ms(self) -> int | None:
        """Returns how long a bucket is, in milliseconds; None where it may be of any length."""
        return 1

    @property
    def covered_ms(self) -> int | None:
        """Returns how much time the slots of a bucket cover at most, in milliseconds; None where there are no
        slots."""
        return None

    @property
    def reach_ms(self) -> int:
        """Returns how long after the time in `last_field` a bucket may have readings, in milliseconds."""
        return (self.length_ms or 1) - 1

    def end_of(self, start_ms: int) -> int:
        """Returns the first instant after a bucket that starts then, where its length tells."""
        return start_ms + self.reach_ms + 1

    @property
    def slot_ms(self) -> int | None:
        """Returns how long a slot is, in milliseconds; None where there are no slots."""
        return None

    @property
    def keeps_days(self) -> bool:
        """Returns whether a bucket holds days, a week or a month of a clock."""
        return False

    def covered_span(self, document: bytes) -> tuple[int, int] | None:
        """Returns [start, end) in milliseconds as a bucket's fields tell it, from its BSON; None where these
        are no times."""
        first, last = self.span_fields
        form = self.own_form
        told = (
            form.value_in(document, last) if self.tells_last else as_queried(first_at(document, split(last)))
        )
        return self.covered(form.value_in(document, first), told)

    def covered(self, first: object, last: object) -> tuple[int, int] | None:
        """Returns the span [start, end) in milliseconds from the values of the two fields; None where they
        give none. Samples may be given as they are, or by their times alone."""
        start, end = self._told(first, last)
        if start is None or end is None or end < start:
            return None
        if not self.reach_ms and self.own_form.means_second(last):
            end += 999  # a whole second is meant
        return start, end + self.reach_ms + 1

    def _told(self, first: object, last: object) -> tuple[int | None, int | None]:
        """Returns the first and the last time that the two values tell."""
        return self.own_form.milliseconds(first), self.own_form.milliseconds(last)

    # Queries

    @abstractmethod
    def range_query(self, form: TimeForm, start_ms: int, end_ms: int) -> Document:
        """Returns a query for every bucket that may hold a reading in [start, end). `form`: of its own
        times."""

    def running_query(self, form: TimeForm, at_ms: int) -> Document | None:
        """Returns a query for every bucket that starts before the instant and may hold a reading at or after
        it; None where their length tells."""
        return None

    def time_queries(
        self, form: TimeForm, field: str, first_ms: int, last_ms: int, *, is_sound: bool = False
    ) -> list[Document]:
        """Returns queries for a time in a field from first to last, one for each type of it. An array, which
        breaks its model, may meet several."""
        return form.ranges(field, first_ms, last_ms, is_sound=is_sound)

    def sample_query(self, first_ms: int, last_ms: int) -> Document:
        """Returns a query for the buckets with a sample from first to last."""
        raise NotImplementedError(f"{self.name} has no samples")

    def ending_queries(self, form: TimeForm, first_ms: int, last_ms: int) -> list[Document]:
        """Returns queries for the buckets whose last time by their fields lies from first to last; no bucket
        meets two of them."""
        return self.time_queries(form, self.last_field, first_ms, last_ms)

    def untimed_queries(self, form: TimeForm) -> list[Document]:
        """Returns queries for the buckets with no usable time."""
        return [part for field in self.own_times for part in form.untimed(field)]

    @property
    def starting_date(self) -> str | None:
        """Returns the field with a date that no reading of a bucket is before; None where there is none."""
        return self.first_field if self.own_form.is_date else None

    # What policies name in documents

    @property
    @abstractmethod
    def own_fields(self) -> list[str]:
        """Returns the fields of a bucket that its model has beside series and values."""

    @property
    def count_field(self) -> str | None:
        """Returns the field in which a writer counts the readings of a bucket; None where none does."""
        return None

    @property
    def sums(self) -> dict[str, str]:
        """Returns the fields in which a writer sums the values of a bucket, by the names of the value
        fields."""
        return {}

    @property
    def without_totals(self) -> Policy:
        """Returns the policy without count and sums, so that buckets are read whatever these say."""
        return self.policy

    @property
    def kept_fields(self) -> list[str]:
        """Returns the fields that a writer keeps up to date as a bucket fills."""
        return []

    @property
    def changing_fields(self) -> set[str]:
        """Returns the fields that change as a bucket fills."""
        return set()

    @property
    def bounds(self) -> list[tuple[str, int]]:
        """Returns the fields that a writer keeps at the first and the last time of its samples: 0 stands for
        the first, 1 for the last."""
        return []

    @property
    def reading_fields(self) -> Sequence[str]:
        """Returns the fields of which a write is one of readings."""
        return self.policy.value_fields

    @property
    def value_paths(self) -> dict[str, Path]:
        """Returns where in a document each value field is, by its name; "*" stands for any element or slot.
        None lies in an array of attributes."""
        if self.attributes is not None:
            return {}
        return {name: self._value_path(path) for name, path in self.policy.named_values}

    def _value_path(self, path: str) -> Path:
        return split(path)

    @property
    def used_paths(self) -> list[Path]:
        """Returns where in a document everything lies that the policy names."""
        flag = self.policy.overflow and self.policy.overflow.flag_field
        named = (*self.own_fields, self.policy.local_offset_field, flag, *self.policy.series_fields)
        return [*(split(it) for it in named if it), *self.value_paths.values()]

    @property
    def overflow_paths(self) -> list[Path]:
        """Returns where in an overflow document everything lies that the policy names."""
        assert self.policy.overflow is not None
        inside = [split(self.policy.overflow.samples_field), *self.used_paths]
        return [split(self.policy.overflow.ref_field), *inside]

    @property
    def telling_nulls(self) -> list[Path]:
        """Returns the paths where a null tells something that other models have no place for."""
        return []

    def surplus(self, layout: Layout) -> Iterator[str]:
        """Yields what samples hold that no name of the policy could stand for."""
        yield from ()

    def value_candidates(self, paths: Iterable[str]) -> list[str]:
        """Returns fields as `value_fields` would name them. `paths`: with "*" for any element or slot."""
        return [it for it in paths if "*" not in it.split(".")]

    # Documents of buckets

    def units(self, batch: Batch) -> list[bytes]:
        """Returns bytes for each bucket that are equal for equal buckets alone."""
        return batch.units

    def unit(self, document: bytes) -> bytes:
        """Returns bytes that are equal for equal documents alone."""
        return document

    def room(self, lengths: NDArray[np.int64]) -> int | None:
        """Returns how many readings a bucket has room for, or what a large one of them holds; None for a
        document a reading. `lengths`: how many readings buckets hold."""
        return None

    @property
    def against_duplicates(self) -> str:
        """Returns how to keep readings from being written twice, for people."""
        return "make writes idempotent: $set a slot, or $addToSet a sample"

    # The collection

    @property
    def can_delete(self) -> bool:
        """Returns whether buckets can be deleted from the collection."""
        return self.undeletable is None

    def options_fault(self, options: Document) -> str | None:
        """Returns what in a collection's options contradicts the policy; None where nothing does."""
        return None

    def made_with(self, granularity: str) -> Document:
        """Returns the options with which a collection is made."""
        return {}

    def held_in(self, collection: str) -> str:
        """Returns the collection in which MongoDB keeps the documents."""
        return collection

    @property
    def shard_fields(self) -> list[str] | None:
        """Returns the only fields that a shard key may have, the time last; None: any."""
        return None

    @property
    def indexes(self) -> list[list[tuple[str, int]]]:
        """Returns the indexes that a run and the usual queries need."""
        series = [(it, 1) for it in self.policy.stored_series.values()]
        return [[*series, (self.last_field, 1)], [(self.last_field, 1)]]

    # How documents are written

    @classmethod
    @abstractmethod
    def target_keys(cls, name: str, names: TargetNames, *, is_whole_minutes: bool) -> Document:
        """Returns the keys of a policy that reads a target of this name. `is_whole_minutes`: whether all
        readings lie on whole minutes."""

    @classmethod
    def has_target(cls, name: str) -> bool:
        """Returns whether a target of this name is of the model."""
        return name in cls.targets

    @classmethod
    def target_size(cls, name: str) -> int:
        """Returns how many readings a bucket of the target holds; 0 where the number is not fixed."""
        return 0

    @property
    def written_at_once(self) -> int:
        """Returns how many readings a document that is written holds at most; of samples the target tells."""
        return 1

    def begins(self, series: NDArray[np.int32], time: Times, size: int) -> Flags:
        """Returns with which readings, in order, a document begins. `size`: that of the target."""
        return np.ones(len(time), dtype=np.bool_)

    def closed(self, series: NDArray[np.int32], time: Times, size: int, end_ms: int) -> Flags:
        """Returns which readings, in order, lie in documents that are full once all readings before the end
        were given."""
        return np.ones(len(time), dtype=np.bool_)

    @abstractmethod
    def document(self, times: list[int], values: dict[str, list[Any]]) -> Document:
        """Returns the fields of a document with these readings, by dotted names, without `_id` and series."""

    @abstractmethod
    def written(
        self, document: Document, series: Document, ms: int, values: Document, size: int
    ) -> Operation:
        """Returns the write by which an application adds a reading. `document`: one with it alone."""

    def misfits(self, series: NDArray[np.int32], time: Times, is_empty: Flags) -> Iterator[tuple[str, int]]:
        """Yields what the model has no place for, and how many readings have it; these are in order.
        `is_empty`: which of them hold no value."""
        yield from ()


def _remembered(
    known: WeakKeyDictionary[Layout, Shape], layout: Layout, find: Callable[[Layout], Shape]
) -> Shape:
    """Returns a layout's shape, which is found once, and kept as long as the layout."""
    shape = known.get(layout)
    if shape is None:
        known[layout] = shape = find(layout)
    return shape
