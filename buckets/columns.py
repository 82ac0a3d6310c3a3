"""Readings as columns: what every roll-up and archive works on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from buckets.layout import spread

#: The values of the series fields, in the order of the policy's `series_fields`. Whole numbers are one
#: series whatever their BSON type (1, 1.0 and NumberLong(1) are equal in MongoDB too).
Series = tuple[Any, ...]


class Kind(IntEnum):
    """What a reading holds for one value field."""

    MISSING = 0  # absent or null
    FINITE = 1
    NONFINITE = 2  # NaN, +Inf, -Inf
    NONNUMERIC = 3  # a string, a bool, a date …


@dataclass(frozen=True)
class Columns:
    """The readings of some buckets.

    Buckets are in ascending `_id` order; readings are in bucket order, within a bucket in the order in
    which they lie there. A stable sort by (series, time) thus puts the lower `_id` first where times tie.

    Shapes: b buckets, n readings, s distinct series.
    """

    series: list[Series]  # s
    bucket_series: NDArray[np.int32]  # b: index into series
    bucket_order: NDArray[np.bytes_]  # b: `_id`s as bytes that sort as BSON sorts them
    bucket: NDArray[np.int32]  # n: index of the reading's bucket
    time: NDArray[np.int64]  # n: milliseconds since the epoch, UTC
    values: dict[str, NDArray[np.float64]]  # value field -> n; NaN where kind is not FINITE or NONFINITE
    kinds: dict[str, NDArray[np.uint8]]  # value field -> n; Kind
    #: n: the time that the reading's own clock shows, as if it were UTC; None: the policy names no offset
    local: NDArray[np.int64] | None = None

    def sequence(self, rank: NDArray[np.integer], part_ms: int | None = None) -> NDArray[np.int64]:
        """n: the readings sorted by part of time (where parts of a length are asked for), then by the rank of
        their series (s), then by time; stable."""
        ranks = rank[self.bucket_series]
        starts = np.flatnonzero(np.diff(self.bucket, prepend=-1))
        if 2 * len(starts) < len(self.bucket):
            found = self._whole_buckets(ranks[self.bucket[starts]], starts, part_ms)
            if found is not None:
                return found
        by_series = (self.time, ranks[self.bucket])
        return np.lexsort(by_series if part_ms is None else (*by_series, self.time // part_ms))

    def _whole_buckets(
        self, ranks: NDArray[np.integer], starts: NDArray[np.int64], part_ms: int | None
    ) -> NDArray[np.int64] | None:
        """The same, where whole buckets follow one another, as they mostly do: buckets are sorted by their
        first reading, and where the readings then ascend strictly, no sort could give another order. Else
        None. `ranks`, `starts`: of each bucket that holds any."""
        stops = np.append(starts[1:], len(self.bucket))
        firsts, lasts = self.time[starts], self.time[stops - 1]
        parts = np.zeros_like(firsts)
        if part_ms is not None:
            parts = firsts // part_ms
            if not np.array_equal(parts, lasts // part_ms):
                return None
        order = np.lexsort((firsts, ranks, parts))
        found = spread(starts[order], (stops - starts)[order])
        time, ends = self.time[found], np.cumsum((stops - starts)[order])[:-1]
        ascends = time[1:] > time[:-1]
        ascends[ends - 1] |= (np.diff(ranks[order]) != 0) | (np.diff(parts[order]) != 0)
        return found if ascends.all() else None


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
