"""The range that --since and --until name: instants, days and months of the policy's zone, or a time ago."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from zoneinfo import ZoneInfo

from bucketwise.buckets.fields.times import TimeRange
from bucketwise.config.errors import UsageError
from bucketwise.config.policies import Policy
from bucketwise.config.problems import InvalidValueError
from bucketwise.config.times import parse_duration, read_instant
from bucketwise.jobs.core.clock import iso, whole_milliseconds
from bucketwise.rollups.calendar.windows import day_start

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAYS_BACK = {"today": 0, "yesterday": 1}
_MONTH = re.compile(r"(\d{4})-(\d{2})")


@dataclass(frozen=True)
class _Moment:
    """One end of a range. `option` and `text`: where and how it was written. `at`: returns the instant that
    it names in a zone, by the present. `is_exact`: whether it names one instant in a zone, whoever reads it
    and when."""

    option: str
    text: str
    at: Callable[[ZoneInfo, datetime], datetime]
    is_exact: Callable[[str], bool] = lambda _zone: False
    is_instant: bool = False

    def shown(self, at: datetime) -> str:
        """Returns it as written, with the instant that it names."""
        return self.text if self.is_instant else f"{self.text} ({iso(at)})"


@dataclass(frozen=True)
class AskedRange:
    """A range as it was asked for, which may be another one in each time zone."""

    since: _Moment | None = None
    until: _Moment | None = None

    def within(self, zone: str, now: datetime) -> TimeRange:
        """Returns the range in a zone, by the present. Raises UsageError if it is empty."""
        clock = ZoneInfo(zone)
        start, end = (None if it is None else it.at(clock, now) for it in (self.since, self.until))
        if self.since is not None and self.until is not None and start and end and start >= end:
            raise UsageError(
                f"--since {self.since.shown(start)} is not before --until {self.until.shown(end)}: the range "
                "is empty"
            )
        return TimeRange(start, end)

    def of(self, policies: Iterable[Policy], now: datetime) -> Callable[[Policy], TimeRange]:
        """Returns what tells the range of each of these policies. Raises UsageError if that of one is
        empty."""
        zones = {zone_of(it): self.within(zone_of(it), now) for it in policies}
        return partial(_range_of, zones)

    def exact(self, verb: str, policies: Iterable[Policy]) -> TimeRange:
        """Returns the range for a verb that destroys, or keeps from being destroyed. Raises UsageError where
        an end is no instant that is the same in every zone and on every day."""
        zones = {zone_of(it) for it in policies} or {"UTC"}
        for it in (self.since, self.until):
            for zone in sorted(zones):
                if it is not None and not it.is_exact(zone):
                    why = f" (its policy's zone is {zone})" if zone != "UTC" else ""
                    raise UsageError(
                        f"{it.option} {it.text}: `{verb}` takes instants only, which mean the same on "
                        f"every day and in every zone{why}. Write such as 2018-06-30T00:00:00Z or "
                        "2018-06-30T00:00:00+02:00"
                    )
        return self.within("UTC", _EPOCH)


def zone_of(policy: Policy) -> str:
    """Returns the zone of a policy's days."""
    return policy.timezone if policy.rollup is None else policy.rollup.timezone


def parse_range(since: str | None, until: str | None) -> AskedRange:
    """Returns the range that --since and --until ask for. Raises UsageError if one names no time."""
    return AskedRange(
        None if since is None else _parse(since, "--since"),
        None if until is None else _parse(until, "--until"),
    )


def _range_of(zones: dict[str, TimeRange], policy: Policy) -> TimeRange:
    return zones[zone_of(policy)]


def _parse(text: str, option: str) -> _Moment:
    word, what = text.strip().lower(), f"{option} {text}"
    moment = partial(_Moment, option, text)
    try:
        if (back := _DAYS_BACK.get(word)) is not None:
            days = timedelta(days=back)
            return moment(lambda zone, now: _start_of(now.astimezone(zone).date() - days, zone, what))
        if word.startswith("-") and (span := parse_duration(word[1:])) is not None:
            return moment(lambda _zone, now: whole_milliseconds(now) - span)
        if (day := _day_in(word)) is not None:
            is_month = _MONTH.fullmatch(word) is not None
            return moment(
                lambda zone, _now: _start_of(day, zone, what),
                is_exact=lambda zone: zone == "UTC" and not is_month,
            )
        instant = read_instant(text)
        return moment(lambda _zone, _now: instant, is_exact=lambda _zone: True, is_instant=True)
    except InvalidValueError:
        raise UsageError(
            f"{option}: {text!r} is not a valid timestamp. Use ISO 8601, such as 2018-06-30T12:00:00Z or "
            "2018-06-30T14:00:00+02:00; a day or month of the policy's time zone, such as 2018-06-30 or "
            "2018-06; today, yesterday; or a time ago, such as -7d or -36h"
        ) from None


def _day_in(text: str) -> date | None:
    try:
        if month := _MONTH.fullmatch(text):
            return date(int(month[1]), int(month[2]), 1)
        return date.fromisoformat(text)
    except ValueError:
        return None


def _start_of(day: date, zone: ZoneInfo, what: str) -> datetime:
    try:
        return _EPOCH + timedelta(milliseconds=day_start(day, zone))
    except (ValueError, OverflowError):
        raise UsageError(f"{what}: in {zone.key} that is outside the years 1 to 9999") from None
