"""Ranges of instants as ranges of what a clock shows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.fields.clocks import Clock, clock_of
from bucketwise.buckets.fields.times import DAY_MS, FIRST_MS, LAST_MS, NO_TIME

#: The clock of UTC.
UTC = clock_of("UTC")


def all_shown(clock: Clock, first_ms: int, last_ms: int) -> tuple[int, int]:
    """Returns from what to what a clock shows from one instant to another. What it shows twice counts the
    first time; what it skips, when it does: so each lies in one of several ranges that follow each other. All
    that lies before or after the years that have names counts to the first and the last."""
    if clock.is_utc:
        return first_ms, last_ms
    first = FIRST_MS - DAY_MS if first_ms <= FIRST_MS else _first_shown(clock, first_ms)
    last = LAST_MS + DAY_MS if last_ms >= LAST_MS else _first_shown(clock, last_ms + 1) - 1
    return first, last


def placed(clock: Clock, shown: int) -> int:
    """Returns when a clock shows a time first, or skips it."""
    return int(clock.since(np.array([shown]))[0])


def days_placed(clock: Clock, midnights: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns when days of a clock begin, which are given by their midnights; NO_TIME for a day that it
    skips, and for NO_TIME."""
    if clock.is_utc:
        return midnights
    found = clock.since(midnights)
    return np.where(clock.since(midnights + DAY_MS) == found, NO_TIME, found)


def _first_shown(clock: Clock, instant: int) -> int:
    """Returns the first of all that a clock has neither shown nor skipped before the instant."""
    shown = int(clock.shown(np.array([instant]))[0])
    if placed(clock, shown - 1) < instant == placed(clock, shown):
        return shown
    low, high = shown - 2 * DAY_MS, shown + 2 * DAY_MS  # a clock is changed just before
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if placed(clock, middle) >= instant else (middle + 1, high)
    return low
