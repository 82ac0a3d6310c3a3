"""Readings as columns: what every roll-up and archive works on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: The values of the series fields, in the order of the policy's `series_fields`. Whole numbers are one
#: series whatever their BSON type (1, 1.0 and NumberLong(1) are equal in MongoDB too).
Series = tuple[Any, ...]


class ValueKind(IntEnum):
    """The kind of value that a reading has in one value field."""

    MISSING = 0  # absent or null
    FINITE = 1
    NONFINITE = 2  # NaN, +Inf, -Inf
    NONNUMERIC = 3  # a string, a bool, a date …


def is_number(kinds: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Returns where there is a number, finite or not, (n,)."""
    return (
        kinds - np.uint8(ValueKind.FINITE) <= ValueKind.NONFINITE - ValueKind.FINITE
    )  # MISSING comes round to 255


#: The code of a reading that tells no state.
NO_STATE = -1


@dataclass(frozen=True)
class StateColumn:
    """The states that readings tell, where texts are states. A finite number is the state that its shortest
    text names."""

    codes: NDArray[np.int32]  # of each reading: index into names; NO_STATE
    names: Sequence[str]  # distinct

    def take(self, readings: NDArray[np.int64]) -> StateColumn:
        """Returns the states of some readings, and no other names."""
        used, codes = np.unique(self.codes[readings], return_inverse=True)
        shift = int(NO_STATE in used)
        names = [self.names[code] for code in used[shift:].tolist()]
        return StateColumn((codes.reshape(-1) - shift).astype(np.int32), names)

    @staticmethod
    def together(columns: Sequence[StateColumn]) -> tuple[list[NDArray[np.int32]], list[str]]:
        """Returns the codes of each of some columns in one list of names, and this list."""
        index: dict[str, int] = {}
        found = []
        for it in columns:
            places = [index.setdefault(name, len(index)) for name in it.names]
            found.append(np.array([*places, NO_STATE], dtype=np.int32)[it.codes])  # NO_STATE is the last
        return found, list(index)


def joined(parts: Sequence[NDArray[Any]], dtype: type[np.generic]) -> NDArray[Any]:
    """Returns columns of one type as one column: a single one without a copy."""
    return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, dtype), *parts])


@dataclass(frozen=True)
class Columns:
    """The readings of some buckets.

    Buckets are in ascending `_id` order; readings are in bucket order, within a bucket in the order in
    which they lie there. A stable sort by (series, time) thus puts the lower `_id` first where times tie.

    Shapes: b buckets, n readings, s distinct series.
    """

    series: list[Series]  # s
    bucket_series: NDArray[np.int32]  # b: index into series; 0 where readings have their own
    bucket_order: NDArray[np.bytes_]  # b: `_id`s as bytes that sort as BSON sorts them
    starts: NDArray[np.int64]  # b + 1: the readings of bucket i are starts[i] to starts[i + 1]
    time: NDArray[np.int64]  # n: milliseconds since the epoch, UTC
    values: dict[str, NDArray[np.float64]]  # value field -> n; NaN where kind is not FINITE or NONFINITE
    kinds: dict[str, NDArray[np.uint8]]  # value field -> n; ValueKind
    #: n: index into series, where the readings of a bucket are of several; None: they are of its bucket's
    reading_series: NDArray[np.int32] | None = None
    #: n: the time that the reading's own clock shows, as if it were UTC; None: the policy names no offset
    local: NDArray[np.int64] | None = None
    #: Value field -> n: of those of which texts are states.
    states: dict[str, StateColumn] = field(default_factory=dict)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Returns how many readings each bucket holds, (b,)."""
        return np.diff(self.starts)

    @cached_property
    def bucket(self) -> NDArray[np.int32]:
        """Returns the index of each reading's bucket, (n,)."""
        return np.repeat(np.arange(len(self.lengths), dtype=np.int32), self.lengths)

    @cached_property
    def series_of_readings(self) -> NDArray[np.int32]:
        """Returns the index into `series` of each reading, (n,)."""
        return self.bucket_series[self.bucket] if self.reading_series is None else self.reading_series

    def buckets_of(self, readings: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the index of the bucket of some readings: for few of them cheaper than `bucket`."""
        found: NDArray[np.int64] = np.searchsorted(self.starts, readings, side="right") - 1
        return found

    def series_at(self, readings: NDArray[np.int64]) -> NDArray[np.int32]:
        """Returns the index into `series` of some readings: for few of them cheaper than that of all."""
        if self.reading_series is not None:
            return self.reading_series[readings]
        return self.bucket_series[self.buckets_of(readings)]

    @cached_property
    def readings_of_series(self) -> NDArray[np.int64]:
        """Returns how many readings each series has, (s,)."""
        if self.reading_series is not None:
            return np.bincount(self.reading_series, minlength=len(self.series))
        found = np.bincount(self.bucket_series, self.lengths, len(self.series))
        return found.astype(np.int64)

    def holds(self, series: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Returns which buckets hold a reading of any of these series, (b,). `series`: which are meant, (s,).
        A bucket without readings holds its own series."""
        if self.reading_series is None:
            return series[self.bucket_series]
        found = np.zeros(len(self.lengths), dtype=np.bool_)
        found[self.bucket[series[self.reading_series]]] = True
        return found

    @cached_property
    def filled(self) -> NDArray[np.int64]:
        """Returns the indices of the buckets that hold any reading."""
        return np.flatnonzero(self.lengths)

    def of_filled(self, ufunc: np.ufunc) -> NDArray[np.int64]:
        """Returns np.minimum or np.maximum of the times of each bucket that holds any reading."""
        starts = self.starts[self.filled]
        return np.asarray(ufunc.reduceat(self.time, starts)) if len(starts) else starts


@dataclass(frozen=True)
class Quarantined:
    """A bucket that breaks its model: left where it is, and reported."""

    id: Any  # the document's _id
    field: str  # where, dotted
    reason: str  # what is wrong with it, with the value
    #: Of one whose `_id` can't be asked for: its first and last time in milliseconds, to find it by.
    span: tuple[int, int] | None = None
    #: Its `_id` as a query names it: a document raw, with the types it has.
    name: Any = None
