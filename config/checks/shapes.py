"""Checks that the keys which say how readings lie in a document agree with each other."""

from __future__ import annotations

import itertools

from bucketwise.config.policies import Policy
from bucketwise.config.problems import Fault, Key, ProblemReport

#: From small to large; a slot is one of all but the last.
_UNITS = ("second", "minute", "hour", "day")


def check_shape(policy: Policy, report: ProblemReport) -> None:
    """Reports keys that contradict each other on how readings lie in a document."""
    at: Key = ("policies", policy.name)
    if policy.model == "slots":
        _check_levels(policy, at, report)
    if policy.model == "samples":
        _check_samples(policy, at, report)
    _check_attributes(policy, at, report)
    _check_stars(policy, at, report)


def _check_levels(policy: Policy, at: Key, report: ProblemReport) -> None:
    levels = policy.slot_levels
    if levels and policy.slot is not None:
        fault = Fault("`slot_levels` says the same", "write one of the two")
        report.add((*at, "slot"), fault, rests_on=[(*at, "slot_levels")])
    if "slot_levels" in policy.model_fields_set and not levels:
        fault = Fault("it is empty", 'name the units of the slots, outer first, such as ["minute", "second"]')
        report.add((*at, "slot_levels"), fault)
    for outer, inner in itertools.pairwise(levels):
        if _UNITS.index(outer) <= _UNITS.index(inner):
            message = f'"{inner}" slots do not lie inside "{outer}" slots'
            report.add((*at, "slot_levels"), Fault(message, "name the larger unit first"))
    outermost = levels[0] if levels else policy.slot
    if policy.span and outermost and _UNITS.index(policy.span) <= _UNITS.index(outermost):
        message = f"a bucket of a {policy.span} does not hold slots of a {outermost}"
        fault = Fault(message, "write a larger unit, or leave it out")
        report.add((*at, "span"), fault, rests_on=[(*at, "slot"), (*at, "slot_levels")])


def _check_samples(policy: Policy, at: Key, report: ProblemReport) -> None:
    if policy.samples_as == "pairs" and policy.sample_time_field is not None:
        fault = Fault("the time of a pair is its first element, and has no name", "remove it")
        report.add((*at, "sample_time_field"), fault, rests_on=[(*at, "samples_as")])
    if policy.overflow is not None and policy.end_field is None:
        message = (
            "it is missing, and buckets with overflow need it: their own samples don't show when they end"
        )
        report.add(
            (*at, "end_field"), Fault(message, "add `end_field` to the policy"), rests_on=[(*at, "overflow")]
        )


def _check_attributes(policy: Policy, at: Key, report: ProblemReport) -> None:
    if policy.attributes_field is None:
        for key in ("attribute_key", "attribute_value"):
            if key in policy.model_fields_set:
                fault = Fault("the policy names no attributes", "add `attributes_field`, or remove this")
                report.add((*at, key), fault, rests_on=[(*at, "attributes_field")])


def _check_stars(policy: Policy, at: Key, report: ProblemReport) -> None:
    """Reports stars in other places: a `*` stands for each slot in a value field, and for each sample in a
    series field."""
    for path in policy.value_fields:
        if "*" in path.split(".") and not (policy.model == "slots" and _is_starred(path)):
            message = "`*` stands for each slot of a sub-document of slots"
            fault = Fault(
                message, 'write a path such as "v.*.p", with model = "slots", or the field without `*`'
            )
            report.add((*at, "value_fields"), fault, value=path, rests_on=[(*at, "model")])
    array = policy.samples_field
    has_samples = policy.model == "samples" and policy.samples_as == "documents"
    for path in policy.series_fields:
        is_in_sample = has_samples and _is_starred(path) and path.startswith(f"{array}.*.")
        if "*" in path.split(".") and not is_in_sample:
            remedy = f'write such as "{array or "samples"}.*.sensor", with samples that are documents'
            fault = Fault("`*` stands for each sample of samples_field", remedy)
            report.add((*at, "series_fields"), fault, value=path, rests_on=[(*at, "model")])


def _is_starred(path: str) -> bool:
    """Returns whether there is one star, between two names."""
    return path.split(".").count("*") == 1 and ".*." in path.strip(".")
