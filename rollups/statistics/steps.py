"""What steps between two readings of a series amount to: the base of counters, states and averages by time.

A step belongs to the reading in which it ends. The state of a window has, beside what the steps between its
own readings amount to, its first and its last reading, and the readings before and after these, in whatever
window they lie. States of windows then merge in any order: of all but the earliest, the step that leads to
the first reading is added. What lies outside of the window is cut off when a person reads it (`close`).
"""

from __future__ import annotations

import struct
from abc import abstractmethod
from collections.abc import Mapping, Set
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from bucketwise.rollups.statistics.base import (
    PIECE,
    Column,
    Doubles,
    FieldReadings,
    Integers,
    MomentsState,
    Numbers,
    Statistic,
    Stored,
    VarintReader,
    VarintWriter,
)
from bucketwise.rollups.statistics.moments import UNIT, exact, products, quotient, sums, total

#: Milliseconds, and the value, of which -0.0 is 0.0; where texts are states, the name of the state.
Reading = tuple[int, Any]
#: The reading before the first one, the first, the last, the one after it, and what the steps amount to.
KnownSteps = tuple[Reading | None, Reading, Reading, Reading | None, Any]
StepsState = KnownSteps | tuple[()]
T = TypeVar("T")
_DOUBLE = struct.Struct("<d")


@dataclass(frozen=True)
class StepArrays:
    """n readings of g groups, in the order of series and time. `inner`: which of them a step leads from, to
    the next one of the same group, that is not too long; the last is not one of them."""

    time: Integers  # n
    values: Doubles  # n
    starts: Integers  # g
    inner: NDArray[np.bool_]  # n

    @cached_property
    def lasts(self) -> Integers:
        """Returns the last reading of each group, (g,)."""
        return np.append(self.starts[1:], len(self.time)) - 1

    def groups_of(self, readings: Integers) -> Integers:
        """Returns the groups of some readings."""
        found: Integers = np.searchsorted(self.starts, readings, side="right") - 1
        return found

    @property
    def lasting(self) -> Integers:
        """Returns how long the step from each reading takes, in milliseconds; 0 where there is none, (n,)."""
        return np.where(self.inner, np.diff(self.time, append=self.time[-1:]), 0)


