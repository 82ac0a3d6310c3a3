"""Amounts as people write them: of memory (`400MB`), of a whole (`10%`), of buckets (a number, or `20%`)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

from bucketwise.config.problems import InvalidValueError

MOST_WORKERS = 256
SIZE_REMEDY = 'write a whole number and a unit in quotes: "400MB", "2GB"'
_SIZE = re.compile(r"([1-9][0-9]{0,5})(MB|GB)")
_SIZE_UNITS = {"MB": 10**6, "GB": 10**9}


def parse_size(text: str) -> int:
    """Returns the size in bytes. Raises InvalidValueError."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise InvalidValueError("it is not a size", SIZE_REMEDY)
    return int(found[1]) * _SIZE_UNITS[found[2]]


def format_size(size: int) -> str:
    """Returns a size as `parse_size` reads it, in whole megabytes or gigabytes."""
    unit = "GB" if size % _SIZE_UNITS["GB"] == 0 else "MB"
    return f"{size // _SIZE_UNITS[unit]}{unit}"


SHARE_REMEDY = 'write a percentage in quotes, such as "10%"'
_SHARE = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?)%")
#: With less, a part would wait for its turn for years.
_LEAST = Decimal("0.1")


class Share(float):
    """A share above 0, and 1 at most. A plain number in a policy file is refused: 10 could mean anything."""


def percent_of(text: str) -> Decimal | None:
    """Returns the number of a percentage; None where the text is none."""
    found = _SHARE.fullmatch(text)
    return Decimal(found[1]) if found else None


def parse_share(text: str) -> Share:
    """Returns the share that a percentage names. Raises InvalidValueError."""
    percent = percent_of(text)
    if percent is None:
        raise InvalidValueError("it is not a share", SHARE_REMEDY)
    if not _LEAST <= percent <= 100:
        raise InvalidValueError(f"it is not from {_LEAST}% to 100%", SHARE_REMEDY)
    return Share(percent / 100)


_LIMIT_REMEDY = 'write a share of the collection in quotes, such as "20%", or a whole number of buckets'
_WHOLE = 100


def check_limit(value: object) -> None:
    """Raises InvalidValueError where the value is neither a share nor a number above zero."""
    if isinstance(value, int) and not isinstance(value, bool):
        is_sound = value > 0
    elif isinstance(value, str) and (percent := percent_of(value)) is not None:
        is_sound = 0 < percent <= _WHOLE
    else:
        raise InvalidValueError("it is neither a share nor a whole number", _LIMIT_REMEDY)
    if not is_sound:
        raise InvalidValueError("it must be above zero, and at most 100%", _LIMIT_REMEDY)


def at_most(limit: int | str, total: int) -> int:
    """Returns how many of a total a limit allows."""
    if isinstance(limit, int):
        return limit
    return int(Decimal(limit.removesuffix("%")) * total / _WHOLE)


@dataclass(frozen=True)
class RemovalLimit:
    """How many documents a run would remove, of how many in the collection, and how many it may."""

    collection: str
    written: int | str  # in the policy
    due: int
    total: int

    @property
    def most(self) -> int:
        """Returns how many may be removed."""
        return at_most(self.written, self.total)

    @property
    def is_exceeded(self) -> bool:
        """Returns whether more is due than may be removed."""
        return self.due > self.most
