"""What a roll-up, and a check, say of late readings, and of summaries that are missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bucketwise.archivers.proof.findings import Finding
from bucketwise.buckets.fields.times import as_date
from bucketwise.jobs.running.turn import Turn, pick
from bucketwise.rollups.calendar.levels import levels_of
from bucketwise.rollups.changes.late import LateSpans
from bucketwise.rollups.rolling.remaking import MissingSummaries


def missing_body(missing: Sequence[MissingSummaries]) -> dict[str, Any]:
    """Returns the summaries that somebody had removed as JSON; nothing where there are none. `lost`: null in
    a plan."""
    found = [
        {
            **pick(it, "level", "collection", "missing", "lost"),
            "since": as_date(it.span[0]),
            "until": as_date(it.span[1]),
        }
        for it in missing
    ]
    return {"missing": found} if found else {}


def late_body(late: LateSpans | None) -> dict[str, Any]:
    """Returns how late readings were looked for as JSON; nothing where a range was asked for."""
    if late is None:
        return {}
    return {"late": {"mode": late.mode, "events": late.events, "reason": late.reason}}


def unfollowed(turn: Turn) -> list[Finding]:
    """Returns a finding if the policy only rolls up what another one archives."""
    policy, archivers = turn.policy, turn.archivers
    if policy.archiving is not None or not archivers or not levels_of(policy):
        return []
    name = archivers[0].name
    message = (
        f"policy {name} archives {policy.collection}, and this one only rolls it up: readings that come late "
        "for what is archived are not in its summaries; runs count such summaries as `missed`. If that "
        f"matters, let policy {name} make these summaries"
    )
    return [Finding("late-missed", policy.name, policy.collection, "warning", message)]