class Steps(Statistic[StepsState], Generic[T]):
    """A statistic of the steps between readings. `max_gap`: milliseconds; a longer step counts for nothing.
    `T`: what steps amount to."""

    is_ordered = True
    empty: ClassVar[StepsState] = ()
    zero: T
    #: Tells in a summary's state how it was made, beside `max_gap`.
    code: int = 0

    def __init__(self, max_gap: int) -> None:
        self.max_gap = max_gap

    @abstractmethod
    def amounts(self, steps: StepArrays) -> list[T]:
        """Returns what the inner steps of each group amount to."""

    @abstractmethod
    def step(self, one: Reading, other: Reading) -> T:
        """Returns what one whole step amounts to."""

    @abstractmethod
    def part(self, one: Reading, other: Reading, window: tuple[int, int]) -> T:
        """Returns what one step counts for in a window that it begins or ends in, or both."""

    @abstractmethod
    def add(self, one: T, other: T) -> T:
        """Returns both together. Exact."""

    @abstractmethod
    def pack_amount(self, amount: T, writer: VarintWriter) -> None:
        """Writes what steps amount to."""

    @abstractmethod
    def unpack_amount(self, reader: VarintReader) -> T:
        """Returns what `pack_amount` wrote."""

    def build(self, readings: FieldReadings, numbers: Numbers) -> list[StepsState]:
        """Returns the state of each group of finite numbers. The runs of each lie one behind the other, as do
        the groups of a series."""
        columns, order = readings.columns, readings.order
        time = columns.time if order is None else columns.time[order]
        values, starts = numbers.values + 0.0, numbers.group_starts
        series = columns.series_at(starts if order is None else order[starts])
        inner = self._near(time)
        steps = StepArrays(time, values, starts, inner)
        lasts = steps.lasts
        is_joined = [*(inner[lasts[:-1]] & (series[1:] == series[:-1])).tolist(), False]
        inner[lasts] = False
        amounts = self.amounts(steps)

        def readings_at(places: Integers) -> list[Reading]:
            return list(zip(time[places].tolist(), values[places].tolist(), strict=True))

        firsts, ends = readings_at(starts), readings_at(lasts)
        befores = [None, *ends[:-1]]  # where a step leads from it
        afters = [*firsts[1:], None] if self.looks_ahead else [None] * len(firsts)
        return [
            (before if has_before else None, first, last, after if has_after else None, amount)
            for before, has_before, first, last, has_after, after, amount in zip(
                befores, [False, *is_joined[:-1]], firsts, ends, is_joined, afters, amounts, strict=True
            )
        ]

    def _near(self, time: Integers) -> NDArray[np.bool_]:
        """Returns from which readings the next one is near enough, (n,). By pieces that stay in the cache."""
        found = np.zeros(len(time), dtype=np.bool_)
        for at in range(0, len(time) - 1, PIECE):
            piece = time[at : at + PIECE + 1]
            found[at : at + len(piece) - 1] = piece[1:] - piece[:-1] <= self.max_gap
        return found

    def holding(self, name: str) -> dict[str, Any]:
        """Returns a query for the summaries that hold a reading of a value field."""
        return {f"{name}.count": {"$gt": 0}}

    def merge(self, one: StepsState, other: StepsState) -> StepsState:
        """Returns the state of both together."""
        if not one or not other:
            return one or other
        if other[1] < one[1]:
            one, other = other, one
        before, first, last, after, amount = one
        before_other, first_other, last_other, after_other, amount_other = other
        amount = self.add(amount, amount_other)
        if before_other is not None:
            amount = self.add(amount, self.step(before_other, first_other))
        if last_other >= last:
            last, after = last_other, after_other
        return before, first, last, after, amount

    def linked(self, state: KnownSteps, before: Reading | None, after: Reading | None) -> KnownSteps:
        """Returns the state of some readings with other ones before and after them; such as are too far away
        don't count."""
        first, last = state[1], state[2]
        if before is not None and first[0] - before[0] > self.max_gap:
            before = None
        if after is not None and (not self.looks_ahead or after[0] - last[0] > self.max_gap):
            after = None
        return before, first, last, after, state[4]

    def close(self, state: StepsState, window: tuple[int, int]) -> StepsState:
        """Returns the state with what the steps to its first and from its last reading count for in the
        window, and without these two."""
        if not state:
            return state
        before, first, last, after, amount = state
        if before is not None:
            amount = self.add(amount, self.part(before, first, window))
        if after is not None:
            amount = self.add(amount, self.part(last, after, window))
        return None, first, last, None, amount

    def pack(self, state: StepsState, writer: VarintWriter, lacks: Set[str]) -> None:  # noqa: ARG002
        """Writes how it was made, the readings before and after, and what the steps amount to."""
        if not state:
            return
        before, first, last, after, amount = state
        writer.number(self.code)
        writer.number(self.max_gap)
        for neighbour, own in ((before, first), (after, last)):
            if neighbour is None:
                writer.string(b"")
            else:
                writer.string(_DOUBLE.pack(neighbour[1]))
                writer.number(abs(neighbour[0] - own[0]))
        self.pack_amount(amount, writer)

    def unpack(self, stored: Stored) -> StepsState:
        """Returns the state of a summary's value field."""
        reader = stored.reader
        if not stored.document["count"]:
            return self.empty
        if (reader.number(), reader.number()) != (self.code, self.max_gap):
            raise ValueError("`kind`, `time_weighted` or `max_gap` have changed since")
        if any(edge[2] is None for edge in stored.edges):
            raise ValueError("it was made when the policy left out `first` and `last`")
        first, last = ((at, value + 0.0) for at, _, value in stored.edges if value is not None)
        before = self._neighbour(reader, first, -1)
        after = self._neighbour(reader, last, 1)
        return before, first, last, after, self.unpack_amount(reader)

    @staticmethod
    def _neighbour(reader: VarintReader, own: Reading, sign: int) -> Reading | None:
        packed = reader.string()
        if not packed:
            return None
        try:
            (value,) = _DOUBLE.unpack(packed)
        except struct.error as error:
            raise ValueError(str(error)) from error
        return own[0] + sign * reader.number(), value


#: Increase in units of 2**-1074, resets, and how long the steps took, in milliseconds.
CounterAmount = tuple[int, int, int]


