"""Shares of a whole as people write them: `10%`, `2.5%`."""

from __future__ import annotations

import re

from config.problems import InvalidValueError

MEND = 'write a percentage in quotes, such as "10%"'
_SHARE = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,3})?)%")
#: With less, a part would wait for its turn for years.
_LEAST = 0.1


class Share(float):
    """Above 0, and 1 at most. A plain number in a policy file is none: nobody knows what 10 would mean."""


def parse_share(text: str) -> Share:
    """Raises InvalidValueError."""
    found = _SHARE.fullmatch(text)
    if found is None:
        raise InvalidValueError("it is not a share", MEND)
    percent = float(found[1])
    if not _LEAST <= percent <= 100:
        raise InvalidValueError(f"it is not from {_LEAST:g}% to 100%", MEND)
    return Share(percent / 100)
