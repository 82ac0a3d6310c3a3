"""Times that a live bucket may have: a wrong unit, or a clock that was never set, must not be archived."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np

from bucketwise.buckets.decoding.soundness import Faults, ReadingGroup
from bucketwise.buckets.fields.times import (
    DAY_MS,
    FIRST_MS,
    LAST_MS,
    PER_SECOND,
    Unit,
    as_date,
    as_ms,
    as_text,
)
from bucketwise.buckets.models.shape import Shape
from bucketwise.config.policies import Policy
from bucketwise.config.times import read_instant, read_latest

#: What is earlier is rather a wrong unit, or a clock that was never set.
EARLIEST = datetime(1971, 1, 1, tzinfo=UTC)
_UNITS: dict[Unit, str] = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
#: A time that another unit puts so far after now is not meant.
_AHEAD_MS = 366 * DAY_MS


@dataclass(frozen=True)
class Plausible:
    """The times from `first` to `last` (milliseconds), by which live buckets are judged at `now`."""

    first: int
    last: int
    now: int

    @classmethod
    def of(cls, policy: Policy, now: datetime, *, has_earlier: bool) -> Plausible:
        """Returns what the policy says. `has_earlier`: whether it has summarised times before 1971; then it
        has no `earliest` by default."""
        earliest = None if has_earlier else EARLIEST
        if policy.earliest is not None:
            earliest = read_instant(policy.earliest)
        first = FIRST_MS if earliest is None else as_ms(earliest)
        return cls(first, last_plausible(policy, now), as_ms(now))

    def check(self, piece: ReadingGroup, faults: Faults) -> None:
        """Reports buckets with a reading outside."""
        if self._holds(piece):
            return
        outside = (piece.time < self.first) | (piece.time > self.last)
        if piece.present is not None:
            outside &= piece.present
        for row in np.flatnonzero(outside.any(axis=1)).tolist():
            place = int(np.flatnonzero(outside[row])[0])
            reason = self._reason(int(piece.time[row, place]), _unit(piece.shape))
            faults.add(piece.units[row : row + 1], _field(piece.shape, place), reason)

    def _holds(self, piece: ReadingGroup) -> bool:
        """Returns whether all times of a group are plausible. Mostly they are, and this takes less time."""
        time, present = piece.time, piece.present
        if not time.size:
            return True
        if piece.shape.times is None:  # slots, in their order
            return bool(self.first <= time[:, 0].min() and time[:, -1].max() <= self.last)
        if present is None:
            return bool(self.first <= time.min() and time.max() <= self.last)
        low = time.min(where=present, initial=self.last)
        return bool(self.first <= low and time.max(where=present, initial=self.first) <= self.last)

    def _reason(self, ms: int, unit: Unit | None) -> str:
        is_early = ms < self.first
        bound = (
            f"before `earliest` ({_shown(self.first)})"
            if is_early
            else f"after `latest` ({_shown(self.last)})"
        )
        meant = "".join(self._meant(ms, unit, other) for other in _UNITS if unit and other != unit)
        return f"the reading at {_shown(ms)} is {bound}{meant}"

    def _meant(self, ms: int, unit: Unit, other: Unit) -> str:
        """Returns what the time is in another unit; nothing where that is not plausible either."""
        meant = ms * PER_SECOND[unit] // PER_SECOND[other]
        if not self.first <= meant <= min(self.last, self.now + _AHEAD_MS):
            return ""
        return f": {_UNITS[other]} among {_UNITS[unit]}? As {_UNITS[other]} it is {_shown(meant)}"


def last_plausible(policy: Policy, now: datetime) -> int:
    """Returns the last time (milliseconds) that a live bucket of a policy may have."""
    latest = None if policy.latest is None else read_latest(policy.latest)
    if isinstance(latest, timedelta):
        return min(LAST_MS, as_ms(now) + latest // timedelta(milliseconds=1))
    return LAST_MS if latest is None else as_ms(latest)


def _unit(shape: Shape) -> Unit | None:
    """Returns the unit of the numbers that are times; of dates, what they count. None for texts."""
    form = shape.own_form if shape.times is None else shape.form
    return "ms" if form.is_date else form.unit


def _field(shape: Shape, place: int) -> str:
    if shape.times is not None:
        return ".".join(shape.times[place][0].path)
    if shape.start is not None:
        return ".".join(shape.start.path)
    return next(".".join(cells[place][0].path) for cells in shape.values.values() if cells[place])


def _shown(ms: int) -> str:
    return as_text(as_date(ms))
