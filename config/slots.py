"""How long slots and their buckets are, as a policy file says it: by units, or by durations."""

from __future__ import annotations

from datetime import timedelta

from bucketwise.config.durations import parse_duration
from bucketwise.config.problems import InvalidValueError

#: From small to large.
UNITS = {
    "second": timedelta(seconds=1),
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
}
#: The calendar days of spans that are these of a zone; a month has as many as it has.
CALENDAR_DAYS: dict[str, int | None] = {"day": 1, "week": 7, "month": None}
#: The span of a bucket whose outer slots are these, where none is named.
NEXT_UNIT = {"second": "minute", "minute": "hour", "hour": "day"}


def length_of(text: str) -> timedelta:
    """Returns how long a slot or a span is; a month as long as its longest. Raises InvalidValueError."""
    if text in UNITS:
        return UNITS[text]
    if text in CALENDAR_DAYS:
        return timedelta(days=CALENDAR_DAYS[text] or 31)
    length = parse_duration(text)
    if not length:
        raise InvalidValueError("it is not a length", 'write a duration such as "15m"')
    return length


def check_slot(text: str) -> None:
    """Raises InvalidValueError where this is no width of slots."""
    remedy = 'write "second", "minute", "hour", "day", or a duration such as "15m"'
    try:
        is_one = text in UNITS or length_of(text) < UNITS["day"]
    except InvalidValueError:
        raise InvalidValueError("it is neither a unit nor a duration", remedy) from None
    if not is_one:
        raise InvalidValueError("a duration has to be shorter than a day", 'for calendar days, write "day"')


def check_span(text: str) -> None:
    """Raises InvalidValueError where this is no length of buckets."""
    remedy = 'write "minute", "hour", "day", "week", "month", or a duration such as "10m"'
    try:
        is_one = text != "second" and bool(length_of(text))
    except InvalidValueError:
        is_one = False
    if not is_one:
        raise InvalidValueError("it is neither a unit nor a duration", remedy)
