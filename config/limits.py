"""Limits as people write them: a number of buckets, or a share of them such as `20%`."""

from __future__ import annotations

from decimal import Decimal

from config.problems import InvalidValueError
from config.shares import percent_of

MEND = 'write a share of the collection in quotes, such as "20%", or a whole number of buckets'
_WHOLE = 100


def check_limit(value: object) -> None:
    """Raises InvalidValueError where the value is neither a share nor a number above zero."""
    if isinstance(value, int) and not isinstance(value, bool):
        is_sound = value > 0
    elif isinstance(value, str) and (percent := percent_of(value)) is not None:
        is_sound = 0 < percent <= _WHOLE
    else:
        raise InvalidValueError("it is neither a share nor a whole number", MEND)
    if not is_sound:
        raise InvalidValueError("it must be above zero, and at most 100%", MEND)


def at_most(limit: int | str, total: int) -> int:
    """Returns how many of a total a limit allows."""
    if isinstance(limit, int):
        return limit
    return int(Decimal(limit.removesuffix("%")) * total / _WHOLE)
