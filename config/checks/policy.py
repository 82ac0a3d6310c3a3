"""Checks that a policy does not contradict itself: that is an error before it is a loss."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from bucketwise.config.checks.fields import check_fields
from bucketwise.config.checks.names import policy_fault
from bucketwise.config.checks.rules import check_rules
from bucketwise.config.policies import Archive, Policy, Rollup
from bucketwise.config.problems import Fault, Key, ProblemReport, dotted, nearest
from bucketwise.config.times import format_duration, is_zone, read_instant, read_latest, zones

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


def check_policy(policy: Policy, has_store: bool, report: ProblemReport) -> None:
    """Reports whatever in one policy is not valid or contradicts itself. `has_store`: whether a store is
    configured."""
    at: Key = ("policies", policy.name)
    if fault := policy_fault(policy.name):
        report.add(at, fault, value=policy.name)
    if policy.id is not None and (fault := policy_fault(policy.id)):
        report.add((*at, "id"), fault)
    check_fields(policy, report)
    _check_timezone(policy.timezone, at, report)
    if policy.rollup is not None:
        if policy.rollup.timezone != policy.timezone:
            _check_timezone(policy.rollup.timezone, (*at, "rollup"), report)
        _check_rollup(policy.rollup, (*at, "rollup"), report)
    check_completeness(policy, report)
    _check_plausible(policy, at, report)
    _check_local_days(policy, at, report)
    _check_archive(policy, at, has_store, report)
    _check_audit(policy, at, report)
    _check_retain(policy, at, report)
    _check_archive_retention(policy, report)
    check_rules(policy, report)


def _check_timezone(name: str, at: Key, report: ProblemReport) -> None:
    if not is_zone(name):
        near = nearest(name, sorted(zones()))
        remedy = f'did you mean "{near}"?' if near else 'write a name such as "UTC" or "Europe/Berlin"'
        report.add((*at, "timezone"), Fault("it is not an IANA time zone", remedy))


def _check_plausible(policy: Policy, at: Key, report: ProblemReport) -> None:
    latest = None if policy.latest is None else read_latest(policy.latest)
    if policy.earliest is None or not isinstance(latest, datetime):
        return
    if latest <= read_instant(policy.earliest):
        fault = Fault("no time lies between `earliest` and it", "write a later instant, or a duration")
        report.add((*at, "latest"), fault, rests_on=[(*at, "earliest")])


def _check_rollup(rollup: Rollup, at: Key, report: ProblemReport) -> None:
    if not rollup.targets:
        fault = Fault(
            "it has neither `hourly` nor `daily`, and no `levels`",
            "name the collection of at least one, or remove the table",
        )
        report.add(at, fault, rests_on=[(*at, "hourly"), (*at, "daily"), (*at, "levels")])
    _check_levels(rollup, at, report)
    for number, count in Counter(rollup.percentiles).items():
        if not 0 < number < 100:
            remedy = "write numbers such as 50, 95 or 99.9; `min` and `max` are in every summary anyway"
            fault = Fault(f"{number:g} is not above 0 and below 100", remedy)
            report.add((*at, "percentiles"), fault)
        elif count > 1:
            report.add(
                (*at, "percentiles"),
                Fault(f"{number:g} is listed more than once", "write each percentile once"),
            )
    _check_statistics(rollup, (*at, "statistics"), report)


def _check_statistics(rollup: Rollup, at: Key, report: ProblemReport) -> None:
    known = rollup.statistic_names
    for name, count in Counter(rollup.statistics).items():
        if name not in known:
            near = nearest(name, known)
            remedy = f'did you mean "{near}"?' if near else f"write any of {', '.join(known)}"
            fault = Fault(f'there is no statistic "{name}"', remedy)
            report.add(at, fault, value=name, rests_on=[(*at[:-1], "percentiles")])
        elif count > 1:
            report.add(at, Fault(f"{name} is listed more than once", "write each statistic once"))


def _check_levels(rollup: Rollup, at: Key, report: ProblemReport) -> None:
    first: dict[str, int] = {}
    for number, level in enumerate(rollup.levels, start=1):
        earlier = first.setdefault(level.name, number)
        if earlier != number:
            fault = Fault(f"{dotted((*at, 'levels', str(earlier)))} is of this level", "name each level once")
            key = (*at, "levels", str(number), "name")
            report.add(key, fault, rests_on=[(*at, "levels", str(earlier), "name")])


def _check_local_days(policy: Policy, at: Key, report: ProblemReport) -> None:
    if policy.local_offset_field is None:
        return
    key, zone = (*at, "local_offset_field"), (*at, "rollup", "timezone")
    if policy.rollup is None or not policy.rollup.has_days:
        message = "only daily and longer summaries use it, and the policy makes none"
        rests_on = [(*at, "rollup"), (*at, "rollup", "daily"), (*at, "rollup", "levels")]
        report.add(key, Fault(message, "add rollup.daily, or remove this"), rests_on=rests_on)
    elif policy.rollup.timezone != "UTC":
        message = f"days follow rollup.timezone ({policy.rollup.timezone}), or this field, not both"
        report.add(key, Fault(message, "remove one of the two"), rests_on=[zone])


def _check_archive(policy: Policy, at: Key, has_store: bool, report: ProblemReport) -> None:
    if (archive := policy.archive) is None:
        return
    to, after = (*at, "archive", "to"), (*at, "archive", "after")
    if archive.after is not None and policy.rollup is not None and archive.after < policy.rollup.settle:
        settle = format_duration(policy.rollup.settle)
        message = f"it is shorter than rollup.settle ({settle}): buckets would expire before roll-up"
        fault = Fault(message, f'write "{settle}" or longer, or shorten rollup.settle')
        report.add(after, fault, rests_on=[(*at, "rollup", "settle")])
    if policy.has_parts and not has_store:
        fault = Fault(
            "the archive needs a store, and none is set",
            "add [store] with a `url`, or set BUCKETWISE_STORE_URL",
        )
        report.add(to, fault, rests_on=[("store",)])
    _check_parts(policy, archive, (*at, "archive"), report)
    collection = (*at, "archive", "collection")
    if archive.to == "online" and archive.collection is None:
        fault = Fault(
            'it is missing, and to = "online" needs it', "name the collection that the buckets move to"
        )
        report.add(collection, fault)
    elif archive.to == "none" and archive.collection is not None:
        fault = Fault('with to = "none" nothing is archived', 'remove it, or write to = "online"')
        report.add(collection, fault)
    _check_batch(archive, (*at, "archive"), report)
    _check_deletes(archive, (*at, "archive"), report)


def _check_deletes(archive: Archive, at: Key, report: ProblemReport) -> None:
    """Reports settings of deletes where there are no deletes."""
    if archive.to != "none" and archive.delete:
        return
    why = 'to = "none"' if archive.to == "none" else "delete = false"
    said = {"grace": ("delays a delete", archive.grace), "max_delete": ("limits deletes", archive.max_delete)}
    for key, (what, value) in said.items():
        if value:
            fault = Fault(f"it {what}, and with {why} there is none", "remove it, or let the policy delete")
            report.add((*at, key), fault, rests_on=[(*at, "to"), (*at, "delete")])


def _check_audit(policy: Policy, at: Key, report: ProblemReport) -> None:
    if policy.audit.sample is not None and policy.archiving is None:
        fault = Fault("it is of an archive, and nothing is archived", "remove it")
        report.add((*at, "audit", "sample"), fault, rests_on=[(*at, "archive"), (*at, "archive", "to")])


def _check_parts(policy: Policy, archive: Archive, at: Key, report: ProblemReport) -> None:
    """Reports settings of an offline archive where there is none."""
    if policy.has_parts:
        return
    said = {
        "compact": ("it merges commits of", "remove [archive.compact]"),
        "move_receipts": ("receipts move to the store of", "remove it"),
    }
    for key, (what, remedy) in said.items():
        if key not in archive.model_fields_set:
            continue
        fault = Fault(f'{what} an offline archive, and to = "{archive.to}"', remedy)
        report.add((*at, key), fault, rests_on=[(*at, "to")])


def _check_batch(archive: Archive, at: Key, report: ProblemReport) -> None:
    if archive.batch is not None and archive.to == "none":
        fault = Fault('with to = "none" nothing is archived', "remove it, or name an archive")
        report.add((*at, "batch"), fault, rests_on=[(*at, "to")])


def _check_retain(policy: Policy, at: Key, report: ProblemReport) -> None:
    if policy.retain is None:
        return
    made = policy.rollup.targets if policy.rollup else {}
    for name, kept in policy.retain.by_level.items():
        key = (*at, "retain", name)
        if name not in made:
            is_named = name in ("hourly", "daily")
            add = f"add rollup.{name}" if is_named else "add it to rollup.levels"
            fault = Fault(f"the policy makes no {name} summaries", f"{add}, or remove this")
            rests_on = [(*at, "rollup"), (*at, "rollup", name if is_named else "levels")]
            report.add(key, fault, rests_on=rests_on)
        elif kept is not None and policy.archive is not None:
            _check_outlives(kept, policy.archive.after, key, at, report)
    lengths = [it for of in policy.lives if of.retain for it in of.retain.by_level.values()]
    if "grace" in policy.retain.model_fields_set and not any(lengths):
        fault = Fault("it delays the removal of summaries, and all of them stay", "remove it")
        report.add((*at, "retain", "grace"), fault, rests_on=[(*at, "retain")])


def _check_outlives(
    kept: timedelta, after: timedelta | None, key: Key, at: Key, report: ProblemReport
) -> None:
    """Reports summaries that would go before the raw readings that they are made of."""
    if after is None or kept < after:
        shown = format_duration(after)
        message = f"summaries would go before the raw readings do (archive.after: {shown})"
        fault = Fault(message, f'write "{shown}" or longer, or shorten archive.after')
        report.add(key, fault, rests_on=[(*at, "archive"), (*at, "archive", "after")])


def _check_archive_retention(policy: Policy, report: ProblemReport) -> None:
    """Reports a `retain.archive` or `retain.archive_grace` that is too short or contradicts the policy."""
    if policy.retain is None:
        return
    at: Key = ("policies", policy.name)
    key, grace = (*at, "retain", "archive"), (*at, "retain", "archive_grace")
    if policy.retain.archive is not None:
        _check_keep(policy, policy.retain.archive, key, report)
    elif "archive_grace" in policy.retain.model_fields_set and all(
        it.retain is None or it.retain.archive is None for it in policy.lives
    ):
        fault = Fault(
            "it delays the end of an archive, and none is set", "add `retain.archive`, or remove it"
        )
        report.add(grace, fault, rests_on=[key])


def _check_keep(policy: Policy, keep: timedelta, key: Key, report: ProblemReport) -> None:
    archive, at = policy.archive, ("policies", policy.name, "archive")
    if archive is None or policy.archiving is None:
        fault = Fault("the policy archives nothing", "remove it, or name an archive")
        report.add(key, fault, rests_on=[at, (*at, "to")])
    elif archive.after is None:
        if all(it.archive is None or it.archive.after is None for it in policy.lives):
            fault = Fault('archive.after is "forever": nothing is archived', "remove one of the two")
            report.add(key, fault, rests_on=[(*at, "after")])
    else:
        youngest = archive.after + (archive.batch or timedelta(0))
        if keep < youngest:
            shown = format_duration(youngest)
            keys = "archive.after" if archive.batch is None else "archive.after and archive.batch together"
            fault = Fault(
                f"archived readings would go before they are archived ({keys}: {shown})",
                f'write "{shown}" or longer, or shorten archive.after',
            )
            report.add(key, fault, rests_on=[(*at, "after"), (*at, "batch")])
