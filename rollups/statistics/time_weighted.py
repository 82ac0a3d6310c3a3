"""Averages by time: each value counts for as long as it lasted."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from bucketwise.rollups.statistics.base import Column, MomentsState, VarintReader, VarintWriter
from bucketwise.rollups.statistics.moments import UNIT, exact, products, quotient
from bucketwise.rollups.statistics.steps import Reading, StepArrays, Steps

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
