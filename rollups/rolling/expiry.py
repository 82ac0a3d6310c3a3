"""Expiry of summaries: what is past its `retain` goes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from bson.datetime_ms import DatetimeMS
from bson.raw_bson import RawBSONDocument
from pymongo.collection import Collection
from pymongo.database import Database

from config.policies import LevelName, Policy
from rollups.calendar.levels import Level, expired_before, levels_of
from rollups.progress import load, note_gone
from rollups.summaries.targets import target

Document = dict[str, Any]
_AT_ONCE = 1000


def expire_summaries(database: Database[Document], policy: Policy, now: datetime) -> dict[str, int]:
    """Deletes summaries whose window ended before now − retain, but for those that a coarser level is yet to
    be made of. Returns how many, by level."""
    gone: dict[str, int] = {level.name: 0 for level in levels_of(policy)}
    for level, before in _limits(database, policy, now).items():
        note_gone(database, policy, {level.name: before})
        gone[level.name] = _delete(target(database, level.collection), _expired(before))
    return gone


def count_expired(
    database: Database[Document],
    policy: Policy,
    now: datetime,
    through: Mapping[LevelName, int] | None = None,
) -> dict[str, int]:
    """Returns how many summaries `expire_summaries` would delete, by level. `through`: how far each level is
    rolled up by then; None: as far as it is."""
    found: dict[str, int] = {level.name: 0 for level in levels_of(policy)}
    for level, before in _limits(database, policy, now, through).items():
        found[level.name] = target(database, level.collection).count_documents(_expired(before))
    return found


def _limits(
    database: Database[Document],
    policy: Policy,
    now: datetime,
    through: Mapping[LevelName, int] | None = None,
) -> dict[Level, int]:
    """Returns before when (milliseconds) summaries go, of the levels that don't stay forever."""
    levels = levels_of(policy)
    through = load(database, policy).through if through is None else through
    limits = {level: expired_before(level, levels, now, through) for level in levels}
    return {level: before for level, before in limits.items() if before is not None}


def _expired(before: int) -> Document:
    limit = {"$lt": DatetimeMS(before)}
    # A start before the limit is implied; it is there because it has an index. Only summaries have such an
    # `_id`: were the collection somebody's by mistake, their documents stay.
    return {"start": limit, "end": limit, "_id.series": {"$exists": True}}


def _delete(collection: Collection[RawBSONDocument], expired: Document) -> int:
    deleted = 0
    while ids := [found["_id"] for found in collection.find(expired, {"_id": 1}).limit(_AT_ONCE)]:
        deleted += collection.delete_many({"_id": {"$in": ids}}).deleted_count
    return deleted
