"""Which policies can use a change stream, and from when on incoming readings are new. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from bucketwise.buckets.models import model_of
from bucketwise.config.policies import LevelName, Policy
from bucketwise.rollups.calendar.levels import base_levels, levels_of


def may_stream(policy: Policy) -> bool:
    """Returns whether a change stream can report a policy's late readings, if the server lets us read it."""
    wants_stream = policy.rollup is not None and policy.rollup.late_data != "scan"
    return wants_stream and model_of(policy).streams_changes


def rolled_up_to(policy: Policy, through: Mapping[LevelName, int]) -> int:
    """Returns the instant (milliseconds) from which on no reading lies in a window that is rolled up."""
    return max(through[level.name] + level.reach for level in levels_of(policy) if level.name in through)


def new_from(policy: Policy, through: Mapping[LevelName, int]) -> int:
    """Returns the instant from which on incoming readings are new. Weeks and months are made from days,
    so they do not count."""
    known = [through[level.name] for level in base_levels(levels_of(policy)) if level.name in through]
    return min(known or through.values())
