"""Keeps buckets from the archive that hold no finite number in a value field, on a whole day of a series that
had some.

The application may have renamed the field, or put something else there. Once that is only in the archive,
nobody would notice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from bson.datetime_ms import DatetimeMS
from bson.max_key import MaxKey
from bson.min_key import MinKey
from numpy.typing import NDArray
from pymongo.database import Database

from bucketwise.archivers.report import Valueless
from bucketwise.archivers.run import ArchiveRun
from bucketwise.buckets.columns import Columns, Series, ValueKind
from bucketwise.buckets.decoding.decode import BucketSet
from bucketwise.buckets.fields.times import DAY_MS
from bucketwise.buckets.models import model_of
from bucketwise.buckets.models.series import series_key
from bucketwise.config.policies import Policy
from bucketwise.rollups.calendar.levels import Level, base_levels, levels_of
from bucketwise.rollups.summaries import documents

Document = dict[str, Any]
#: Series that one query asks for.
_BATCH_SIZE = 100


class NumericHistory:
    """Answers one run's questions to its summaries. What a series ever had is looked up once."""

    def __init__(self, database: Database[Document], policy: Policy) -> None:
        self._database = database
        self._policy = policy
        self._levels = levels_of(policy)
        self._fields_ever: dict[bytes, set[str]] = {}

    def fields_ever(self, wanted: Mapping[bytes, Series]) -> Mapping[bytes, set[str]]:
        """Returns the value fields in which each of these series, by their keys, had a finite number ever."""
        new = [series for key, series in wanted.items() if key not in self._fields_ever]
        self._fields_ever |= {series_key(series): set() for series in new}
        if self._levels:  # the fewest; but the current week or month has none
            for key, _, names in self._numeric(base_levels(self._levels)[-1], new, MinKey(), MaxKey()):
                self._fields_ever.setdefault(key, set()).update(names)
        return {key: self._fields_ever[key] for key in wanted}

    def days(self, wanted: Collection[Series], first_ms: int, last_ms: int) -> set[tuple[bytes, int, str]]:
        """Returns on which UTC days (since 1970) from first to last these series had some, and where."""
        low, high = (DatetimeMS(day * DAY_MS) for day in (first_ms // DAY_MS, last_ms // DAY_MS + 1))
        return {
            (key, day, name)
            for level in self._levels
            if _is_within_one_day(level)
            for key, day, names in self._numeric(level, list(wanted), low, high, by_day=True)
            for name in names
        }

    def _numeric(
        self, level: Level, wanted: Sequence[Series], low: object, high: object, *, by_day: bool = False
    ) -> Iterator[tuple[bytes, int, set[str]]]:
        """Yields each series' key, a day (0 where all are taken together), and the value fields that had
        numbers."""
        summaries = self._database.get_collection(level.collection, codec_options=documents.OPTIONS)
        day: Any = {"$floor": {"$divide": [{"$toLong": "$start"}, DAY_MS]}} if by_day else {"$literal": 0}
        names = self._policy.value_names
        numeric = {f"f{i}": {"$max": {"$gt": [f"${name}.count", 0]}} for i, name in enumerate(names)}
        for at in range(0, len(wanted), _BATCH_SIZE):
            spans = [self._span(series, low, high) for series in wanted[at : at + _BATCH_SIZE]]
            group = {"_id": {"series": "$_id.series", "day": day}, **numeric}
            for found in summaries.aggregate([{"$match": {"$or": spans}}, {"$group": group}]):
                series = documents.series_of(self._policy, found)
                filled = {name for i, name in enumerate(names) if found[f"f{i}"]}
                yield series_key(series), int(found["_id"]["day"]), filled

    def _span(self, series: Series, low: object, high: object) -> Document:
        """Returns a query for the summaries of a series: their `_id`s lie together."""
        held = documents.series_document(self._policy, series)
        return {
            "_id": {"$gte": {"series": held, "start": low}, "$lt": {"series": held, "start": high}},
        }


def _is_within_one_day(level: Level) -> bool:
    """Returns whether each window lies in one UTC day."""
    return level.step is not None or (level.name == "daily" and level.zone.key == "UTC" and not level.local)


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
