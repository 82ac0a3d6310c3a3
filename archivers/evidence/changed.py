"""What a changed policy can't make again: summaries, of readings that are gone or that it can't read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.evidence.impact import rollup_impact
from bucketwise.archivers.evidence.kind import Evidence
from bucketwise.buckets.decoding.decode import decode
from bucketwise.config.fingerprint import layout_fingerprint
from bucketwise.config.policies import LAYOUT_KEYS, Policy

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
            keys = sorted(key for key in LAYOUT_KEYS if getattr(before, key) != getattr(policy, key))
            unfit = len(fit.units) - len(now.units)
            return (
                f"{', '.join(keys)} changed, and {unfit:,} of {len(batch):,} archived buckets that were seen "
                f"don't fit any more ({first.field}: {first.reason}): summaries of them could not be made "
                "again. Put it back, and give documents of another design a policy and a collection of their "
                "own"
            )
    return None
