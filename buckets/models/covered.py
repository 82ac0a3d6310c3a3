"""The time that a bucket covers according to its fields."""

from __future__ import annotations

from typing import Any

from bucketwise.buckets.bson.raw import as_queried
from bucketwise.buckets.bson.types import first_at
from bucketwise.buckets.fields.timeforms import own_form, sample_form
from bucketwise.buckets.models.shape import split
from bucketwise.buckets.models.slots import length_ms
from bucketwise.config.policies import Policy


def first_and_last(policy: Policy) -> tuple[str, str]:
    """Returns the fields with a bucket's first and last time. They are the same field in all models but
    `samples`, and there where no field tells the last."""
    if policy.model == "samples":
        return str(policy.start_field), policy.end_field or str(policy.start_field)
    return str(policy.time_field), str(policy.time_field)


def span_fields(policy: Policy) -> tuple[str, str]:
    """Returns the fields that tell which time a bucket covers: its first time, and its last or its
    samples."""
    first, _ = first_and_last(policy)
    return first, first if policy.model != "samples" else policy.end_field or str(policy.samples_field)


def sample_index(policy: Policy) -> str | None:
    """Returns the field of an index that tells where samples lie, where no field tells a bucket's last time.
    It has an entry for each sample. None for pairs, which have no such field."""
    if policy.model != "samples" or policy.end_field or policy.samples_as == "pairs":
        return None
    return f"{policy.samples_field}.{policy.sample_time_field}"


def covered_span(policy: Policy, document: bytes) -> tuple[int, int] | None:
    """Returns [start, end) in milliseconds as a bucket's fields tell it, from its BSON; None where these are
    no times."""
    first, last = (as_queried(first_at(document, split(it))) for it in span_fields(policy))
    return covered(policy, first, last)


def covered(policy: Policy, first: object, last: object) -> tuple[int, int] | None:
    """Returns the span [start, end) in milliseconds from the values of the two fields; None where they give
    none. Samples may be given as they are, or by their times alone."""
    form = own_form(policy)
    start = form.milliseconds(first)
    end = _latest(policy, last, start) if isinstance(last, list) else form.milliseconds(last)
    if start is None or end is None or end < start:
        return None
    if policy.model == "slots":
        end += length_ms(policy) - 1
    elif form.unit == "s" and isinstance(last, int):
        end += 999  # a whole second is meant
    return start, end + 1


def _latest(policy: Policy, samples: list[Any], start: int | None) -> int | None:
    """Returns the time of the last sample; that of the bucket's start where there is none before."""
    times = (sample_form(policy).milliseconds(_time_of(policy, it)) for it in samples)
    return max((time for time in (start, *times) if time is not None), default=None)


def _time_of(policy: Policy, sample: Any) -> Any:
    if isinstance(sample, list):
        return sample[0] if sample else None
    return value_at(sample, str(policy.sample_time_field)) if isinstance(sample, dict) else sample


def value_at(document: object, dotted: str) -> Any:
    """Returns the value at a dotted path; None where there is none."""
    for part in dotted.split("."):
        if not isinstance(document, dict):
            return None
        document = document.get(part)
    return document
