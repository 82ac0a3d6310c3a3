"""Checks the rules of a policy: which series each is for, and that it does not contradict the policy."""

from __future__ import annotations

from datetime import timedelta

from bucketwise.config.policies import Policy, Rule
from bucketwise.config.problems import Fault, Key, ProblemReport, dotted, nearest
from bucketwise.config.times import format_duration


def check_rules(policy: Policy, report: ProblemReport) -> None:
    """Reports rules for series that there can't be, two rules for the same series, and what in a rule
    contradicts the policy."""
    first: dict[str, Key] = {}
    for number, rule in enumerate(policy.rules, start=1):
        at: Key = ("policies", policy.name, "rules", str(number))
        _check_match(policy, rule, at, report)
        same = repr(sorted((key, sorted(globs)) for key, globs in rule.match.items()))
        if (earlier := first.setdefault(same, at)) != at:
            fault = Fault(
                f"{dotted(earlier)} has the same match, and the first that matches holds",
                "remove one of the two rules, or match other series",
            )
            report.add((*at, "match"), fault, rests_on=[(*earlier, "match")])
        if not rule.model_fields_set & {"after", "to", "retain"}:
            fault = Fault("it says nothing of its series", "add `after`, `to` or `retain`, or remove it")
            report.add(at, fault)
        _check_archive(policy, rule, at, report)
        _check_summaries(policy, rule, at, report)


def _check_match(policy: Policy, rule: Rule, at: Key, report: ProblemReport) -> None:
    known = policy.series_names
    if not rule.match:
        fault = Fault("it matches no series field", 'write such as {site = "lab-*"}, or remove the rule')
        report.add((*at, "match"), fault, rests_on=[(*at, "match", name) for name in known])
    for name in rule.match:
        if name not in known:
            near = nearest(name, known)
            remedy = f'did you mean "{near}"?' if near else f"write any of {', '.join(known)}"
            fault = Fault("it is no series field of the policy", remedy)
            report.add((*at, "match", name), fault, rests_on=[("policies", policy.name, "series_fields")])


def _check_archive(policy: Policy, rule: Rule, at: Key, report: ProblemReport) -> None:
    archive, under = policy.archive, policy.under(rule)
    keep = rule.retain.archive if rule.retain else None
    own: Key = ("policies", policy.name, "archive")
    if archive is None or policy.archiving is None:
        named = [key for key in ("after", "to") if key in rule.model_fields_set and rule.to != "none"]
        keys = [*((*at, it) for it in named), *([(*at, "retain", "archive")] if keep is not None else [])]
        for key in keys:
            fault = Fault("the policy archives nothing", "remove it, or give the policy an archive")
            report.add(key, fault, rests_on=[own, (*own, "to")])
        return
    if rule.to not in (None, "none", archive.to):
        fault = Fault(
            f'the policy archives to "{archive.to}", and has one archive',
            f'write "{archive.to}" or "none", or remove it',
        )
        report.add((*at, "to"), fault, rests_on=[(*own, "to")])
    if rule.to == "none" and "after" in rule.model_fields_set:
        fault = Fault('with to = "none" nothing of these series is archived', "remove one of the two")
        report.add((*at, "after"), fault, rests_on=[(*at, "to")])
    after = rule.after if "after" in rule.model_fields_set else None
    if after is not None and policy.rollup is not None and after < policy.rollup.settle:
        settle = format_duration(policy.rollup.settle)
        message = f"it is shorter than rollup.settle ({settle}): buckets would expire before roll-up"
        fault = Fault(message, f'write "{settle}" or longer, or shorten rollup.settle')
        report.add((*at, "after"), fault, rests_on=[("policies", policy.name, "rollup", "settle")])
    _check_keep(under, rule, at, report)


def _check_keep(under: Policy, rule: Rule, at: Key, report: ProblemReport) -> None:
    """Reports where archived readings of a rule would go before they are archived. `under`: the policy as it
    is for these."""
    keep, archive = under.retain.archive if under.retain else None, under.archive
    if keep is None or archive is None or archive.after is None:
        return
    youngest = archive.after + (archive.batch or timedelta(0))
    if keep < youngest:
        shown = format_duration(youngest)
        is_named = rule.retain is not None and "archive" in rule.retain.model_fields_set
        fault = Fault(
            f"archived readings would go before they are archived: retain.archive is "
            f"{format_duration(keep)}, and they are archived after {shown}",
            f'write retain.archive = "{shown}" or longer in the rule, or a shorter `after`',
        )
        key = (*at, "retain", "archive") if is_named else (*at, "after")
        report.add(key, fault, rests_on=[("policies", under.name, "retain", "archive")])


def _check_summaries(policy: Policy, rule: Rule, at: Key, report: ProblemReport) -> None:
    """Reports levels that a rule retains and the policy does not make, and those of which it retains
    summaries for a shorter time than the readings."""
    made = policy.rollup.targets if policy.rollup else {}
    archive = policy.under(rule).archive
    for name, kept in (rule.retain.by_level if rule.retain else {}).items():
        key = (*at, "retain", name)
        if name not in made:
            fault = Fault(f"the policy makes no {name} summaries", f"add rollup.{name}, or remove this")
            report.add(key, fault, rests_on=[("policies", policy.name, "rollup")])
        elif kept is not None and archive is not None and (archive.after is None or kept < archive.after):
            shown = format_duration(archive.after)
            message = f"summaries would go before the raw readings do (after: {shown})"
            fault = Fault(message, f'write "{shown}" or longer, or a shorter `after`')
            report.add(key, fault, rests_on=[(*at, "after"), ("policies", policy.name, "archive", "after")])
