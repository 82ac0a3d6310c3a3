"""The time that a bucket says it covers, by its fields alone."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np

from buckets.slots import length_ms
from buckets.times import NO_TIME, as_ms, from_seconds
from config.policies import Policy


def first_and_last(policy: Policy) -> tuple[str, str]:
    """The fields with a bucket's first and last time; of all models but `samples` they are one."""
    if policy.model == "samples":
        return str(policy.start_field), str(policy.end_field)
    return str(policy.time_field), str(policy.time_field)


def covered(policy: Policy, first: object, last: object) -> tuple[int, int] | None:
    """[start, end) in milliseconds, from the values of the two fields; None where they are no times."""
    start, end = _ms(first), _ms(last)
    if start is None or end is None or end < start:
        return None
    if policy.model == "slots":
        end += length_ms(policy) - 1
    elif isinstance(last, int):
        end += 999  # a whole second is meant
    return start, end + 1


def value_at(document: object, dotted: str) -> Any:
    """What stands at a dotted path; None where nothing does."""
    for part in dotted.split("."):
        if not isinstance(document, dict):
            return None
        document = document.get(part)
    return document


def _ms(value: object) -> int | None:
    if isinstance(value, datetime):
        return as_ms(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    found = int(from_seconds(np.array([value]))[0])
    return None if found == NO_TIME else found
