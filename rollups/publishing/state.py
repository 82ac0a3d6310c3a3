"""How far publishing has come: one document a policy in `bucketwise_progress`.

While `pending`, a run has written, or is about to write, summaries that Redis may not have. `whole`: the
number of a publication of all series that has begun and has not ended.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import bson
from pymongo import ReturnDocument
from pymongo.database import Database

from bucketwise.buckets.columns import Series
from bucketwise.buckets.models.series import series_key
from bucketwise.config.policies import Policy
from bucketwise.rollups.calendar.windows import to_ms
from bucketwise.rollups.progress import progress_collection
from bucketwise.rollups.summaries import documents

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
    """Where the state of one policy is stored."""

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
