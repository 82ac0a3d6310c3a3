"""How many values are kept out of the statistics: NaN and infinities, and what is no number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Any

from bucketwise.rollups.statistics.base import (
    ALL,
    Column,
    FieldReadings,
    Kept,
    MomentsState,
    Numbers,
    Statistic,
    Stored,
    VarintWriter,
)

ExcludedState = tuple[int | None, int | None]  # nonfinite, nonnumeric; None: unknown


class Excluded(Statistic[ExcludedState]):
    """Counts of what the other statistics leave out."""

    columns = (
        Column("nonfinite", "whole", has_silent_zero=True),
        Column("nonnumeric", "whole", has_silent_zero=True),
    )
    empty = (0, 0)

    parts = ("nonfinite", "nonnumeric")

    def __init__(self, kept: Kept = ALL) -> None:
        self.kept = kept

    def states(self, readings: FieldReadings) -> list[ExcludedState]:
        """Returns the state of each cell, also of those without a finite number."""
        return list(zip(readings.nonfinite, readings.nonnumeric, strict=True))

    def build(self, readings: FieldReadings, numbers: Numbers) -> list[ExcludedState]:  # noqa: ARG002
        """Returns that no finite number is left out."""
        return [self.empty] * numbers.groups

    def merge(self, one: ExcludedState, other: ExcludedState) -> ExcludedState:
        """Returns the counts of both together."""
        return _both(one[0], other[0]), _both(one[1], other[1])

    def shown(self, state: ExcludedState, moments: MomentsState) -> Mapping[str, Any]:  # noqa: ARG002
        """Returns the value of each key."""
        return {"nonfinite": state[0], "nonnumeric": state[1]}

    def pack(self, state: ExcludedState, writer: VarintWriter, lacks: Set[str]) -> None:
        """Writes nothing: the keys carry all."""

    def lacks(self, state: ExcludedState, count: int) -> Iterator[str]:  # noqa: ARG002
        """Yields which of the two its summary does not tell."""
        for part, found in zip(self.parts, state, strict=True):
            if found is None or part not in self.kept.parts:
                yield part

    def unpack(self, stored: Stored) -> ExcludedState:
        """Returns the state of a summary's value field."""
        found = stored.document.get
        nonfinite = found("nonfinite", 0) if stored.holds("nonfinite") else None
        return nonfinite, found("nonnumeric", 0) if stored.holds("nonnumeric") else None


def _both(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other
