"""By how much a counter has grown, and how often it began again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bucketwise.rollups.statistics.base import Column, MomentsState, VarintReader, VarintWriter
from bucketwise.rollups.statistics.moments import UNIT, exact, quotient, sums, total
from bucketwise.rollups.statistics.steps import Reading, StepArrays, Steps

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
