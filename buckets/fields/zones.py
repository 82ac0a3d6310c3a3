"""The time zones in which a clock that names none may have been."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bucketwise.buckets.fields.clocks import clock_of
from bucketwise.buckets.fields.times import DAY_MS

#: One of each way that clocks go today: others show the same. Those that change their clocks come before
#: those that don't, and of each the more people first.
ZONES = (
    "UTC",
    *("Europe/London", "Europe/Berlin", "Europe/Athens", "Europe/Chisinau"),
    *("America/New_York", "America/Chicago", "America/Denver", "America/Los_Angeles", "America/Anchorage"),
    *("America/Adak", "America/Halifax", "America/St_Johns", "America/Santiago", "America/Asuncion"),
    *(
        "America/Havana",
        "America/Nuuk",
        "America/Miquelon",
        "Atlantic/Azores",
        "Asia/Jerusalem",
        "Asia/Beirut",
    ),
    *("Africa/Cairo", "Australia/Sydney", "Australia/Adelaide", "Australia/Lord_Howe", "Pacific/Auckland"),
    *("Pacific/Chatham", "Pacific/Norfolk", "Pacific/Easter"),
    *("Asia/Shanghai", "Asia/Kolkata", "Asia/Jakarta", "Asia/Karachi", "Asia/Dhaka", "Asia/Tokyo"),
    *("Africa/Lagos", "Africa/Johannesburg", "Europe/Istanbul", "America/Sao_Paulo", "America/Bogota"),
    *("America/Mexico_City", "America/Phoenix", "America/Caracas", "Asia/Dubai", "Asia/Tehran", "Asia/Kabul"),
    *("Asia/Kathmandu", "Asia/Yangon", "Australia/Brisbane", "Australia/Darwin", "Australia/Eucla"),
    *("Pacific/Honolulu", "Pacific/Noumea", "Pacific/Fiji", "Pacific/Tongatapu", "Pacific/Kiritimati"),
    *("Pacific/Marquesas", "Pacific/Gambier", "Pacific/Pago_Pago", "Atlantic/Cape_Verde"),
    "Atlantic/South_Georgia",
)
#: Share of the starts that have to be midnights: some buckets may be broken.
_NEARLY_ALL = 0.9


def with_midnights(instants: Sequence[int]) -> list[str]:
    """Returns the zones in which these instants, in milliseconds, are midnights: UTC alone where it is one
    of them."""
    starts = np.array(sorted(set(instants)), dtype=np.int64)
    found = [name for name in ZONES if _are_midnights(starts, name)]
    return ["UTC"] if "UTC" in found else found


def distinct(shown: Sequence[int]) -> dict[str, bool]:
    """Returns the zones whose clocks showed these times at different instants, each with whether it changed
    its clock on one of those days. Of zones that went alike it is the first."""
    if not shown:
        return {"UTC": False}
    days = np.unique(np.array(sorted(set(shown)), dtype=np.int64) // DAY_MS * DAY_MS)
    hours = (days[:, None] + np.arange(0, DAY_MS + 1, _STEP)).reshape(-1)
    found: dict[bytes, tuple[str, bool]] = {}
    for name in ZONES:
        instants = clock_of(name).instants(hours)
        changes = (np.diff(instants.reshape(len(days), -1), axis=1) != _STEP).any()
        found.setdefault(instants.tobytes(), (name, bool(changes)))
    return dict(found.values())


#: Clocks are changed at a multiple of this.
_STEP = DAY_MS // 48


def _are_midnights(starts: np.ndarray[tuple[int], np.dtype[np.int64]], zone: str) -> bool:
    shown = clock_of(zone).shown(starts)
    return bool(len(starts)) and float((shown % DAY_MS == 0).mean()) >= _NEARLY_ALL
