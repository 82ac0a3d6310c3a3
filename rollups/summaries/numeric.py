"""Which series have ever held a finite number in a value field, by a policy's summaries."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from bson.datetime_ms import DatetimeMS
from bson.max_key import MaxKey
from bson.min_key import MinKey
from pymongo.database import Database

from bucketwise.buckets.columns import Series
from bucketwise.buckets.fields.times import DAY_MS
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
