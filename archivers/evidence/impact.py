"""Counts what a changed policy would roll up again, and the summaries whose readings are gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bson.datetime_ms import DatetimeMS

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.evidence.kind import Evidence
from bucketwise.archivers.reading.archived import archived_reader
from bucketwise.config.fingerprint import fingerprint
from bucketwise.config.policies import LevelName, Policy
from bucketwise.rollups.calendar.levels import Level, base_levels, levels_of, sources_of
from bucketwise.rollups.summaries.targets import target


@dataclass(frozen=True)
class RollupImpact:
    """What a roll-up by the changed policy makes. Where it reads readings again: how many buckets are live
    and archived, the latter with their readings and bytes of BSON, None where they are not known.

    `standing`: summaries by the policy of today, by level. `lost`: those that end before `first`, the first
    reading that is live or archived; None where there is none.
    """

    levels: Sequence[str]
    is_whole: bool  # all summaries
    live: int
    archived: int
    readings: int | None
    bytes: int | None
    standing: Mapping[LevelName, int]
    lost: Mapping[LevelName, int]
    first: int | None


def rollup_impact(context: ArchiveContext, archived: Evidence, changed: Policy) -> RollupImpact | None:
    """Returns what the changed policy would roll up again, in the context of today's; None where nothing."""
    today = {level.name: level for level in levels_of(context.policy)}
    levels = levels_of(changed)
    is_whole = fingerprint(changed) != fingerprint(context.policy)
    made = [it for it in levels if is_whole or _is_new(it, today.get(it.name))]
    if not made:
        return None
    reads = is_whole or any(it in base_levels(levels) and not sources_of(it, levels) for it in made)
    first = _first(context) if is_whole else None
    stands = {name: _count(context, level) for name, level in today.items()} if is_whole else {}
    lost = {name: _count(context, level, first) for name, level in today.items()} if is_whole else {}
    live = replace(context, policy=changed).source.count() if reads else 0
    total, readings, size = archived.totals() if reads else (0, 0, 0)
    names = [level.name for level in made]
    return RollupImpact(names, is_whole, live, total, readings, size, stands, lost, first)


def dropped(context: ArchiveContext, changed: Policy) -> dict[LevelName, int]:
    """Returns how many summaries there are of levels of today's policy that the changed one lacks, or makes
    elsewhere, by level."""
    targets = changed.rollup.targets if changed.rollup else {}
    gone = [it for it in levels_of(context.policy) if targets.get(it.name) != it.collection]
    return {level.name: _count(context, level) for level in gone}


def _is_new(level: Level, before: Level | None) -> bool:
    return before is None or before.collection != level.collection


def _count(context: ArchiveContext, level: Level, before: int | None = None) -> int:
    """Returns how many summaries of a level there are, or end before an instant."""
    query: dict[str, object] = {"_id.series": {"$exists": True}}
    if before is not None:
        query |= {"start": {"$lt": DatetimeMS(before)}, "end": {"$lte": DatetimeMS(before)}}
    return target(context.database, level.collection).count_documents(query)


def _first(context: ArchiveContext) -> int | None:
    """Returns when the first reading is that is live or archived; of an offline archive the day's start."""
    span = archived_reader(context.connections, context.policy).span()
    found = (None if span is None else span[0], context.source.earliest())
    return min((it for it in found if it is not None), default=None)
