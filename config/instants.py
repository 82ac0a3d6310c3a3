"""Instants as people write them: ISO 8601, in UTC where they name no offset."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta

from bucketwise.config.durations import parse_duration
from bucketwise.config.problems import InvalidValueError

REMEDY = 'write ISO 8601, such as "2018-06-30" or "2018-06-30T12:00:00Z"'


def read_instant(text: str) -> datetime:
    """Returns the instant that `text` names, in UTC and whole milliseconds. A date alone is its midnight.
    Raises InvalidValueError."""
    try:
        instant = datetime.fromisoformat(text.strip())
        aware = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
        aware = aware.astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidValueError("it is not an instant", REMEDY) from None
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
        raise InvalidValueError("it is neither an instant nor a duration", f'{REMEDY}, or "2d"')
    return span


def as_text(value: object) -> object:
    """Returns a date or time of TOML as text; anything else as it is."""
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time())
    return value.isoformat() if isinstance(value, datetime) else value
