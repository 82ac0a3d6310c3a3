"""What a changed policy does to summaries and archives that are there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from bson.datetime_ms import DatetimeMS

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.kinds.evidence import Evidence
from bucketwise.archivers.reading.archived import archived_reader
from bucketwise.buckets.decoding.decode import decode
from bucketwise.config.fingerprint import fingerprint, layout_fingerprint
from bucketwise.config.models import LAYOUT_KEYS, layout_of
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


#: What tells of which series, and of which days, a summary is.
_RULES_OF_SUMMARIES: dict[str, Callable[[Policy], object]] = {
    "series_fields": lambda it: it.series_names,
    "rollup.timezone": lambda it: it.rollup and it.rollup.has_days and it.rollup.timezone,
    "local_offset_field": lambda it: it.rollup and it.rollup.has_days and it.local_offset_field,
}


def unmakeable(context: ArchiveContext, archived: Evidence, before: Policy) -> str | None:
    """Says which summaries by the policy of `before` can't be made again by the present one, and don't go
    with those that can; None where there are none."""
    policy = context.policy
    changed = [key for key, rule in _RULES_OF_SUMMARIES.items() if rule(before) != rule(policy)]
    if not changed or not _targets(before) & _targets(policy):
        return None
    impact = rollup_impact(replace(context, policy=before), archived, policy)
    counts = [f"{count:,} {name}" for name, count in impact.lost.items() if count] if impact else []
    if not counts:
        return None
    keys = " and ".join(changed)
    return (
        f"{keys} changed, and {', '.join(counts)} summaries are of readings that are neither live nor "
        "archived: they can't be made again by the new rules, and don't go with those that are. Put "
        f"{keys} back; or name new collections in rollup for the summaries by the new rules: the old ones "
        "then stay where they are"
    )


def _targets(policy: Policy) -> set[str]:
    return set(policy.rollup.targets.values()) if policy.rollup else set()


def unreadable(policy: Policy, archived: Evidence, before: Policy) -> str | None:
    """Says which archived buckets break the present policy and fitted that of `before`; None where a few of
    them show none."""
    if layout_fingerprint(before) == layout_fingerprint(policy):
        return None
    for batch in archived.samples():
        fit, now = decode(batch, before), decode(batch, policy)
        if len(now.units) < len(fit.units):
            first = now.quarantined[0]
            old, new = layout_of(before), layout_of(policy)
            keys = sorted(key for key in LAYOUT_KEYS if old.get(key) != new.get(key))
            unfit = len(fit.units) - len(now.units)
            return (
                f"{', '.join(keys)} changed, and {unfit:,} of {len(batch):,} archived buckets that were seen "
                f"don't fit any more ({first.field}: {first.reason}): summaries of them could not be made "
                "again. Put it back, and give documents of another design a policy and a collection of their "
                "own"
            )
    return None