class Counter(Steps[CounterAmount]):
    """Increase, resets and rate. A fall is a reset: the counter then counts from zero. A step counts where it
    ends."""

    columns = (
        Column("increase", "number", is_derived=True),
        Column("resets", "whole", is_derived=True),
        Column("rate", "number", is_derived=True),
    )
    table = ("increase", "resets", "rate")
    zero = (0, 0, 0)
    code = 1

    def amounts(self, steps: StepArrays) -> list[CounterAmount]:
        """Returns what the inner steps of each group amount to."""
        values, time, starts, lasts = steps.values, steps.time, steps.starts, steps.lasts
        each = np.arange(len(starts))
        increase = [
            last - first
            for last, first in zip(sums(values[lasts], each), sums(values[starts], each), strict=True)
        ]
        is_step = steps.inner[:-1]
        begun = np.flatnonzero(is_step & (values[1:] < values[:-1]))
        long = np.setdiff1d(np.flatnonzero(~is_step), lasts, assume_unique=True)
        # Last less first has too little where the counter began again, and what steps have that are too long.
        for places, amount in ((begun, values[begun]), (long, values[long]), (long, -values[long + 1])):
            if len(places):
                of_groups = steps.groups_of(places)
                begins = np.flatnonzero(np.diff(of_groups, prepend=-1))
                for of, more in zip(of_groups[begins].tolist(), sums(amount, begins), strict=True):
                    increase[of] += more
        resets = np.bincount(steps.groups_of(begun), minlength=len(starts)).tolist()
        lasting = time[lasts] - time[starts]
        np.subtract.at(lasting, steps.groups_of(long), time[long + 1] - time[long])
        return list(zip(increase, resets, lasting.tolist(), strict=True))

    def step(self, one: Reading, other: Reading) -> CounterAmount:
        """Returns what one step amounts to."""
        falls = other[1] < one[1]
        return exact(other[1]) - (0 if falls else exact(one[1])), int(falls), other[0] - one[0]

    def part(self, one: Reading, other: Reading, window: tuple[int, int]) -> CounterAmount:
        """Returns the whole step if it ends in the window; else nothing."""
        return self.step(one, other) if window[0] <= other[0] < window[1] else self.zero

    def add(self, one: CounterAmount, other: CounterAmount) -> CounterAmount:
        """Returns both together."""
        return one[0] + other[0], one[1] + other[1], one[2] + other[2]

    def shown(self, state: Any, moments: MomentsState) -> Mapping[str, Any]:  # noqa: ARG002
        """Returns the value of each key. `rate` is a second, and null without a step."""
        increase, resets, lasting = state[4] if state else self.zero
        rate = quotient(1000 * increase, lasting << UNIT) if lasting else None
        return {"increase": total(increase), "resets": resets, "rate": rate}

    def pack_amount(self, amount: CounterAmount, writer: VarintWriter) -> None:
        """Writes the exact increase, the resets and the time."""
        writer.wide(amount[0])
        writer.number(amount[1])
        writer.number(amount[2])

    def unpack_amount(self, reader: VarintReader) -> CounterAmount:
        """Returns what `pack_amount` wrote."""
        return reader.wide(), reader.number(), reader.number()


#: The area below the values, in milliseconds and units of 2**-1075, and the milliseconds that it covers. The
#: area is whole until the step at the edge of a window is cut.
WeightedAmount = tuple[int | Fraction, int]


class TimeWeighted(Steps[WeightedAmount]):
    """The average by time, and how many seconds of the window it is of. From a reading to the next one the
    value is that of the first (`previous`), or changes evenly (`linear`)."""

    columns = (
        Column("time_avg", "number", is_derived=True),
        Column("time_covered", "number", is_derived=True),
    )
    table = ("time_avg", "time_covered")
    looks_ahead = True
    zero = (0, 0)

    def __init__(self, max_gap: int, way: Literal["previous", "linear"]) -> None:
        super().__init__(max_gap)
        self.is_linear = way == "linear"
        self.code = 3 if self.is_linear else 2

    def amounts(self, steps: StepArrays) -> list[WeightedAmount]:
        """Returns what the inner steps of each group amount to."""
        lasting = steps.lasting
        weights = 2 * lasting
        if self.is_linear:
            weights = lasting.copy()
            weights[1:] += lasting[:-1]
        areas = products(steps.values, weights, steps.starts)
        return list(zip(areas, np.add.reduceat(lasting, steps.starts).tolist(), strict=True))

    def step(self, one: Reading, other: Reading) -> WeightedAmount:
        """Returns what one whole step amounts to."""
        lasting = other[0] - one[0]
        heights = exact(one[1]) + exact(other[1] if self.is_linear else one[1])
        return heights * lasting, lasting

    def part(self, one: Reading, other: Reading, window: tuple[int, int]) -> WeightedAmount:
        """Returns what lies in the window."""
        start, end = max(one[0], window[0]), min(other[0], window[1])
        if start >= end:
            return self.zero
        low, high = exact(one[1]), exact(other[1] if self.is_linear else one[1])
        places = Fraction(start - one[0] + end - one[0], other[0] - one[0])
        return (2 * low + (high - low) * places) * (end - start), end - start

    def add(self, one: WeightedAmount, other: WeightedAmount) -> WeightedAmount:
        """Returns both together."""
        return one[0] + other[0], one[1] + other[1]

    def shown(self, state: Any, moments: MomentsState) -> Mapping[str, Any]:  # noqa: ARG002
        """Returns the value of each key; the average is null where nothing is covered."""
        area, lasting = state[4] if state else self.zero
        divisor = (area.denominator * lasting) << (UNIT + 1)
        average = quotient(area.numerator, divisor) if lasting else None
        return {"time_avg": average, "time_covered": lasting / 1000}

    def pack_amount(self, amount: WeightedAmount, writer: VarintWriter) -> None:
        """Writes the exact area and the time."""
        writer.wide(int(amount[0]))
        writer.number(amount[1])

    def unpack_amount(self, reader: VarintReader) -> WeightedAmount:
        """Returns what `pack_amount` wrote."""
        return reader.wide(), reader.number()
