"""Erases the summaries of a series, and makes those again that hold something beyond the range as well."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from functools import partial

from bson.datetime_ms import DatetimeMS
from pymongo.client_session import ClientSession

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.erasing.erasure import Erasure
from bucketwise.archivers.erasing.work import ErasureWork
from bucketwise.archivers.upkeep import roll_up_all
from bucketwise.buckets.bson.cursor import find_raw
from bucketwise.buckets.bson.queries import ids_query
from bucketwise.buckets.bson.raw import as_queried
from bucketwise.buckets.bson.types import first_at
from bucketwise.buckets.fields.selectors import series_text, summary_query
from bucketwise.buckets.fields.times import TimeRange
from bucketwise.buckets.models.shape import split
from bucketwise.rollups.calendar.levels import Level, levels_of
from bucketwise.rollups.rolling.options import RollupOptions
from bucketwise.rollups.standing import delete_summaries
from bucketwise.rollups.summaries.targets import target

_AT_ONCE = 1000
_MS = timedelta(milliseconds=1)


def summaries_of(
    context: ArchiveContext, erasure: Erasure, *, is_within: bool = False
) -> Iterator[tuple[Level, list[bytes]]]:
    """Yields the summaries of the series whose windows touch the range: the level, and the `_id`s of
    some. `is_within`: only those whose windows lie in it."""
    start, end = DatetimeMS(erasure.within.start_ms), DatetimeMS(erasure.within.end_ms)
    ranged = (
        {"start": {"$gte": start, "$lt": end}, "end": {"$lte": end}}
        if is_within
        else {"start": {"$lt": end}, "end": {"$gt": start}}
    )
    query = {**summary_query(erasure.series), **ranged, "_id.series": {"$exists": True}}
    for level in levels_of(erasure.policy):
        collection = target(context.database, level.collection)
        for documents in find_raw(collection, query, fields={"_id": 1}):
            mine = [documents.raw_id(i) for i, it in enumerate(documents) if _is_of(it, erasure)]
            for at in range(0, len(mine), _AT_ONCE):
                yield level, mine[at : at + _AT_ONCE]


def _is_of(document: bytes, erasure: Erasure) -> bool:
    return all(
        series_text(as_queried(first_at(document, ("_id", "series", *split(name))))) == text
        for name, text in erasure.series.items()
    )


def erase_summaries(work: ErasureWork, *, is_deleted_early: bool) -> None:
    """Deletes the summaries of all windows that touch the range, then rolls up those at its edges again, from
    what is left. `is_deleted_early`: something removes raw data that is in no archive of this policy."""
    for level, raw_ids in summaries_of(work.context, work.erasure):
        work.context.check()
        work.transaction(partial(_delete, work, level, raw_ids))
    for edge in _edges(work.erasure.within):
        roll_up_all(work.context, RollupOptions(edge, is_deleted_early=is_deleted_early))


def _delete(work: ErasureWork, level: Level, raw_ids: list[bytes], session: ClientSession) -> None:
    work.check_not_held(session)
    database, policy = work.context.database, work.erasure.policy
    deleted = delete_summaries(database, policy, level, ids_query(raw_ids), session)
    work.erasures.count({"summaries": deleted}, session)


def _edges(within: TimeRange) -> Iterator[TimeRange]:
    """Yields ranges that touch only the windows which may reach beyond the edges of this one."""
    if within.since is not None:
        yield TimeRange(within.since, within.since + _MS)
    if within.until is not None:
        yield TimeRange(within.until - _MS, within.until)
