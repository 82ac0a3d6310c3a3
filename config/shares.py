"""Shares of a whole as people write them: `10%`, `2.5%`."""

from __future__ import annotations

import re
from decimal import Decimal

from config.problems import InvalidValueError

MEND = 'write a percentage in quotes, such as "10%"'
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
        raise InvalidValueError("it is not a share", MEND)
    if not _LEAST <= percent <= 100:
        raise InvalidValueError(f"it is not from {_LEAST}% to 100%", MEND)
    return Share(percent / 100)
