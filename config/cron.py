"""Cron expressions: five fields, as cron itself reads them. Pure: no clock, no time zone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

_ALIASES = {"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *"}
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_LONGEST_MONTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class CronError(ValueError):
    """The text is no cron expression; the message says why."""


@dataclass(frozen=True)
class Cron:
    """When a schedule fires, as sets of numbers.

    Where day and weekday are both restricted, cron takes a date that fits either; otherwise both must fit.
    """

    minute: frozenset[int]  # 0–59
    hour: frozenset[int]  # 0–23
    day: frozenset[int]  # 1–31
    month: frozenset[int]  # 1–12
    weekday: frozenset[int]  # 0–6, 0 is Sunday
    day_restricted: bool  # the field does not start with `*`
    weekday_restricted: bool

    def fires_on(self, day: date) -> bool:
        """Does the schedule fire at any time of this date?"""
        fits_day = day.day in self.day
        fits_weekday = day.isoweekday() % 7 in self.weekday
        either = self.day_restricted and self.weekday_restricted
        return day.month in self.month and (
            (fits_day or fits_weekday) if either else (fits_day and fits_weekday)
        )

    @property
    def never_fires(self) -> bool:
        """True where no month it names has a day it names, such as 31 February."""
        if self.day_restricted and self.weekday_restricted:
            return False
        return min(self.day) > max(_LONGEST_MONTHS[month - 1] for month in self.month)


@dataclass(frozen=True)
class _Field:
    name: str
    low: int
    high: int
    names: Mapping[str, int]


_FIELDS = (
    _Field("minute", 0, 59, {}),
    _Field("hour", 0, 23, {}),
    _Field("day of month", 1, 31, {}),
    _Field("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, start=1)}),
    _Field("weekday", 0, 7, {name: number for number, name in enumerate(_WEEKDAYS)}),
)


def parse_cron(text: str) -> Cron:
    """The schedule that `text` names. Raises CronError."""
    words = text.split()
    if len(words) == 1 and words[0].startswith("@"):
        if words[0] not in _ALIASES:
            raise CronError(f"there is no {words[0]}; there are {', '.join(_ALIASES)}")
        words = _ALIASES[words[0]].split()
    if len(words) != len(_FIELDS):
        raise CronError(f"it has {len(words)} fields, and cron has 5: minute, hour, day, month, weekday")
    minute, hour, day, month, weekday = (
        _parse(word, field) for word, field in zip(words, _FIELDS, strict=True)
    )
    return Cron(
        minute=minute,
        hour=hour,
        day=day,
        month=month,
        weekday=frozenset(number % 7 for number in weekday),
        # Cron goes by the star: `*/2` is a star too.
        day_restricted=not words[2].startswith("*"),
        weekday_restricted=not words[4].startswith("*"),
    )


def _parse(word: str, field: _Field) -> frozenset[int]:
    return frozenset(number for part in word.split(",") for number in _parse_part(part, field))


def _parse_part(part: str, field: _Field) -> range:
    span, slash, step_text = part.partition("/")
    step = 1
    if slash:
        if not _is_number(step_text) or int(step_text) == 0:
            raise CronError(f"the step in the {field.name} has to be a whole number above 0: `{part}`")
        if span != "*" and "-" not in span:
            raise CronError(
                f"a step in the {field.name} needs a range before it, such as `*/5` or `10-40/5`: `{part}`"
            )
        step = int(step_text)
    if span == "*":
        return range(field.low, field.high + 1, step)
    first, dash, last = span.partition("-")
    low = _number(first, field)
    high = _number(last, field) if dash else low
    if field.name == "weekday" and high == 0 < low:
        high = 7  # `fri-sun` ends on a Sunday
    if high < low:
        raise CronError(f"the range in the {field.name} runs backwards: `{span}`")
    return range(low, high + 1, step)


def _number(text: str, field: _Field) -> int:
    if text.lower() in field.names:
        return field.names[text.lower()]
    if not _is_number(text):
        raise CronError(f"the {field.name} is no number, range, list or step: `{text}`")
    if not field.low <= int(text) <= field.high:
        raise CronError(f"the {field.name} has to lie in {field.low}–{field.high}: `{text}`")
    return int(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 4
