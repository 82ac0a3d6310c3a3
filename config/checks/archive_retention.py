"""Checks how long a policy keeps its archive."""

from __future__ import annotations

from datetime import timedelta

from config.durations import format_duration
from config.policies import Policy
from config.problems import Fault, Key, ProblemReport


def check_archive_retention(policy: Policy, report: ProblemReport) -> None:
    """Reports a `retain.archive` or `retain.archive_grace` that is too short or contradicts the policy."""
    if policy.retain is None:
        return
    at: Key = ("policies", policy.name)
    key, grace = (*at, "retain", "archive"), (*at, "retain", "archive_grace")
    if policy.retain.archive is not None:
        _check_keep(policy, policy.retain.archive, key, report)
    elif "archive_grace" in policy.retain.model_fields_set:
        fault = Fault(
            "it delays the end of an archive, and none is set", "add `retain.archive`, or remove it"
        )
        report.add(grace, fault, rests_on=[key])


def _check_keep(policy: Policy, keep: timedelta, key: Key, report: ProblemReport) -> None:
    archive, at = policy.archive, ("policies", policy.name, "archive")
    if archive is None or archive.to == "none":
        fault = Fault("the policy archives nothing", "remove it, or name an archive")
        report.add(key, fault, rests_on=[at, (*at, "to")])
    elif archive.after is None:
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
