"""Reads the summaries that are published: of one series the newest, and those that a run has put."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from bson.min_key import MinKey
from bson.raw_bson import RawBSONDocument
from pymongo.collection import Collection

from bucketwise.buckets.columns import Series
from bucketwise.buckets.models.series import series_key
from bucketwise.config.policies import LevelName
from bucketwise.rollups.calendar.levels import Level
from bucketwise.rollups.context import RunContext
from bucketwise.rollups.publishing.documents import published
from bucketwise.rollups.publishing.state import ChangedSeries
from bucketwise.rollups.summaries import documents
from bucketwise.rollups.summaries.targets import ensure_indexes, stored_fields, target

Document = dict[str, Any]
#: Summaries by the name of their level; in each level the last one first.
ByLevel = dict[str, list[Document]]
_BATCH_SIZE = 2000  # summaries that one query names


@dataclass(frozen=True)
class Newest:
    """Finds the newest summaries. `levels`: those of the policy, the finest first. `counts`: how many windows
    of each level are kept; of the finest, at least the last one."""

    context: RunContext
    levels: Sequence[Level]
    counts: Mapping[LevelName, int]

    @property
    def finest(self) -> str:
        """Returns the name of the finest level."""
        return self.levels[0].name

    def of(self, series: Series) -> ByLevel:
        """Returns the newest summaries of a series. Where these levels have none, the last one of the finest
        level that has any."""
        counted = [level for level in self.levels if self._count(level)]
        found: ByLevel = {level.name: self._newest(level, series) for level in counted}
        for level in self.levels:
            if not any(found.values()):
                found[level.name] = self._newest(level, series)
        return found

    def changed(self, changed: Sequence[ChangedSeries]) -> dict[bytes, ByLevel]:
        """Returns the put summaries that may be among the newest, by the key of their series."""
        found: dict[bytes, ByLevel] = {}
        for level in filter(self._count, self.levels):
            put = [it.put.get(level.collection, {}) for it in changed]
            ids = [it[start] for it in put for start in sorted(it)[-self._count(level) :]]
            for at in range(0, len(ids), _BATCH_SIZE):
                query = {"_id": {"$in": list(map(RawBSONDocument, ids[at : at + _BATCH_SIZE]))}}
                for summary in self._collection(level).find(query, self._fields()):
                    key = series_key(documents.series_of(self.context.policy, summary))
                    of_level = found.setdefault(key, {}).setdefault(level.name, [])
                    of_level.append(self._published(level, summary))
        for summaries in (it for by_level in found.values() for it in by_level.values()):
            summaries.sort(key=lambda it: -it["start_ms"])
        return found

    def series(self, level: Level) -> Iterator[Series]:
        """Yields each series that has summaries of a level: a look at its index for each, however many
        summaries there are."""
        policy, collection = self.context.policy, self._collection(level)
        with_series = {"_id.series": {"$exists": True}}  # only summaries have such an `_id`
        if collection.find_one(with_series, {"_id": 1}) is None:
            return
        if not policy.series_names:
            yield ()
            return
        ensure_indexes(target(self.context.database, level.collection), policy)
        fields = [*stored_fields(policy), "start"]
        order, index = [(name, -1) for name in fields], [(name, 1) for name in fields]
        before: list[tuple[str, Any]] = []
        while True:
            cursor = collection.find(with_series, {"_id": 1}).sort(order).hint(index).limit(1)
            found = next(cursor.max(before) if before else cursor, None)
            if found is None:
                return
            values = [documents.value_at(found["_id"]["series"], name) for name in policy.series_names]
            before = list(zip(fields, [*values, MinKey()], strict=True))
            if documents.is_of_series(policy, found):
                yield documents.series_of(policy, found)

    def _count(self, level: Level) -> int:
        """Returns how many windows of a level are needed."""
        return self.counts.get(level.name, 1 if level is self.levels[0] else 0)

    def _newest(self, level: Level, series: Series) -> list[Document]:
        policy, count = self.context.policy, self._count(level) or 1
        query = dict(zip(stored_fields(policy), series, strict=True))
        found = self._collection(level).find(query, self._fields(), batch_size=count + 1).sort("start", -1)
        with_series = (it for it in found if documents.is_of_series(policy, it))
        return [self._published(level, it) for it in islice(with_series, count)]

    def _fields(self) -> dict[str, int]:
        return {"coverage": 0, **{f"{name}.state": 0 for name in self.context.policy.value_names}}

    def _collection(self, level: Level) -> Collection[Document]:
        return self.context.database.get_collection(level.collection, codec_options=documents.OPTIONS)

    def _published(self, level: Level, summary: Document) -> Document:
        return {"level": level.name, **published(self.context.policy, summary)}
