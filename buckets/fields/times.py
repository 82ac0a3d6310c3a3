"""Instants: milliseconds since the epoch inside; dates, and numbers of a unit, in documents."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: How far the clocks of two machines may differ.
MAX_SKEW = timedelta(minutes=5)
#: The years that people, Python and the archive's `dt=` can name: 1 to 9999.
FIRST_MS = -62_135_596_800_000
LAST_MS = 253_402_300_799_999
DAY_MS = 86_400_000

#: Sorts behind all texts that begin with a digit: by their bytes, and under any collation.
LAST_TEXT = "\U0010ffff"

#: Stands for a value that is no time.
NO_TIME = -(2**63)

#: The unit of a number that is a time since 1970.
Unit = Literal["s", "ms", "us", "ns"]
PER_SECOND: dict[Unit, int] = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
#: Units in a millisecond, and milliseconds in a unit; one of the two is 1.
_PER_MS = {unit: max(1, count // 1000) for unit, count in PER_SECOND.items()}
_MS_PER = {unit: max(1, 1000 // count) for unit, count in PER_SECOND.items()}


def as_date(ms: int) -> datetime:
    """Returns milliseconds since 1970 as an aware date, clipped to the years 1 to 9999."""
    return _EPOCH + timedelta(milliseconds=min(max(ms, FIRST_MS), LAST_MS))


def later(date: datetime, by: timedelta) -> datetime:
    """Returns a date so much later, clipped to the years 1 to 9999."""
    return as_date(as_ms(date) + by // timedelta(milliseconds=1))


def as_text(date: datetime) -> str:
    """Returns a date as 2018-06-30T00:00:00Z, without milliseconds, for messages."""
    return date.isoformat(timespec="seconds").replace("+00:00", "Z")


def as_ms(date: datetime) -> int:
    """Returns an aware date as milliseconds since 1970, rounded down."""
    return (date - _EPOCH) // timedelta(milliseconds=1)


class TimeRange(NamedTuple):
    """A half-open range [since, until); None: open to that side."""

    since: datetime | None = None
    until: datetime | None = None

    @property
    def start_ms(self) -> int:
        """Returns the first millisecond in it."""
        return FIRST_MS if self.since is None else as_ms(self.since)

    @property
    def end_ms(self) -> int:
        """Returns the first millisecond after it."""
        return LAST_MS + 1 if self.until is None else as_ms(self.until)

    @property
    def is_bounded(self) -> bool:
        """Returns whether either side is closed."""
        return self.since is not None or self.until is not None


#: All of time.
EVER = TimeRange()


def from_numbers(numbers: NDArray[np.generic], unit: Unit = "s") -> NDArray[np.int64]:
    """Returns milliseconds, to the nearest, halves upwards; NO_TIME for NaN and what is far outside the years
    that have names."""
    import numpy as np  # here, since each command imports this module

    per, times = _PER_MS[unit], _MS_PER[unit]
    low, high = FIRST_MS * per // times - per, LAST_MS * per // times + per
    is_int = numbers.dtype.kind == "i"
    if is_int and per == 1 and numbers.size and low <= numbers.min() and numbers.max() <= high:
        return numbers.astype(np.int64) * times
    sane = (numbers >= low) & (numbers <= high)  # type: ignore[operator]
    held = np.where(sane, numbers, 0)
    if is_int:
        whole, rest = np.divmod(held.astype(np.int64), per)
        ms = (whole + (rest * 2 >= per) if per > 1 else whole) * times
    else:
        ms = np.floor(held * float(times) / per + 0.5).astype(np.int64)
    return np.where(sane, ms, NO_TIME)


def as_number(ms: int, unit: Unit = "s") -> float:
    """Returns the first number of the unit that `from_numbers` takes to this millisecond; an int where
    doubles are not exact enough, as far as MongoDB has ints."""
    per, times = _PER_MS[unit], _MS_PER[unit]
    if per == 1:
        return (ms - 0.5) / times
    from bson.int64 import Int64  # here, since each command imports this module

    exact = ms * per - per // 2
    return Int64(exact) if -(2**63) <= exact < 2**63 else float(exact)


def to_numbers(ms: NDArray[np.int64], unit: Unit) -> NDArray[np.int64]:
    """Returns whole numbers of the unit, rounded down."""
    return ms * _PER_MS[unit] // _MS_PER[unit]
