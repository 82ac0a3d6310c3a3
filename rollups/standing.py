"""What is recorded of the summaries of each level, beside how far it is rolled up: their tombstones. One
document a policy in `bucketwise_progress`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bson.datetime_ms import DatetimeMS
from pymongo.client_session import ClientSession
from pymongo.database import Database

from config.policies import LevelName, Policy
from rollups.calendar.levels import levels_of
from rollups.progress import progress_collection
from rollups.summaries.documents import milliseconds
from rollups.summaries.tombstones import Lift, Tombstone, Tombstones

Document = dict[str, Any]


def load_tombstones(
    database: Database[Document], policy: Policy, session: ClientSession | None = None
) -> dict[LevelName, Tombstones]:
    """Returns the tombstones of each level. Those of another collection do not count."""
    found = progress_collection(database).find_one(_identity(policy), {"tombstones": 1}, session=session)
    known: Mapping[str, Document] = (found or {}).get("tombstones", {})
    return {
        level.name: _tombstones(known[level.name])
        if known.get(level.name, {}).get("collection") == level.collection
        else Tombstones()
        for level in levels_of(policy)
    }


def store_tombstones(
    database: Database[Document],
    policy: Policy,
    changed: Mapping[LevelName, Tombstones],
    session: ClientSession,
) -> None:
    """Stores the tombstones of some levels, in a transaction."""
    targets = policy.rollup.targets if policy.rollup else {}
    update = {f"tombstones.{name}": _document(targets[name], it) for name, it in changed.items()}
    progress_collection(database).update_one(
        _identity(policy), {"$set": update}, upsert=True, session=session
    )


def _identity(policy: Policy) -> Document:
    return {"_id": {"summaries": policy.identity}}


def _tombstones(found: Document) -> Tombstones:
    return Tombstones(
        found["keep"],
        tuple(Tombstone(milliseconds(it["before"]), milliseconds(it["at"])) for it in found["placed"]),
        tuple(Lift(milliseconds(it["since"]), milliseconds(it["until"])) for it in found["lifts"]),
    )


def _document(collection: str, it: Tombstones) -> Document:
    return {
        "collection": collection,
        "keep": it.keep,
        "placed": [{"before": DatetimeMS(mark.before), "at": DatetimeMS(mark.at)} for mark in it.placed],
        "lifts": [{"since": DatetimeMS(lift.since), "until": DatetimeMS(lift.until)} for lift in it.lifts],
    }
