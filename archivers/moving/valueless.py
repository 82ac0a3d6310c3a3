"""Keeps buckets from the archive that hold no finite number in a value field, on a whole day of a series that
had some.

The application may have renamed the field, or put something else there. Once that is only in the archive,
nobody would notice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bucketwise.archivers.report import Valueless
from bucketwise.archivers.run import ArchiveRun
from bucketwise.buckets.columns import Columns, ValueKind
from bucketwise.buckets.decoding.decode import BucketSet
from bucketwise.buckets.fields.times import DAY_MS
from bucketwise.buckets.models import model_of
from bucketwise.buckets.models.series import series_key
from bucketwise.rollups.summaries.numeric import NumericHistory

Integers = NDArray[np.int64]


class EmptyDay(NamedTuple):
    """Some readings of a series on one day, none of which holds a finite number in a field."""

    field: str
    series: int  # index into columns.series
    day: int  # since 1970, UTC
    had_some: bool  # the same series, on another day


class ReadingsByDay:
    """The readings of some columns, at least one, in cells: one for each series and UTC day."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        days = columns.time // DAY_MS
        self._first = int(days.min())
        self._count = int(days.max()) - self._first + 1
        series = columns.series_of_readings.astype(np.int64)
        keys = series * self._count + (days - self._first)
        self._cells, self._cell = np.unique(keys, return_inverse=True)

    def empty_days(self, names: Iterable[str]) -> list[EmptyDay]:
        """Returns the cells without a finite number, field by field."""
        found = []
        series, day = np.divmod(self._cells, self._count)
        for name in names:
            finite = self._columns.kinds[name] == ValueKind.FINITE
            counts = np.bincount(self._cell[finite], minlength=len(self._cells))
            by_series = np.bincount(series, counts)
            for at in np.flatnonzero(counts == 0).tolist():
                of = int(series[at])
                found.append(EmptyDay(name, of, int(day[at]) + self._first, bool(by_series[of])))
        return found

    def buckets(self, empty_days: Iterable[EmptyDay]) -> Integers:
        """Returns the buckets with a reading in one of these cells."""
        keys = np.array([it.series * self._count + it.day - self._first for it in empty_days], dtype=np.int64)
        held = np.isin(self._cells, keys)[self._cell]
        return np.unique(self._columns.bucket[held]).astype(np.int64)


class NumericCheck:
    """Decides which buckets may be copied: those with a number where there should be one."""

    def __init__(self, work: ArchiveRun) -> None:
        self._work = work
        self._summaries = NumericHistory(work.database, work.policy)

    def fitting(self, buckets: BucketSet) -> Integers:
        """Returns the indices of the buckets that may go; the others are reported."""
        columns, names = buckets.decoded.columns, self._work.policy.numeric_names
        slotless = slotless_buckets(buckets)
        if names and len(slotless):
            return self._without_slotless(buckets, slotless)
        if all((columns.kinds[name] == ValueKind.FINITE).all() for name in names):
            return np.arange(len(buckets))
        days = ReadingsByDay(columns)
        held = self._confirmed(columns, days.empty_days(names))
        staying = buckets.decoded.units[days.buckets(held)]
        reported = [Valueless(it.field, columns.series[it.series], it.day) for it in held]
        self._work.report.hold(len(staying), reported)
        return np.setdiff1d(np.arange(len(buckets)), staying)

    def _without_slotless(self, buckets: BucketSet, slotless: Integers) -> Integers:
        """Does the same where some buckets, given by their places in the columns, lack all of their slots."""
        columns, name = buckets.decoded.columns, self._work.policy.numeric_names[0]
        series = columns.bucket_series[slotless].tolist()
        days = (buckets.decoded.last[slotless] // DAY_MS).tolist()
        reported = dict.fromkeys(zip(series, days, strict=True))
        self._work.report.hold(
            len(slotless), [Valueless(name, columns.series[one], day) for one, day in reported]
        )
        others = np.setdiff1d(np.arange(len(buckets)), buckets.decoded.units[slotless])
        return others[self.fitting(buckets.take(others))] if len(others) else others

    def _confirmed(self, columns: Columns, empty_days: list[EmptyDay]) -> list[EmptyDay]:
        """Returns the days without a number in summaries as well, of series that had some: what was read may
        be a part of the day, and of the series."""
        keys = {it.series: series_key(columns.series[it.series]) for it in empty_days}
        had = self._summaries.fields_ever(
            {keys[it.series]: columns.series[it.series] for it in empty_days if not it.had_some}
        )
        some = [it for it in empty_days if it.had_some or it.field in had[keys[it.series]]]
        if not some:
            return []
        of = {it.series: columns.series[it.series] for it in some}.values()
        days = [it.day * DAY_MS for it in some]
        numeric = self._summaries.days(of, min(days), max(days))
        return [it for it in some if (keys[it.series], it.day, it.field) not in numeric]


def slotless_buckets(buckets: BucketSet) -> Integers:
    """Returns the buckets, by their places in the columns, that hold no reading and have none of the fields
    in which slots would be: the fields may have been renamed. Buckets with empty slots are not among them."""
    decoded, places = buckets.decoded, model_of(buckets.policy).slot_holders
    if not places or len(decoded.columns.filled) == len(buckets):
        return np.zeros(0, dtype=np.int64)
    lacking = [
        piece.units
        for piece in decoded.pieces
        if not piece.overflow and not any(piece.group.layout.get(place) for place in places)
    ]
    empty = decoded.columns.lengths == 0
    return np.flatnonzero(empty & np.isin(decoded.units, np.concatenate([[], *lacking])))
