"""Calendar days by the clock on the wall, minute by minute; knows nothing of the code's windows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
ZONES = [
    "UTC", "Africa/Cairo", "Africa/Casablanca", "America/Asuncion", "America/Caracas", "America/Havana",
    "America/New_York", "America/Nuuk", "America/Santiago", "America/Sao_Paulo", "America/St_Johns",
    "Antarctica/Casey", "Antarctica/Troll", "Asia/Amman", "Asia/Beirut", "Asia/Dhaka", "Asia/Gaza",
    "Asia/Kathmandu", "Asia/Kolkata", "Asia/Pyongyang", "Asia/Tehran", "Atlantic/Azores",
    "Australia/Lord_Howe", "Europe/Berlin", "Pacific/Apia", "Pacific/Chatham", "Pacific/Fakaofo",
    "Pacific/Kiritimati",
]  # fmt: skip


def day_starts(zone: ZoneInfo, start: datetime, end: datetime) -> dict[date, datetime]:
    """When each local date is first reached, in [start, end): the minute in which the wall says so, or a
    later date. Whole hours in which the wall tells nothing new are not looked at closer."""
    starts: dict[date, datetime] = {}
    reached = _wall(start - HOUR, zone).date()
    at = start
    while at < end:
        before, after = _wall(at - MINUTE, zone), _wall(at + HOUR - MINUTE, zone)
        if (before.date(), before.utcoffset()) != (after.date(), after.utcoffset()):
            for minute in range(60):
                today = _wall(at + minute * MINUTE, zone).date()
                if today > reached:
                    reached = today
                    starts[today] = at + minute * MINUTE
        at += HOUR
    return starts


def _wall(instant: datetime, zone: ZoneInfo) -> datetime:
    return instant.astimezone(zone)


@cache
def changes(name: str) -> list[datetime]:
    """UTC days, 2000 to 2037, in which the zone's offset changes."""
    zone, first = ZoneInfo(name), datetime(2000, 1, 1, tzinfo=UTC)
    return list(_changes(zone, first))


def _changes(zone: ZoneInfo, first: datetime) -> Iterator[datetime]:
    offset = _wall(first, zone).utcoffset()
    for count in range(1, 38 * 366):
        day = first + count * DAY
        if (now := _wall(day, zone).utcoffset()) != offset and day.year < 2038:
            yield day - DAY
            offset = now
