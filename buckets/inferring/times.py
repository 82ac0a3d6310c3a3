"""Finds the fields that hold times, and their form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bson.datetime_ms import DatetimeMS

from bucketwise.buckets.fields.isotimes import iso_ms
from bucketwise.buckets.fields.times import PER_SECOND, as_ms
from bucketwise.buckets.inferring.fields import (
    BOOKKEEPING,
    TIME,
    as_float,
    hints,
    is_number,
    is_whole,
    non_null,
)
from bucketwise.config.policies import TimeUnit

#: Seconds since 1970 between which a number may be a time: the years 1980 to 2100.
_EARLIEST, _LATEST = 315_532_800, 4_102_444_800
#: Share of a field's values that have to be times.
_NEARLY_ALL = 0.9
_PER_SECOND: dict[TimeUnit, int] = dict(PER_SECOND.items())


@dataclass(frozen=True)
class Time:
    """A field of times: its path, and its values in milliseconds; None where it has none."""

    path: str
    unit: TimeUnit
    values: list[int | None]
    rank: tuple[bool, ...]  # the higher, the likelier it is the time of readings

    @property
    def is_sure(self) -> bool:
        """Returns whether it is more than numbers that may be times by their size."""
        return self.unit in ("date", "iso") or hints(self.path, TIME)

    @property
    def key(self) -> TimeUnit | None:
        """Returns the unit as a policy needs it said: not at all of dates."""
        return None if self.unit == "date" else self.unit


def times_in(
    fields: dict[str, list[Any]], indexed: Sequence[str] = (), *, by_name: bool = False
) -> list[Time]:
    """Returns the fields that hold times, the likeliest first. `indexed`: fields that begin an index.
    `by_name`: any number is taken for seconds if its field is named like a time."""
    found = []
    for path, values in fields.items():
        unit = unit_of(values, path)
        if unit is None and by_name and hints(path, TIME) and all(map(is_number, non_null(values))):
            unit = "s"
        if unit is not None:
            is_named = hints(path, TIME)
            rank = (
                path in indexed,
                not hints(path, BOOKKEEPING),
                unit in ("date", "iso") or is_named,
                unit == "date",
                is_named,
            )
            found.append(Time(path, unit, [ms_of(it, unit) for it in values], rank))
    sure = [it for it in found if it.is_sure]
    return sorted(sure or found, key=lambda it: it.rank, reverse=True)


def unit_of(values: Sequence[Any], path: str) -> TimeUnit | None:
    """Returns the form of the times that a field holds; None if it holds none. Dates may be among numbers."""
    held = non_null(values)
    dates = sum(isinstance(it, datetime | DatetimeMS) for it in held)
    enough = _NEARLY_ALL * len(held)
    if not held:
        return None
    if dates >= enough:
        return "date"
    numbers = [it for it in held if is_number(it)]
    if dates + len(numbers) >= enough:
        return _counted(numbers, path)
    texts = sum(isinstance(it, str) and iso_ms(it) is not None for it in held)
    return "iso" if dates + texts >= enough else None


def _counted(numbers: list[Any], path: str) -> TimeUnit | None:
    floats = [as_float(it) for it in numbers]
    for unit, per in PER_SECOND.items():
        plausible = sum(_EARLIEST * per <= it <= _LATEST * per for it in floats)
        if plausible >= _NEARLY_ALL * len(floats) and (hints(path, TIME) or all(map(is_whole, numbers))):
            return unit
    return None


def ms_of(value: Any, unit: TimeUnit) -> int | None:
    """Returns a time in milliseconds, rounded down; None for none."""
    if isinstance(value, datetime):
        return as_ms(value)
    if isinstance(value, DatetimeMS):
        return int(value)
    if isinstance(value, str):
        return iso_ms(value)
    per = _PER_SECOND.get(unit)
    if per is None or not is_number(value):
        return None
    if isinstance(value, int):
        return value * 1000 // per
    number = as_float(value) * 1000 / per
    return math.floor(number) if math.isfinite(number) else None
