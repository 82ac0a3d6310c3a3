"""Whether anything is there that a hold would cover: live, archived or summarised."""

from __future__ import annotations

from collections.abc import Iterator

import pymongo
from pymongo.errors import PyMongoError

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.evidence.kind import Evidence
from bucketwise.archivers.writes.held import holds_any
from bucketwise.config.errors import HaltedError
from bucketwise.rollups.calendar.levels import levels_of
from bucketwise.rollups.holds import Hold

#: Seconds after which it is not looked for any further.
_PATIENCE_S = 20


def covers_anything(context: ArchiveContext, archived: Evidence, hold: Hold) -> bool:
    """Returns whether a hold covers anything. It goes by what queries and manifests can tell, which may be a
    little more; and says so as well where that takes too long, or the archive is damaged."""
    try:
        with pymongo.timeout(_PATIENCE_S):
            return any(_looks(context, archived, hold))
    except PyMongoError as error:
        if not error.timeout:
            raise
    except HaltedError:
        pass
    return True


def _looks(context: ArchiveContext, archived: Evidence, hold: Hold) -> Iterator[bool]:
    database, policy = context.database, context.policy
    for level in levels_of(policy):
        query = hold.summaries(policy.series_names, level.reach)
        yield database[level.collection].find_one(query, {"_id": 1}) is not None
    yield holds_any(context.source, hold)
    yield archived.may_cover(hold)
