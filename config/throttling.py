"""How fast a run may work, and when: `5000 buckets/s`, `20MB/s`, `01:00-05:00 Europe/Berlin`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from bucketwise.config.problems import InvalidValueError
from bucketwise.config.zones import is_zone

_RATE = re.compile(r"([1-9][0-9]{0,8}) ?(buckets|KB|MB|GB)/s")
_BYTES = {"KB": 10**3, "MB": 10**6, "GB": 10**9}
#: The least rate a second: with less, a commit would take days.
_LEAST_BUCKETS, _LEAST_BYTES = 100, 100_000
_RATE_REMEDY = 'write buckets or bytes a second, such as "5000 buckets/s" or "20MB/s", or "unlimited"'
_WINDOW = re.compile(
    r"([01][0-9]|2[0-3]):([0-5][0-9])-(?:([01][0-9]|2[0-3]):([0-5][0-9])|(24):(00))(?: (\S+))?"
)
_WINDOW_REMEDY = (
    'write two times of day from 00:00 to 24:00 and a zone: "01:00-05:00 Europe/Berlin", or "always"'
)
_MINUTE, _DAY_MINUTES = timedelta(minutes=1), 1440
#: The clock of a zone may leave out a day and a gap.
_LONGEST_CLOSED = 4 * _DAY_MINUTES


@dataclass(frozen=True)
class Rate:
    """A rate of buckets, or of bytes of them, a second."""

    amount: int
    is_bytes: bool


def parse_rate(text: str) -> Rate | None:
    """Returns the rate that `text` names; None for `unlimited`. Raises InvalidValueError."""
    if text == "unlimited":
        return None
    if not (found := _RATE.fullmatch(text)):
        raise InvalidValueError("it is not a rate", _RATE_REMEDY)
    is_bytes = found[2] in _BYTES
    rate = Rate(int(found[1]) * _BYTES.get(found[2], 1), is_bytes)
    if rate.amount < (_LEAST_BYTES if is_bytes else _LEAST_BUCKETS):
        raise InvalidValueError("it is less than 100 buckets or 100KB a second", _RATE_REMEDY)
    return rate


@dataclass(frozen=True)
class Window:
    """A daily window: the instants at which clocks of a zone show a time from `start` until before
    `end`, both in minutes after midnight. It includes midnight if `end` is not later than `start`."""

    start: int
    end: int
    zone: str

    def is_open(self, at: datetime) -> bool:
        """Returns whether an instant is in it."""
        shown = at.astimezone(ZoneInfo(self.zone)).time()
        minute = shown.hour * 60 + shown.minute
        if self.start < self.end:
            return self.start <= minute < self.end
        return minute >= self.start or minute < self.end

    def next_open(self, at: datetime) -> datetime:
        """Returns the first instant of it from `at` on, UTC. Where clocks are set forward past all of it,
        that is a day later."""
        if self.is_open(at):
            return at.astimezone(UTC)
        whole = at.astimezone(UTC).replace(second=0, microsecond=0)
        minutes = (whole + number * _MINUTE for number in range(1, _LONGEST_CLOSED))
        return next(it for it in minutes if self.is_open(it))

    def closed_until(self, at: datetime) -> datetime | None:
        """Returns when it opens, UTC; None where it is open."""
        return None if self.is_open(at) else self.next_open(at)


def parse_window(text: str) -> Window | None:
    """Returns the window that `text` names, in UTC where it names no zone; None for `always`. Raises
    InvalidValueError."""
    if text == "always":
        return None
    if not (found := _WINDOW.fullmatch(text)):
        raise InvalidValueError("it is not a window of time", _WINDOW_REMEDY)
    zone = found[7] or "UTC"
    if not is_zone(zone):
        raise InvalidValueError(f"there is no time zone {zone}", _WINDOW_REMEDY)
    start = int(found[1]) * 60 + int(found[2])
    end = int(found[3] or found[5]) * 60 + int(found[4] or found[6])
    if start == end:
        raise InvalidValueError("it ends when it begins, so it never opens", _WINDOW_REMEDY)
    return Window(start, end, zone)
