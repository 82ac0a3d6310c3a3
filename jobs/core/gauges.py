"""The state of a policy after a run, for the metrics: how late it is, and what is live."""

from __future__ import annotations

from collections.abc import Mapping

import pymongo
from pymongo.errors import PyMongoError

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.mirroring.changes import standings
from bucketwise.archivers.worth import Worth, known_worth
from bucketwise.buckets.fields.times import FIRST_MS
from bucketwise.buckets.models import model_of
from bucketwise.buckets.rules import NEVER
from bucketwise.config.policies import Archive, LevelName, Policy
from bucketwise.jobs.core import lease
from bucketwise.rollups.calendar.due import Calendar
from bucketwise.rollups.calendar.windows import HIGHEST, LOWEST, span_ms
from bucketwise.rollups.progress import load

#: What `gauges` returns, and what each means.
GAUGES = {
    "rollup_lag_seconds": "Time since the first window not rolled up became due, in seconds",
    "archive_lag_seconds": "Time since the oldest expired bucket became due, in seconds",
    "oldest_live_bucket_timestamp_seconds": "Start of the oldest live bucket",
    "live_bytes": "Bytes of live documents, as BSON",
    "index_bytes": "Bytes of the indexes of live documents",
    "summary_bytes": "Bytes of summaries and their indexes",
    "store_bytes": "Bytes of the archive",
    "removed_bytes": "Bytes of documents that were deleted, and are not live again",
    "copies_behind_objects": "Objects that copies of the store lack or have too many",
    "copies_behind_seconds": "Time since a copy of the store is behind, in seconds",
    "lease_held": "Whether a run held the lease when the last one had ended",
}

#: Seconds that a server which does not answer may hold up a run for its metrics.
_PATIENCE = 5


def gauges(context: ArchiveContext) -> dict[str, float]:
    """Returns gauges by name, those that apply to the policy. A handful of commands, each of which looks at
    one bucket where there is an index on their times. Empty where MongoDB does not answer."""
    policy, source = context.policy, context.source
    found: dict[str, float] = {}
    try:
        with pymongo.timeout(_PATIENCE):
            oldest = source.earliest()
            if oldest is not None:
                found["oldest_live_bucket_timestamp_seconds"] = oldest / 1000
            if policy.rollup is not None:
                through = load(context.database, policy).through
                calendar = Calendar(policy, policy.rollup, context.now)
                found["rollup_lag_seconds"] = rollup_lag(calendar, through, oldest) / 1000
            if policy.archiving is not None and context.kept is None:
                lags = [0]
                for number, expired in enumerate(context.expired_before):
                    if expired == NEVER:
                        continue
                    ended = source.earliest_ending(FIRST_MS, context.rules.query({number}))
                    lags.append(archive_lag(policy, expired, ended))
                found["archive_lag_seconds"] = max(lags) / 1000
            if (worth := known_worth(context)) is not None:
                found |= _sizes(worth)
            if context.has_parts:
                found |= _copies(context)
            found["lease_held"] = float(lease.is_held(context.database, policy.identity))
    except PyMongoError:
        return {}
    return found


def _copies(context: ArchiveContext) -> dict[str, float]:
    """Returns how far copies are behind: all objects, and the time of the one that is furthest behind."""
    found = standings(context)
    seconds = [(context.now - at).total_seconds() for it in found if (at := it.behind_since) is not None]
    return {
        "copies_behind_objects": float(sum(it.behind or 0 for it in found)),
        "copies_behind_seconds": max([0.0, *seconds]),
    }


def _sizes(worth: Worth) -> dict[str, float]:
    data, index, summaries, store = map(float, worth.now)
    removed = float(worth.removed_bytes)
    sizes = {"live": data, "index": index, "summary": summaries, "store": store, "removed": removed}
    return {f"{name}_bytes": value for name, value in sizes.items()}


def rollup_lag(calendar: Calendar, through: Mapping[LevelName, int], oldest: int | None) -> int:
    """Returns for how long the first window that is not rolled up has been due (milliseconds; 0: none is).
    `through`: how far each level is rolled up. `oldest`: the first instant that a live bucket covers, where a
    level that is not rolled up at all begins."""
    lags = [0]
    for level in calendar.levels:
        begins = through.get(level.name, oldest)
        if begins is not None:
            at = max(LOWEST, min(begins, HIGHEST - 1))
            ends = level.edges(at, at + 1)[-1]
            lags.append(calendar.due_end - level.reach - ends)
    return max(lags)


def archive_lag(policy: Policy, expired_before: int, ended: int | None) -> int:
    """Returns for how long a bucket should have been archived, and deleted (milliseconds; 0: not yet).
    `ended`: the last time of the oldest bucket by its fields; None: there is none."""
    assert policy.archive is not None
    if ended is None:
        return 0
    ended += model_of(policy).reach_ms
    return max(0, expired_before - span_ms(policy.archive.grace) - _whole(policy.archive, ended))


def _whole(archive: Archive, ended: int) -> int:
    """Returns the end of the batch that a bucket goes with."""
    if archive.batch is None:
        return ended
    length = span_ms(archive.batch)
    return (ended // length + 1) * length
