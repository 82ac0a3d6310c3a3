"""Time zones by their IANA names."""

from __future__ import annotations

import zoneinfo

#: Names whose meaning depends on the machine.
_NO_NAMES = {"localtime", "Factory", "posixrules"}
#: The same zones in another reckoning of seconds.
_VARIANTS = ("posix/", "right/")


def is_zone(name: str) -> bool:
    """Returns whether `zones` has the name. Does not look into the files of all zones."""
    if name in _NO_NAMES or name.startswith(_VARIANTS):
        return False
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def zones() -> set[str]:
    """Returns the names of all time zones that a policy may name."""
    return zoneinfo.available_timezones() - _NO_NAMES
