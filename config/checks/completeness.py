"""Checks the interval that a policy expects, and the holes that it allows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from bucketwise.config.durations import format_duration
from bucketwise.config.policies import Policy
from bucketwise.config.problems import Fault, Key, ProblemReport
from bucketwise.config.zones import is_zone

_HOUR = timedelta(hours=1)
_SHORTEST = timedelta(seconds=1)
_REMEDY = 'write a length that divides an hour, such as "1s", "10s", "1m", "15m" or "1h"'


def check_completeness(policy: Policy, report: ProblemReport) -> None:
    """Reports an `expected_interval` that does not divide an hour, and one or a `max_hole` that
    contradicts the policy."""
    at: Key = ("policies", policy.name)
    expected, allowed = (*at, "expected_interval"), (*at, "max_hole")
    interval, hole = policy.expected_interval, policy.max_hole
    if interval is not None and policy.rollup is None:
        fault = Fault(
            "completeness is recorded in summaries, and this policy makes none", "add a rollup, or remove it"
        )
        report.add(expected, fault, rests_on=[(*at, "rollup")])
    if interval is not None and (interval < _SHORTEST or _HOUR % interval):
        report.broken(expected, Fault("an hour is not a whole number of these intervals", _REMEDY))
    elif interval is not None and policy.rollup is not None and policy.rollup.has_days:
        zone = policy.rollup.timezone
        if _cuts(interval, zone):
            message = f"days in {zone} begin in the middle of such an interval"
            remedy = 'write one that divides a quarter of an hour, such as "1m", "5m" or "15m"'
            report.add(expected, Fault(message, remedy), rests_on=[(*at, "rollup", "timezone")])
    if hole is not None and interval is None:
        fault = Fault("holes are found by expected_interval, which is not set", "add `expected_interval`")
        report.add(allowed, fault, rests_on=[expected])
    elif hole is not None and interval is not None and hole < interval:
        shortest = format_duration(interval)
        fault = Fault(f"it is shorter than expected_interval ({shortest})", f'write "{shortest}" or longer')
        report.add(allowed, fault, rests_on=[expected])


def _cuts(interval: timedelta, zone: str) -> bool:
    """Returns whether some day of the zone, since 1980, begins in the middle of an interval."""
    if not is_zone(zone):
        return False  # told where the zone is checked
    clock, fortnight = ZoneInfo(zone), timedelta(days=14)
    instants = (datetime(1980, 1, 1, tzinfo=UTC) + n * fortnight for n in range(60 * 26))
    return any((instant.astimezone(clock).utcoffset() or timedelta(0)) % interval for instant in instants)
