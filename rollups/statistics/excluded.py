"""How many values are kept out of the statistics: NaN and infinities, and what is no number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bucketwise.rollups.statistics.base import (
    Column,
    FieldReadings,
    MomentsState,
    Numbers,
    Statistic,
    VarintReader,
    VarintWriter,
)

ExcludedState = tuple[int, int]  # nonfinite, nonnumeric


class Excluded(Statistic[ExcludedState]):
    """Counts of what the other statistics leave out."""

    columns = (Column("nonfinite", "whole"), Column("nonnumeric", "whole"))
    empty = (0, 0)

    def states(self, readings: FieldReadings) -> list[ExcludedState]:
        """Returns the state of each cell, also of those without a finite number."""
        return list(zip(readings.nonfinite, readings.nonnumeric, strict=True))

    def build(self, readings: FieldReadings, numbers: Numbers) -> list[ExcludedState]:  # noqa: ARG002
        """Returns that no finite number is left out."""
        return [self.empty] * numbers.groups

    def merge(self, one: ExcludedState, other: ExcludedState) -> ExcludedState:
        """Returns the counts of both together."""
        return one[0] + other[0], one[1] + other[1]

    def shown(self, state: ExcludedState, moments: MomentsState) -> Mapping[str, Any]:  # noqa: ARG002
        """Returns the value of each key."""
        return {"nonfinite": state[0], "nonnumeric": state[1]}

    def pack(self, state: ExcludedState, writer: VarintWriter) -> None:
        """Writes nothing: the keys carry all."""

    def unpack(self, reader: VarintReader, document: Mapping[str, Any]) -> ExcludedState:  # noqa: ARG002
        """Returns the state of a summary's value field."""
        return document["nonfinite"], document["nonnumeric"]
