"""Checks that the keys which say how readings lie in a document agree with each other."""

from __future__ import annotations

import itertools

from bucketwise.config.policies import Policy
from bucketwise.config.problems import Fault, Key, ProblemReport
from bucketwise.config.slots import CALENDAR_DAYS, NEXT_UNIT, length_of


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
        if length_of(outer) <= length_of(inner):
            message = f'"{inner}" slots do not lie inside "{outer}" slots'
            report.add((*at, "slot_levels"), Fault(message, "name the larger unit first"))
    if outermost := levels[0] if levels else policy.slot:
        _check_span(policy, outermost, at, report)
        _check_keys(policy, policy.span or NEXT_UNIT.get(outermost), at, report)


def _check_span(policy: Policy, slot: str, at: Key, report: ProblemReport) -> None:
    """Reports a bucket that slots of this width don't divide."""
    key, span = (*at, "span"), policy.span
    rests_on = [(*at, "slot"), (*at, "slot_levels")]
    if span is None and slot not in NEXT_UNIT:
        some = '"week" or "month"' if slot == "day" else 'such as "day"'
        fault = Fault(
            f'it is missing, and slots of "{slot}" need it', f"add `span`: how long a bucket is, {some}"
        )
        report.add(key, fault, rests_on=rests_on)
    elif span is not None and slot == "day" and span not in ("week", "month"):
        fault = Fault("slots of a day are in buckets of a week or a month", 'write "week" or "month"')
        report.add(key, fault, rests_on=rests_on)
    elif span is not None and length_of(span) <= length_of(slot):
        message = f"a bucket of a {span} does not hold slots of a {slot}"
        report.add(key, Fault(message, "write a larger unit, or leave it out"), rests_on=rests_on)
    elif span is not None and length_of("day" if span in CALENDAR_DAYS else span) % length_of(slot):
        fault = Fault(f'slots of "{slot}" do not divide it', "write a multiple of the slot")
        report.add(key, fault, rests_on=rests_on)


def _check_keys(policy: Policy, span: str | None, at: Key, report: ProblemReport) -> None:
    """Reports names of slots that don't go with the slots, or with a bucket of this span."""
    key = (*at, "slot_keys")
    rests_on = [(*at, "span"), (*at, "slot"), (*at, "slot_levels")]
    if policy.slot_keys == "running" and len(policy.slot_levels) < 2:
        fault = Fault(
            "only slots inside slots count on", 'remove it, or write such as slot_levels = ["hour", "minute"]'
        )
        report.add(key, fault, rests_on=rests_on)
    if policy.slot_keys == "clock":
        if len(policy.slot_levels) > 1 or span != "day":
            fault = Fault("clock times are keys of a day, on one level", 'write span = "day", or remove it')
            report.add(key, fault, rests_on=rests_on)
        if policy.first_slot:
            fault = Fault("clock times are not counted", "remove it")
            report.add((*at, "first_slot"), fault, rests_on=[key])
    if policy.slot_time == "local" and span not in CALENDAR_DAYS:
        fault = Fault(
            "only in days, weeks and months do clocks tell the slot", 'write span = "day", or "elapsed"'
        )
        report.add((*at, "slot_time"), fault, rests_on=rests_on)


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
