"""Durations as people write them: `90s`, `10m`, `36h`, `30d`, `12w`, `7y`, `forever`."""

from __future__ import annotations

import re
from datetime import timedelta

from bucketwise.config.problems import InvalidValueError

#: Days and years are lengths, not dates: a year is 365 days.
_SECONDS = {"y": 31_536_000, "w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_SHAPE = re.compile(r"([0-9]{1,15})([smhdwy])")
#: Going back from now by more than this would leave the calendar.
LONGEST = timedelta(days=36_500)
REMEDY = 'write a whole number and one unit: "90s", "10m", "36h", "30d", "12w", "7y", or "forever"'


def parse_duration(text: str) -> timedelta | None:
    """Returns the span that `text` names; None for `forever`. Raises InvalidValueError."""
    if text == "forever":
        return None
    if not (shape := _SHAPE.fullmatch(text)):
        raise InvalidValueError("it is not a duration", REMEDY)
    seconds = int(shape[1]) * _SECONDS[shape[2]]
    if seconds > LONGEST.total_seconds():
        message = f'it is longer than {LONGEST.days} days; for no limit, write "forever"'
        raise InvalidValueError(message, REMEDY)
    return timedelta(seconds=seconds)


def format_duration(span: timedelta | None) -> str:
    """Returns `span` in the largest unit that divides it; fractions of a second are dropped. Raises
    ValueError where it is negative."""
    if span is None:
        return "forever"
    if span < timedelta(0):
        raise ValueError(f"a duration is never negative: {span!r}")
    seconds = span // timedelta(seconds=1)
    unit = next((unit for unit, size in _SECONDS.items() if seconds and seconds % size == 0), "s")
    return f"{seconds // _SECONDS[unit]}{unit}"
