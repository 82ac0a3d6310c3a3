"""Reads the summaries that are published: of one series the newest, and those that a run has put."""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any

import bson
from bson import json_util
from bson.datetime_ms import DatetimeMS
from bson.min_key import MinKey
from bson.raw_bson import RawBSONDocument
from pymongo import ReturnDocument
from pymongo.collection import Collection
from pymongo.database import Database

from bucketwise.buckets.bson.cursor import SIMPLE
from bucketwise.buckets.columns import Series
from bucketwise.buckets.fields.selectors import EXTENDED_JSON
from bucketwise.buckets.models.series import series_key
from bucketwise.config.policies import LevelName, Policy
from bucketwise.rollups.calendar.levels import Level
from bucketwise.rollups.calendar.tiling import instant
from bucketwise.rollups.calendar.windows import to_ms
from bucketwise.rollups.context import RunContext
from bucketwise.rollups.progress import progress_collection
from bucketwise.rollups.summaries import documents
from bucketwise.rollups.summaries.documents import filled, series_of, value_at
from bucketwise.rollups.summaries.targets import ensure_indexes, stored_fields, target

Document = dict[str, Any]

#: Changes of summaries that are kept in memory; where a run writes more, all series are published.
_MAX_REMEMBERED = 100_000


@dataclass(frozen=True)
class PublishState:
    """How far a policy is published. `number` counts publications; `expires`: when the last of what was
    published goes from Redis."""

    owner: str = ""
    number: int = 0
    settings: str = ""
    pending: bool = True
    whole: int | None = None
    expires: datetime | None = None


class PublishStates:
    """The place of one policy's state."""

    def __init__(self, database: Database[Document], policy: Policy) -> None:
        self._id = {"publish": policy.identity}
        self._collection = progress_collection(database)

    def load(self) -> PublishState:
        """Returns the state; an empty one, which is pending, where nothing was published yet."""
        found = self._collection.find_one({"_id": self._id}, {"_id": 0})
        return PublishState() if found is None else PublishState(**found)

    def begin(self, settings: str, *, whole: bool) -> PublishState:
        """Counts a publication that begins. `whole`: it is one of all series."""
        number: Document = {"$add": [{"$ifNull": ["$number", 0]}, 1]}
        begun = {
            "owner": {"$ifNull": ["$owner", uuid.uuid4().hex]},
            "number": number,
            "settings": {"$literal": settings},
            "pending": {"$ifNull": ["$pending", True]},
            "whole": number if whole else {"$ifNull": ["$whole", None]},
            "expires": {"$ifNull": ["$expires", None]},
        }
        found = self._collection.find_one_and_update(
            {"_id": self._id},
            [{"$set": begun}],
            {"_id": 0},
            upsert=True,
            return_document=ReturnDocument.AFTER,
        )
        assert found is not None
        return PublishState(**found)

    def note(self, **fields: Any) -> None:
        """Sets some fields, if there is a state already."""
        self._collection.update_one({"_id": self._id}, {"$set": fields})


@dataclass
class ChangedSeries:
    """The `_id`s of summaries of a series that a run has put: collection -> start (milliseconds) -> BSON.
    `has_deletes`: some were deleted, so that older ones may have to be there again."""

    series: Series
    put: dict[str, dict[int, bytes]] = field(default_factory=dict)
    has_deletes: bool = False


class ChangedSummaries:
    """Remembers which summaries a run writes. Before the first one is written it marks the state as pending,
    so that what a crash forgets is published later."""

    def __init__(self, database: Database[Document], policy: Policy) -> None:
        self._policy = policy
        self._states = PublishStates(database, policy)
        self._count = 0
        self.series: dict[bytes, ChangedSeries] = {}
        self.is_noted = False
        self.is_all = False  # something else is not published yet, or there was too much to remember

    def __call__(self, collection: str, put: Iterable[bytes], deleted: Iterable[bytes], /) -> None:
        """Remembers the `_id`s of summaries that are about to change, for the next publication."""
        if not self.is_noted:
            self.is_all = self._states.load().pending
            if not self.is_all:
                self._states.note(pending=True)
            self.is_noted = True
        for identity in () if self.is_all else put:
            entry, start = self._entry(identity)
            entry.put.setdefault(collection, {})[start] = identity
        for identity in () if self.is_all else deleted:
            self._entry(identity)[0].has_deletes = True

    def _entry(self, identity: bytes) -> tuple[ChangedSeries, int]:
        name: Document = bson.decode(identity, documents.OPTIONS)
        series = documents.series_of(self._policy, {"_id": name})
        self._count += 1
        if self._count > _MAX_REMEMBERED:
            self.is_all = True
            self.series.clear()
        return self.series.setdefault(series_key(series), ChangedSeries(series)), to_ms(name["start"])


#: Fields of a summary that are published beside series and values.
_HEAD = (
    "start", "end", "timezone", "hours", "count", "expected", "missing", "longest_hole", "longest_hole_at",
)  # fmt: skip


def published(policy: Policy, summary: Mapping[str, Any]) -> Document:
    """Returns a summary in the words of `summarize`: plain JSON. Each instant is there as ISO 8601 and, with
    `_ms` behind its name, as milliseconds since 1970."""
    series = dict(zip(policy.series_names, series_of(policy, summary), strict=True))
    told = filled(policy, dict(summary))
    values = {name: value_at(told, name) or {} for name in policy.value_names}
    return {
        "series": {name: _plain(value) for name, value in series.items()},
        **dict(_instants({key: summary[key] for key in _HEAD if key in summary})),
        "values": {name: dict(_instants(value)) for name, value in values.items()},
    }


def as_json(document: Document) -> str:
    """Returns the document as one line of JSON; doubles read back to the same bits."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def as_fields(document: Document) -> dict[str, str]:
    """Returns the document as the fields of a hash: statistics as `p.avg`. Nulls are left out."""
    values = document["values"].items()
    flat = {key: value for key, value in document.items() if key not in ("series", "values")}
    flat |= {f"{name}.{key}": it for name, statistics in values for key, it in statistics.items()}
    fields = {key: _text(value) for key, value in flat.items() if value is not None}
    return {"series": as_json(document["series"]), **fields}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _instants(document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        if isinstance(value, datetime | DatetimeMS):
            yield key, instant(to_ms(value))
            yield f"{key}_ms", to_ms(value)
        elif key not in ("state", "coverage"):
            yield key, _plain(value)


def _plain(value: Any) -> Any:
    """Returns a value as the JSON of all commands has it."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, datetime):
        return instant(to_ms(value))
    return json.loads(json_util.dumps(value, json_options=EXTENDED_JSON))


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
        collection, size = self._collection(level), count + 1
        found = collection.find(query, self._fields(), batch_size=size, collation=SIMPLE).sort("start", -1)
        with_series = (it for it in found if documents.is_of_series(policy, it))
        return [self._published(level, it) for it in islice(with_series, count)]

    def _fields(self) -> dict[str, int]:
        return {"coverage": 0}

    def _collection(self, level: Level) -> Collection[Document]:
        return self.context.database.get_collection(level.collection, codec_options=documents.OPTIONS)

    def _published(self, level: Level, summary: Document) -> Document:
        return {"level": level.name, **published(self.context.policy, summary)}
