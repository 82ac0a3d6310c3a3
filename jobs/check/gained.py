"""From when on summaries tell a statistic that their policy has gained: earlier ones stay as they were."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pymongo.collection import Collection
from pymongo.database import Database

from bucketwise.buckets.bson.cursor import SIMPLE
from bucketwise.config.policies import Policy
from bucketwise.jobs.core.turn import Finding
from bucketwise.rollups.calendar.levels import levels_of
from bucketwise.rollups.calendar.tiling import instant
from bucketwise.rollups.calendar.windows import to_ms
from bucketwise.rollups.statistics import columns_of, statistics_of
from bucketwise.rollups.summaries import documents

Document = dict[str, Any]


def gained(database: Database[Document], policy: Policy) -> Iterator[Finding]:
    """Yields findings of each level and value field whose first summary lacks statistics of the policy."""
    for level in levels_of(policy):
        collection = database.get_collection(level.collection, codec_options=documents.OPTIONS)
        for name, keys in _told(policy).items():
            first = _first(collection, {f"{name}.count": {"$gt": 0}})
            if first is None:
                continue
            told = documents.value_at(first, name)
            for since, lacking in _since(collection, name, [key for key in keys if key not in told]).items():
                yield Finding(
                    "statistics-since",
                    policy.name,
                    f"{level.collection}, {name}",
                    "ok",
                    _text(since, lacking),
                )


def _told(policy: Policy) -> dict[str, list[str]]:
    """Returns the keys that a summary of a number has, by value field."""
    return {
        name: [it.key for it in columns_of(kinds) if kinds[0].kept.shows(it.key) and not it.has_silent_zero]
        for name, kinds in statistics_of(policy).items()
    }


def _since(collection: Collection[Document], name: str, keys: list[str]) -> dict[int | None, list[str]]:
    """Returns the keys by when the first summary begins that tells them (milliseconds); None: no one does."""
    found: dict[int | None, list[str]] = {}
    for key in keys:
        first = _first(collection, {f"{name}.{key}": {"$exists": True}})
        found.setdefault(None if first is None else to_ms(first["start"]), []).append(key)
    return found


def _first(collection: Collection[Document], query: Mapping[str, Any]) -> Document | None:
    return collection.find_one(
        {"_id.series": {"$exists": True}, **query}, sort=[("start", 1)], collation=SIMPLE
    )


def _text(since: int | None, keys: list[str]) -> str:
    names = ", ".join(keys)
    if since is None:
        return f"no summary tells {names} yet: they come with windows that are rolled up from now on"
    at = instant(since)
    return (
        f"summaries tell {names} from {at} on. For earlier ones: `bucketwise rollup --since INSTANT --until "
        f"{at}`, as far as their readings are live or archived"
    )
