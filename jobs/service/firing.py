"""When a cron expression fires, as a trigger for APScheduler. All in UTC.

APScheduler's own cron trigger counts weekdays from Monday and wants both day and weekday to fit, where cron
counts from Sunday and takes either. So the rules of `config.cron` are applied here, day by day.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta

from apscheduler.triggers.base import BaseTrigger

from config.cron import Cron

#: 29 February falls out in the years 1900, 2100 …: it comes again after 8 years at the latest, and on a given
#: weekday after 40.
_HORIZON = timedelta(days=41 * 366)
_DAY = timedelta(days=1)


def first_after(cron: Cron, instant: datetime) -> datetime | None:
    """The first firing later than `instant`; None where there is none within four decades."""
    earliest = instant.astimezone(UTC).replace(second=0, microsecond=0) + timedelta(minutes=1)
    for day in _days(earliest.date(), _DAY):
        if cron.fires_on(day):
            from_time = earliest.time() if day == earliest.date() else time()
            if found := _first_time(cron, from_time):
                return datetime.combine(day, found, UTC)
    return None


def last_until(cron: Cron, instant: datetime) -> datetime | None:
    """The last firing at or before `instant`."""
    latest = instant.astimezone(UTC)
    for day in _days(latest.date(), -_DAY):
        if cron.fires_on(day):
            to_time = latest.time() if day == latest.date() else time(23, 59)
            if found := _last_time(cron, to_time):
                return datetime.combine(day, found, UTC)
    return None


class CronTrigger(BaseTrigger):  # type: ignore[misc]  # APScheduler has no types
    """Fires when `cron` does."""

    def __init__(self, cron: Cron) -> None:
        self.cron = cron

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        # What was missed is made up for by one run at the start, which asks the ledger what is due.
        return first_after(self.cron, previous_fire_time or now)


def _days(start: date, step: timedelta) -> Iterable[date]:
    for count in range(_HORIZON.days):
        yield start + count * step


def _first_time(cron: Cron, earliest: time) -> time | None:
    return min((at for at in _times(cron) if at >= earliest), default=None)


def _last_time(cron: Cron, latest: time) -> time | None:
    return max((at for at in _times(cron) if at <= latest), default=None)


def _times(cron: Cron) -> Iterable[time]:
    return (time(hour, minute) for hour in cron.hour for minute in cron.minute)
