"""When runs fire, by cron expressions, and how fast they may work: `5000 buckets/s`, `20MB/s`, `01:00-05:00
Europe/Berlin`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from bucketwise.config.problems import InvalidValueError
from bucketwise.config.times import is_zone

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


_ALIASES = {"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *"}
#: The fields in their order, and what may stand in each.
_FIELDS = {
    "minute": "0–59",
    "hour": "0–23",
    "day of month": "1–31",
    "month": "1–12 or jan–dec",
    "weekday": "0–7 or sun–sat",
}
_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)  # the parser wants one
_VALUE = "(?:[0-9]{1,4}|[a-z]{3})"
_TERM = re.compile(rf"(?:\*|{_VALUE}-{_VALUE})(?:/[0-9]{{1,4}})?|{_VALUE}", re.IGNORECASE | re.ASCII)
_UNTIL_SUNDAY = re.compile(r"\b(?!sun-|0+-)(\w+)-(?:sun|0+)\b", re.IGNORECASE)
_STEP_IN_ONE_VALUE = re.compile(r"\b(\w+)-\1/[0-9]+", re.IGNORECASE)
_REMEDY = 'write five fields, such as "15 2 * * *" (02:15 UTC daily), or @hourly, @daily, @weekly, @monthly'


@dataclass(frozen=True)
class Cron:
    """A schedule, as five fields that `cronsim` takes."""

    text: str

    def first_after(self, instant: datetime) -> datetime | None:
        """Returns the first firing later than `instant`; None where there is none within five decades."""
        return next(CronSim(self.text, instant.astimezone(UTC)), None)

    def last_until(self, instant: datetime) -> datetime | None:
        """Returns the last firing at or before `instant`; None where there is none within five decades."""
        next_second = instant.astimezone(UTC).replace(microsecond=0) + timedelta(seconds=1)
        return next(CronSim(self.text, next_second, reverse=True), None)


def parse_cron(text: str) -> Cron:
    """Returns the schedule that `text` names. Raises InvalidValueError."""
    words = text.split()
    if len(words) == 1 and words[0].startswith("@"):
        if words[0] not in _ALIASES:
            raise InvalidValueError(f"there is no {words[0]}; there are {', '.join(_ALIASES)}", _REMEDY)
        words = _ALIASES[words[0]].split()
    if len(words) != len(_FIELDS):
        message = f"it has {len(words)} fields, and cron has 5: minute, hour, day, month, weekday"
        raise InvalidValueError(message, _REMEDY)
    # Two things that cron accepts, and `cronsim` doesn't: `fri-sun`, and a step in a range of one value.
    words[4] = _UNTIL_SUNDAY.sub(r"\1-7", words[4])
    words = [_STEP_IN_ONE_VALUE.sub(r"\1", word) for word in words]
    for position, word in enumerate(words):
        for term in word.split(","):
            _check_term(term, position)
    try:
        CronSim(" ".join(words), _ANY_TIME)
    except CronSimError:  # each field is sound
        message = "it never fires: none of its months has such a day"
        raise InvalidValueError(message, "name a day that one of its months has") from None
    return Cron(" ".join(words))


def _check_term(term: str, position: int) -> None:
    """Checks one part of the list in one field; what `cronsim` takes beyond cron is refused by its form."""
    alone = ["*"] * len(_FIELDS)
    alone[position] = term
    name, values = list(_FIELDS.items())[position]
    try:
        if _TERM.fullmatch(term):
            CronSim(" ".join(alone), _ANY_TIME)
            return
    except CronSimError:
        pass
    raise InvalidValueError(
        f"the {name} cannot be `{term}`: it takes {values}, lists (`1,3`), ranges that ascend (`1-5`),"
        " and steps of 1 or more through a range (`*/5`, `1-5/2`)",
        _REMEDY,
    )


def missed_since(
    schedule: str, completed: datetime | None, now: datetime, window: str | None = None
) -> datetime | None:
    """Returns the first firing of a cron expression that was missed: no run was `completed` that began at or
    after it, and another firing has passed since, by `now`. None where none was, and before the first run.
    What fires outside of the `window` in which runs work is due when that opens."""
    cron, working = parse_cron(schedule), parse_window(window or "always")

    def due_after(instant: datetime | None) -> datetime | None:
        fired = None if instant is None else cron.first_after(instant)
        return fired if fired is None or working is None else working.next_open(fired)

    first = due_after(completed)
    second = due_after(first)
    return first if second is not None and second <= now else None
