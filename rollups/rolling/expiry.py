"""Expiry of summaries: what is past its `retain` goes, except for what a hold covers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bson.datetime_ms import DatetimeMS
from bson.raw_bson import RawBSONDocument
from pymongo.client_session import ClientSession
from pymongo.collection import Collection

from config.policies import LevelName
from rollups.calendar.levels import Level, expired_before, levels_of
from rollups.context import RunContext
from rollups.guarded import transaction
from rollups.holds import Hold, Holds, without_held
from rollups.progress import load, note_gone
from rollups.summaries.targets import target

Document = dict[str, Any]
_BATCH_SIZE = 1000


@dataclass
class ExpiryReport:
    """How many summaries went, or would go, by level; and how many stay, by the name of the hold. One that
    several holds cover counts for each."""

    gone: dict[str, int]
    held: Counter[str] = field(default_factory=Counter)


def expire_summaries(context: RunContext) -> ExpiryReport:
    """Deletes summaries whose window ended before now − retain, but for those that a coarser level is yet to
    be made of, and those under a hold."""
    expiry = _Expiry(context)
    for level, before in expiry.limits.items():
        note_gone(context.database, context.policy, {level.name: before})
        expiry.delete(level, _expired(before))
    return expiry.report


def count_expired(context: RunContext, through: Mapping[LevelName, int] | None = None) -> ExpiryReport:
    """Returns how many summaries `expire_summaries` would delete. Deletes nothing. `through`: how far each
    level is rolled up by then; None: as far as it is."""
    expiry = _Expiry(context, through)
    for level, before in expiry.limits.items():
        expiry.count(level, _expired(before))
    return expiry.report


class _Expiry:
    def __init__(self, context: RunContext, through: Mapping[LevelName, int] | None = None) -> None:
        self._context = context
        self._through = through
        self._levels = levels_of(context.policy)
        self._names = context.policy.series_names
        self._holds = Holds(context.database, context.policy.identity)
        self.report = ExpiryReport({level.name: 0 for level in self._levels})

    @property
    def limits(self) -> dict[Level, int]:
        """Returns before when (milliseconds) summaries go, of the levels that don't stay forever."""
        context, levels = self._context, self._levels
        through = self._through
        if through is None:
            through = load(context.database, context.policy).through
        limits = {level: expired_before(level, levels, context.now, through) for level in levels}
        return {level: before for level, before in limits.items() if before is not None}

    def count(self, level: Level, expired: Document) -> None:
        collection = target(self._context.database, level.collection)
        if collection.find_one(expired, {"_id": 1}) is None:
            return
        holds = self._holds.active()
        query = without_held(expired, holds, self._names, level.reach)
        self.report.gone[level.name] = collection.count_documents(query)
        self._count_held(level, expired, holds)

    def delete(self, level: Level, expired: Document) -> None:
        collection = target(self._context.database, level.collection)
        if collection.find_one(expired, {"_id": 1}) is None:
            return
        holds, ids = self._due(collection, level, expired)
        while ids:
            self._context.check()
            delete = partial(self._delete, collection, level, ids)
            gone = transaction(self._context.database, self._context.guard, delete)
            self.report.gone[level.name] += gone
            self._context.progress("expired summaries", gone)
            holds, ids = self._due(collection, level, expired)
        self._count_held(level, expired, holds)

    def _due(
        self, collection: Collection[RawBSONDocument], level: Level, expired: Document
    ) -> tuple[list[Hold], list[Any]]:
        """Returns the holds that stand, and some of the summaries that they don't cover."""
        holds = self._holds.active()
        query = without_held(expired, holds, self._names, level.reach)
        return holds, [it["_id"] for it in collection.find(query, {"_id": 1}).limit(_BATCH_SIZE)]

    def _delete(
        self, collection: Collection[RawBSONDocument], level: Level, ids: list[Any], session: ClientSession
    ) -> int:
        existing = self._holds.active(session)
        query = without_held({"_id": {"$in": ids}}, existing, self._names, level.reach)
        return collection.delete_many(query, session=session).deleted_count

    def _count_held(self, level: Level, expired: Document, holds: list[Hold]) -> None:
        collection = target(self._context.database, level.collection)
        for hold in holds:
            count = collection.count_documents({"$and": [expired, hold.summaries(self._names, level.reach)]})
            if count:
                self.report.held[hold.name] += count


def _expired(before: int) -> Document:
    limit = {"$lt": DatetimeMS(before)}
    # A start before the limit is implied; it is in the query because it has an index. Only summaries have
    # such an `_id`: if the collection is somebody else's by mistake, their documents stay.
    return {"start": limit, "end": limit, "_id.series": {"$exists": True}}
