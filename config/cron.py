"""Cron expressions: five fields, in UTC, as cron itself reads them. `cronsim` knows when they fire."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cronsim import CronSim, CronSimError

from bucketwise.config.problems import InvalidValueError
from bucketwise.config.throttling import parse_window

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
