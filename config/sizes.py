"""Amounts of memory as people write them: `400MB`, `2GB`."""

from __future__ import annotations

import re

from config.problems import InvalidValueError

MEND = 'write a whole number and a unit in quotes: "400MB", "2GB"'
_SIZE = re.compile(r"([1-9][0-9]{0,5})(MB|GB)")
_UNITS = {"MB": 10**6, "GB": 10**9}


def parse_size(text: str) -> int:
    """Returns the size in bytes. Raises InvalidValueError."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise InvalidValueError("it is not a size", MEND)
    return int(found[1]) * _UNITS[found[2]]


def format_size(size: int) -> str:
    """Returns a size as `parse_size` reads it, in whole megabytes or gigabytes."""
    unit = "GB" if size % _UNITS["GB"] == 0 else "MB"
    return f"{size // _UNITS[unit]}{unit}"
