"""How a bucket model reads a layout: which holes are times and values, and what must hold."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.bson.types import DATE, DOUBLE, INT32, INT64, NOTHING, STRING, TYPE_NAMES
from bucketwise.buckets.fields.elapsed import ElapsedForm
from bucketwise.buckets.fields.timeforms import DATES, TimeForm
from bucketwise.buckets.fields.times import NO_TIME
from bucketwise.buckets.layouts.layout import Cell, Element, Flags, Group, Layout, Path
from bucketwise.buckets.models.slot_times import SlotTimes
from bucketwise.config.policies import Policy


@dataclass(frozen=True)
class TargetNames:
    """The names of series fields and value fields, and of a reading's time."""

    series: tuple[str, ...]
    values: tuple[str, ...]
    time: str

    @classmethod
    def of(cls, policy: Policy, time: str | None) -> TargetNames:
        """Returns the names for the readings of a policy. `time`: where these have theirs."""
        names = cls(policy.series_names, policy.value_names, "")
        return cls(names.series, names.values, names.free((time or "time").rpartition(".")[2]))

    @property
    def used(self) -> set[str]:
        """Returns the top-level fields of series and values."""
        return {split(it)[0] for it in (*self.series, *self.values)}

    def free(self, name: str, *taken: str) -> str:
        """Returns a name that no series field or value field, nor `_id` or any of `taken`, has: this one,
        with as many `_` as it takes."""
        while name in {*self.used, *taken, "_id", ""}:
            name += "_"
        return name


#: Types that a count may have.
COUNT_TYPES = (DOUBLE, INT32, INT64)


class Breach(Exception):
    """A document breaks its model."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


@dataclass(frozen=True)
class Shape:
    """Where the k readings of a document lie. Times lie in it (`times`), or follow from its start
    (`offsets`, `slot_times`)."""

    values: Mapping[str, Sequence[Cell]]  # value field -> k
    times: Sequence[Cell] | None = None  # k
    form: TimeForm = DATES  # of these
    own_form: TimeForm = DATES  # of the bucket's start, or bounds
    series: Mapping[str, Sequence[Cell]] = field(default_factory=dict)  # field in each sample -> k
    offsets: NDArray[np.int64] | None = None  # k, places of slots
    start: Element | None = None  # `slots`: the bucket's start
    slot_times: SlotTimes | None = None  # `slots`: when they are
    #: `samples`: the bucket's first and last time; None where its samples tell.
    bounds: tuple[Element | None, Element | None] | None = None
    holder: str = ""  # `samples`: what holds them
    #: `samples`: by its name, what an array of values has at each place, null included.
    parallel: Mapping[str, Sequence[Cell]] = field(default_factory=dict)
    count: Element | None = None
    sums: dict[str, Element] = field(default_factory=dict)  # value field -> its sum

    @property
    def readings(self) -> int:
        """Returns how many readings a document of this shape has room for."""
        return len(self.times) if self.times is not None else len(self.offsets)  # type: ignore[arg-type]

    def read_times(self, group: Group) -> NDArray[np.int64] | None:
        """Returns the times of the readings, n × k milliseconds; None where they follow from the start."""
        if self.times is None:
            return None
        return self.read_counted(group, self.starts(group))

    def starts(self, group: Group) -> NDArray[np.int64] | None:
        """Returns the start of each document, (n,), that the times of its samples count from; None where they
        don't."""
        if not isinstance(self.form, ElapsedForm):
            return None
        start = self.bounds and self.bounds[0]
        assert start is not None
        return self.own_form.read(group, [(start,)])[:, 0]

    def read_counted(self, group: Group, starts: NDArray[np.int64] | None) -> NDArray[np.int64]:
        """Returns the times of samples, n × k milliseconds. `starts`: (n,), what they count from, if they
        do."""
        assert self.times is not None
        times = self.form.read(group, self.times)
        if starts is None or not isinstance(self.form, ElapsedForm):
            return times
        return self.form.since(starts, times)

    def after(self, starts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the times of readings that follow from each document's start, (n, k), milliseconds."""
        assert self.offsets is not None and self.slot_times is not None
        times = self.slot_times.times(starts, self.offsets)
        times[starts == NO_TIME] = NO_TIME
        return times

    def present(self, group: Group) -> Flags | None:
        """Returns which documents hold which readings, (n, k); None where each holds all."""
        if self.times is not None:
            return group.holds(self.times)
        first, *others = self.values.values()
        if not others:
            return group.holds(first)
        return group.holds([tuple(itertools.chain(*cells)) for cells in zip(first, *others, strict=True)])


def split(dotted: str) -> Path:
    """Returns a dotted name as a path."""
    return tuple(dotted.split("."))


def nested(dotted: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a document of values by their dotted paths."""
    if not any("." in path for path in dotted):
        return dict(dotted)
    found: dict[str, Any] = {}
    for path, value in dotted.items():
        *outer, last = split(path)
        inner = found
        for key in outer:
            inner = inner.setdefault(key, {})
        inner[last] = value
    return found


def find(layout: Layout, path: Path) -> Element | None:
    """Returns the element at this path. None where it is absent, null or undefined."""
    return next(iter(find_all(layout, path)), None)


def find_all(layout: Layout, path: Path) -> Cell:
    """Returns the element at this path; in a union, all that may stand there."""
    for depth in range(1, len(path) + 1) if layout.repeated else ():
        if path[:depth] in layout.repeated:
            raise Breach(".".join(path[:depth]), "the field appears twice")
    return tuple(element for element in layout.cell(path) if element.type not in NOTHING)


def need(layout: Layout, path: Path, types: tuple[int, ...], what: str) -> Element:
    """Returns the element at this path, of one of these types; else raises Breach. `what` names it in the
    message ("no time")."""
    return need_all(layout, (), path, types, what)[0]


def need_all(layout: Layout, parent: Path, path: Path, types: tuple[int, ...], what: str) -> Cell:
    """Returns the element at this path; in a union, all that may stand there, one of them wherever the parent
    is. Raises Breach."""
    path = (*parent, *path)
    cell = find_all(layout, path)
    if not cell or len(cell) < len(layout.cell(path)) or layout.may_lack(parent, path):
        raise Breach(".".join(path), f"no {what}: the field is missing or null")
    return _of_types(cell, path, types, what)


def take_all(layout: Layout, parent: Path, path: Path, types: tuple[int, ...], what: str) -> Cell:
    """Returns the element at this path, in a union all that may stand there; none where it is missing or
    null. Raises Breach where another type stands there."""
    path = (*parent, *path)
    return _of_types(find_all(layout, path), path, types, what)


_IF_TEXT = '; text such as 2018-06-30T00:00:00Z is read with time_unit = "iso", in samples sample_time_unit'


def _of_types(cell: Cell, path: Path, types: tuple[int, ...], what: str) -> Cell:
    name = ".".join(path)
    for element in cell:
        if element.type not in types:
            wanted = " or ".join(TYPE_NAMES[t] for t in types)
            reason = f"no {what}: {TYPE_NAMES[element.type]} stands where {wanted} is needed"
            raise Breach(name, reason + (_IF_TEXT if element.type == STRING and DATE in types else ""))
    return cell


def soundness_by(find: Callable[[Layout], Shape]) -> Callable[[Layout], bool]:
    """Returns what tells whether a layout has a shape: `find` raises no Breach."""

    def is_sound(layout: Layout) -> bool:
        try:
            find(layout)
        except Breach:
            return False
        return True

    return is_sound
