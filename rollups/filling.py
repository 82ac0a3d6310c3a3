"""What is known of a series between its readings: it keeps the value of the last one (`previous`), changes
evenly until the next one (`linear`), or nothing is known (`null`). Pure.

Where readings lie further apart than a field's `max_gap`, nothing is known between them. After `previous`, a
value holds for so long and no longer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Literal

from bucketwise.config.policies import Policy, ValueField
from bucketwise.rollups.calendar.levels import Span
from bucketwise.rollups.calendar.windows import span_ms
from bucketwise.rollups.statistics import COUNTER_GAP
from bucketwise.rollups.statistics.steps import Reading

Fill = Literal["previous", "linear", "null"]
_PLAIN = ValueField()


class Filling(ABC):
    """A way to fill. `looks_around`: it needs the reading before what it fills; `looks_ahead`: also the one
    behind it."""

    looks_around: ClassVar[bool] = True
    looks_ahead: ClassVar[bool] = False

    @abstractmethod
    def value(self, at: int, before: Reading | None, after: Reading | None, gap: int) -> float | None:
        """Returns the value at an instant between two readings; None where it is unknown. `gap`: in
        milliseconds."""

    @abstractmethod
    def over(
        self, span: Span, before: Reading | None, after: Reading | None, gap: int
    ) -> Mapping[str, float] | None:
        """Returns the extremes and the average over a span between two readings, and the values at its ends;
        None where they are unknown."""


class Previous(Filling):
    """A value stays until the next reading."""

    def value(self, at: int, before: Reading | None, after: Reading | None, gap: int) -> float | None:  # noqa: ARG002
        """Returns the value of the last reading."""
        return None if before is None or at - before[0] > gap else before[1]

    def over(
        self, span: Span, before: Reading | None, after: Reading | None, gap: int
    ) -> Mapping[str, float] | None:
        """Returns the value of the last reading as each of them."""
        value = self.value(span[0], before, after, gap)
        return None if value is None else dict.fromkeys(("min", "max", "avg", "first", "last"), value)


class Linear(Filling):
    """A value changes evenly until the next reading."""

    looks_ahead = True

    def value(self, at: int, before: Reading | None, after: Reading | None, gap: int) -> float | None:
        """Returns the value on the line between the readings."""
        return None if (line := _line(before, after, gap)) is None else _on(line, at)

    def over(
        self, span: Span, before: Reading | None, after: Reading | None, gap: int
    ) -> Mapping[str, float] | None:
        """Returns what the line between the readings has in the span."""
        if (line := _line(before, after, gap)) is None:
            return None
        first, middle, last = (_on(line, at) for at in (span[0], sum(span) / 2, span[1]))
        low, high = sorted((first, last))
        return {"min": low, "max": high, "avg": middle, "first": first, "last": last}


class Null(Filling):
    """Nothing is known."""

    looks_around = False

    def value(self, at: int, before: Reading | None, after: Reading | None, gap: int) -> float | None:
        """Returns None."""

    def over(
        self, span: Span, before: Reading | None, after: Reading | None, gap: int
    ) -> Mapping[str, float] | None:
        """Returns None."""


FILLINGS: Mapping[Fill, Filling] = {"previous": Previous(), "linear": Linear(), "null": Null()}


def gaps(policy: Policy) -> dict[str, int]:
    """Returns how far apart two readings of each value field may lie for what is between them to be known, in
    milliseconds."""
    told = (policy.values.get(path, _PLAIN) for path in policy.value_fields)
    named = zip(policy.value_names, told, strict=True)
    return {name: span_ms(it.max_gap or COUNTER_GAP) for name, it in named}


def is_step(before: Reading | None, after: Reading | None, gap: int) -> bool:
    """Returns whether a step leads from one reading to the other."""
    return before is not None and after is not None and after[0] - before[0] <= gap


def _line(before: Reading | None, after: Reading | None, gap: int) -> tuple[Reading, Reading] | None:
    if before is None or after is None or not is_step(before, after, gap):
        return None
    return before, after


def _on(line: tuple[Reading, Reading], at: float) -> float:
    one, other = line
    share = (at - one[0]) / (other[0] - one[0])
    found: float = one[1] * (1 - share) + other[1] * share
    return found
