"""Times as people write them: durations, instants, zones, widths of slots, and formats of text."""

from __future__ import annotations

import re
import zoneinfo
from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple

from bucketwise.config.problems import Fault, InvalidValueError

#: Days and years are lengths, not dates: a year is 365 days.
_SECONDS = {"y": 31_536_000, "w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_SHAPE = re.compile(r"([0-9]{1,15})([smhdwy])")
#: Going back from now by more than this would leave the calendar.
LONGEST = timedelta(days=36_500)
DURATION_REMEDY = 'write a whole number and one unit: "90s", "10m", "36h", "30d", "12w", "7y", or "forever"'


def parse_duration(text: str) -> timedelta | None:
    """Returns the span that `text` names; None for `forever`. Raises InvalidValueError."""
    if text == "forever":
        return None
    if not (shape := _SHAPE.fullmatch(text)):
        raise InvalidValueError("it is not a duration", DURATION_REMEDY)
    seconds = int(shape[1]) * _SECONDS[shape[2]]
    if seconds > LONGEST.total_seconds():
        message = f'it is longer than {LONGEST.days} days; for no limit, write "forever"'
        raise InvalidValueError(message, DURATION_REMEDY)
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


INSTANT_REMEDY = 'write ISO 8601, such as "2018-06-30" or "2018-06-30T12:00:00Z"'


def read_instant(text: str) -> datetime:
    """Returns the instant that `text` names, in UTC and whole milliseconds. A date alone is its midnight.
    Raises InvalidValueError."""
    try:
        instant = datetime.fromisoformat(text.strip())
        aware = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
        aware = aware.astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidValueError("it is not an instant", INSTANT_REMEDY) from None
    return aware.replace(microsecond=aware.microsecond // 1000 * 1000)


def read_latest(text: str) -> datetime | timedelta:
    """Returns the instant, or the duration, that `text` names. Raises InvalidValueError."""
    if text.strip()[:4].isdigit() and "-" in text:
        return read_instant(text)
    try:
        span = parse_duration(text)
    except InvalidValueError:
        span = None
    if span is None:
        raise InvalidValueError("it is neither an instant nor a duration", f'{INSTANT_REMEDY}, or "2d"')
    return span


def as_text(value: object) -> object:
    """Returns a date or time of TOML as text; anything else as it is."""
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time())
    return value.isoformat() if isinstance(value, datetime) else value


#: Names whose meaning depends on the machine.
_NO_NAMES = {"localtime", "Factory", "posixrules"}
#: The same zones in another reckoning of seconds.
_VARIANTS = ("posix/", "right/")


def is_zone(name: str) -> bool:
    """Returns whether `zones` has the name. Does not look into the files of all zones."""
    if name in _NO_NAMES or name.startswith(_VARIANTS):
        return False
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def zones() -> set[str]:
    """Returns the names of all time zones that a policy may name."""
    return zoneinfo.available_timezones() - _NO_NAMES


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


#: By their letters: the parts of a time that directives tell.
DIRECTIVES = {
    **{
        "Y": "year",
        "y": "year",
        "m": "month",
        "b": "month",
        "B": "month",
        "d": "day",
        "j": "day of the year",
        "G": "year",
        "V": "week",
        "u": "day of the week",
    },
    **{"H": "hour", "I": "hour", "p": "half of the day", "M": "minute", "S": "second", "f": "fraction"},
    **{"a": "weekday", "A": "weekday", "z": "offset", "Z": "zone", "s": "seconds since 1970"},
}


class Token(NamedTuple):
    """A piece of a format: a directive's letter, or other text."""

    directive: str
    text: str = ""


def tokens_of(text: str) -> list[Token]:
    """Returns the pieces of a format."""
    found = []
    for piece in re.findall(r"%.?|[^%]+", text, flags=re.DOTALL):
        is_text = piece == "%%" or piece[0] != "%"
        found.append(Token("", piece.replace("%%", "%")) if is_text else Token(piece[1:]))
    return found


def format_fault(text: str) -> Fault | None:
    """Returns what keeps a format from telling a time; None for a sound one."""
    tokens = tokens_of(text)
    letters = [it.directive for it in tokens if it.directive or not it.text]
    unknown = [it for it in letters if it not in DIRECTIVES]
    if unknown:
        known = " ".join(f"%{it}" for it in DIRECTIVES)
        return Fault(f"there is no directive %{unknown[0]}", f"use {known} and %% only")
    if any(re.search("[0-9]", it.text) for it in tokens):
        return Fault("it has digits of its own", "let directives stand for all digits of a text")
    if "s" in letters:
        return None if len(tokens) == 1 else Fault("%s is a time by itself", 'write "%s" alone')
    parts = [DIRECTIVES[it] for it in letters]
    for part in parts:
        if parts.count(part) > 1:
            return Fault(f"it tells the {part} more than once", "write one directive for it")
    return _incomplete(set(parts), letters)


_DAYS = {"month", "day", "day of the year"}


def _incomplete(parts: set[str], letters: list[str]) -> Fault | None:
    if "year" not in parts:
        return Fault("it tells no year", "add %Y")
    if "day of the year" in parts and parts & {"month", "day"}:
        return Fault("it tells the day twice", "leave %j out, or the month and its day")
    if 0 < len({"G", "V", "u"}.intersection(letters)) < 3 or ("V" in letters and parts & _DAYS):
        return Fault("%G, %V and %u tell a day together", "write them all, and no other day: %G-W%V-%u")
    if "day" in parts and "month" not in parts:
        return Fault("it tells a day, and no month", "add %m")
    if ("I" in letters) != ("p" in letters):
        return Fault("%I and %p go together", "write both, or %H alone")
    return None
