"""Whether anything is there that a hold would cover: live, archived or summarised."""

from __future__ import annotations

from collections.abc import Iterator

import pymongo
from pymongo.errors import PyMongoError

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.writes.held import may_cover
from bucketwise.buckets.fields.selectors import selector_query
from bucketwise.buckets.source import Source
from bucketwise.config.errors import HaltedError
from bucketwise.rollups.calendar.levels import levels_of
from bucketwise.rollups.holds import Hold

#: Seconds after which it is not looked for any further.
_PATIENCE_S = 20


def covers_anything(context: ArchiveContext, hold: Hold) -> bool:
    """Returns whether a hold covers anything. It goes by what queries and manifests can tell, which may be a
    little more; and says so as well where that takes too long, or the archive is damaged."""
    try:
        with pymongo.timeout(_PATIENCE_S):
            return any(_looks(context, hold))
    except PyMongoError as error:
        if not error.timeout:
            raise
    except HaltedError:
        pass
    return True


def _looks(context: ArchiveContext, hold: Hold) -> Iterator[bool]:
    database, policy = context.database, context.policy
    span = hold.within.start_ms, hold.within.end_ms
    for level in levels_of(policy):
        query = hold.summaries(policy.series_names, level.reach)
        yield database[level.collection].find_one(query, {"_id": 1}) is not None
    yield _holds_any(context.source, hold)
    if (online := context.online()) is not None:
        yield _holds_any(online, hold)
    if (archive := context.offline()) is not None:
        yield any(may_cover(hold, it, policy) for it in archive.manifests(*span))


def _holds_any(source: Source, hold: Hold) -> bool:
    selectors = hold.selectors(source.policy.series_names)
    query = selector_query(source.policy, *selectors) or None
    return any(len(it) > 0 for it in source.batches(hold.within.start_ms, hold.within.end_ms, query))
