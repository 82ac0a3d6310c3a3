"""The only place that reads the clock; also parses instants given by a user."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from bucketwise.buckets.fields.times import MAX_SKEW
from bucketwise.config.errors import BucketwiseError, UsageError
from bucketwise.config.problems import InvalidValueError
from bucketwise.config.times import read_instant

if TYPE_CHECKING:
    from pymongo.database import Database

#: No run is thought to take place before.
_FIRST_YEAR = 300
#: Goes on while the machine sleeps, where the system has such a clock: a lease expires then too.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def current() -> datetime:
    """Returns the present in UTC, in whole milliseconds as MongoDB keeps them."""
    return whole_milliseconds(datetime.now(UTC))


def steady() -> float:
    """Returns seconds since some fixed point, by a clock that is never set back."""
    return time.clock_gettime(_STEADY)


def of_server(database: Database[dict[str, Any]]) -> datetime:
    """Returns the present by MongoDB's clock, UTC. Raises PyMongoError."""
    local: datetime = database.client.admin.command("hello")["localTime"]
    return local if local.tzinfo else local.replace(tzinfo=UTC)


def check_skew(now: datetime, of_server: datetime) -> None:
    """Raises BucketwiseError unless two clocks agree. With a wrong clock, a run would take recent
    readings for expired, or a window that is not over for complete."""
    if abs(now - of_server) > MAX_SKEW:
        raise BucketwiseError(
            f"this machine's clock says {iso(now)}, and that of MongoDB {iso(of_server)}: they differ by "
            f"more than {MAX_SKEW.seconds // 60} minutes, and what has expired goes by the present. Set the "
            "clock that is wrong, or say with --now which instant is meant"
        )


def parse_instant(text: str, option: str) -> datetime:
    """Returns the instant that `text` names, in UTC: ISO 8601 with any offset or Z; UTC without one.

    A date alone is its midnight. Digits below the millisecond are dropped. Raises UsageError, which names
    `option`."""
    try:
        return read_instant(text)
    except InvalidValueError:
        raise UsageError(
            f"{option}: {text!r} is not a valid timestamp. Use ISO 8601, such as 2018-06-30, "
            "2018-06-30T12:00:00Z or 2018-06-30T14:00:00+02:00"
        ) from None


def parse_now(text: str) -> datetime:
    """Returns the instant that `--now` names. Raises UsageError, also where what a run looks back at may lie
    before the year 1."""
    found = parse_instant(text, "--now")
    if found.year < _FIRST_YEAR:
        raise UsageError(f"--now: {text!r} is before the year {_FIRST_YEAR}: durations may be 100 years long")
    return found


def whole_milliseconds(instant: datetime) -> datetime:
    """Returns the instant without its fraction of a millisecond: MongoDB stores none."""
    return instant.replace(microsecond=instant.microsecond // 1000 * 1000)


def iso(instant: datetime) -> str:
    """Returns an instant as 2018-06-30T00:00:00Z, with milliseconds where there are some."""
    precision = "milliseconds" if instant.microsecond else "seconds"
    return instant.astimezone(UTC).isoformat(timespec=precision).replace("+00:00", "Z")
