"""How writers put down times: each form with what a policy says of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

from bson import DatetimeMS, Int64, ObjectId, Timestamp

from tests.cases.oracle import instant

#: Zones, and days on which or beside which their clocks change; and one of summer.
ZONES = {
    "UTC": ["2025-02-09"],
    "Europe/Berlin": ["2025-03-29", "2025-10-25"],
    "Europe/Dublin": ["2025-03-29", "2025-10-25"],
    "Europe/London": ["2024-03-30", "2024-10-26"],
    "America/New_York": ["2025-03-08", "2025-11-01"],
    "Australia/Lord_Howe": ["2025-04-05", "2025-10-04"],
    "America/St_Johns": ["2025-03-08", "2025-11-01", "2006-10-28"],
    "Asia/Kathmandu": ["2025-01-03"],
    "Asia/Kolkata": ["2024-12-31"],
    "Pacific/Apia": ["2011-12-28", "2011-09-23"],
    "Pacific/Chatham": ["2025-04-05", "2025-09-27"],
    "Africa/Casablanca": ["2025-02-22", "2025-04-05"],
    "America/Havana": ["2025-03-08", "2025-11-01"],
    "America/Santiago": ["2025-09-06", "2025-04-04"],
    "Asia/Beirut": ["2025-03-29", "2025-10-25"],
    "Africa/Cairo": ["2025-04-24", "2025-10-30"],
    "America/Caracas": ["2007-12-08", "2016-04-30"],
    "Antarctica/Troll": ["2025-03-29", "2025-10-25"],
}


def some_zone(random: Random) -> str:
    return random.choice(sorted(ZONES))


def some_day(random: Random, zone: str) -> datetime:
    return datetime.fromisoformat(random.choice(ZONES[zone]))


def local(ms: int, zone: str) -> datetime:
    return instant(ms).astimezone(ZoneInfo(zone))


def is_told(ms: int, zone: str) -> bool:
    """Whether a text of a clock tells this time: what it shows for the second time counts for the first."""
    at = local(ms, zone).replace(tzinfo=None)
    return ms == wall(at, zone)


def wall(at: datetime, zone: str) -> int | None:
    """The first instant at which a clock shows this; None for what it skips."""
    found = at.replace(tzinfo=ZoneInfo(zone), fold=0).astimezone(UTC)
    if found.astimezone(ZoneInfo(zone)).replace(tzinfo=None) != at:
        return None
    return int((found - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(milliseconds=1))


@dataclass(frozen=True)
class Form:
    """`write`: the values of the fields of a time. `step`: times are multiples of it, in milliseconds.
    `unit`, `format`: what a policy says. `zoned`: whether it is what a clock shows, without an offset."""

    name: str
    step: int
    write: Callable[[int], list[Any]]
    unit: str | None = None
    format: str | None = None
    zoned: bool = False
    fields: Sequence[str] = field(default_factory=tuple)

    def lines(self, prefix: str = "time") -> list[str]:
        found = [f'{prefix}_unit = "{self.unit}"'] if self.unit else []
        return found + ([f"{prefix}_format = {json.dumps(self.format)}"] if self.format else [])


#: Each with the least that it tells.
FORMATS = {
    "%d.%m.%Y %H:%M": 60_000,
    "%d.%m.%Y, %H:%M:%S Uhr": 1000,
    "%Y-%m-%d %H:%M:%S": 1000,
    "%Y,%m,%d,%H,%M,%S,%f": 1,
    "%m/%d/%Y %I:%M:%S %p": 1000,
    "%b %d %Y %H:%M:%S": 1000,
    "%d-%B-%y %H.%M": 60_000,
    "%a %b %d %H:%M:%S %Y": 1000,
    "%Y%m%d%H%M%S": 1000,
    "%Y%j %H%M": 60_000,
    "%d/%b/%Y:%H:%M:%S": 1000,
    "%y%m%d-%H%M%S.%f": 1,
    "%H:%M %d.%m.%y": 60_000,
    "%Y-%m-%dT%H:%M:%S.%f": 1,
}


def formatted(format: str, zone: str, step: int) -> Form:
    def write(ms: int) -> list[Any]:
        return [local(ms, zone).strftime(format)]

    return Form(format, step, write, format=format, zoned=True)


def with_offset(random: Random, format: str = "%d/%b/%Y:%H:%M:%S %z", step: int = 1000) -> Form:
    def write(ms: int) -> list[Any]:
        minutes = random.choice([0, 60, -210, 345, 840, -720])
        return [instant(ms).astimezone(timezone(timedelta(minutes=minutes))).strftime(format)]

    return Form(format, step, write, format=format)


def parted(fields: Sequence[str], directives: Sequence[str], zone: str, step: int, kind: str) -> Form:
    """`kind`: whether fields are texts, whole numbers, or doubles."""

    def write(ms: int) -> list[Any]:
        texts = [local(ms, zone).strftime(it) for it in directives]
        if kind == "text":
            return texts
        return [float(it) if kind == "double" else int(it) for it in texts]

    format = " ".join(directives)
    return Form(f"{kind} {format}", step, write, format=format, zoned=True, fields=fields)


def forms(random: Random, zone: str) -> list[Form]:
    """All forms of a reading's time."""
    made = iter(range(1, 10**9))

    def iso(ms: int) -> list[Any]:
        at = instant(ms)
        shown = [at.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"]
        shown += [
            at.astimezone(timezone(timedelta(minutes=it))).isoformat(timespec="milliseconds")
            for it in (330, -150)
        ]
        return [random.choice(shown)]

    def objectid(ms: int) -> list[Any]:
        return [ObjectId(f"{ms // 1000:08x}{random.getrandbits(40):010x}{next(made):06x}")]

    calendar = [("y", "%Y"), ("mo", "%m"), ("d", "%d"), ("h", "%H"), ("mi", "%M")]
    size = random.choice([4, 5])
    fields, directives = zip(*calendar[:size], strict=True)
    parts = [
        parted(fields, directives, zone, 3_600_000 if size == 4 else 60_000, it)
        for it in ("int", "double", "text")
    ]
    return [
        Form("date", 1, lambda ms: [DatetimeMS(ms)]),
        Form("s", 1000, lambda ms: [ms // 1000], "s"),
        Form("s double", 1, lambda ms: [ms / 1000], "s"),
        Form("ms", 1, lambda ms: [Int64(ms)], "ms"),
        Form("ms double", 1, lambda ms: [float(ms)], "ms"),
        Form("us", 1, lambda ms: [Int64(ms * 1000 + random.randrange(-400, 400))], "us"),
        Form("ns", 1, lambda ms: [Int64(ms * 10**6 + random.randrange(-400_000, 400_000))], "ns"),
        Form("iso", 1, iso, "iso"),
        Form(
            "iso local", 1000, lambda ms: [local(ms, zone).strftime("%Y-%m-%d %H:%M:%S")], "iso", zoned=True
        ),
        Form("objectid", 1000, objectid, "objectid"),
        Form("timestamp", 1000, lambda ms: [Timestamp(ms // 1000, next(made))], "timestamp"),
        Form("text s", 1000, lambda ms: [str(ms // 1000)], format="%s"),
        Form("text ms", 1, lambda ms: [str(ms)], "ms", "%s"),
        *(formatted(it, zone, step) for it, step in FORMATS.items()),
        with_offset(random),
        with_offset(random, "%Y-%m-%d %H:%M:%S%z"),
        *parts,
        parted(["date", "time"], ["%Y-%m-%d", "%H:%M:%S"], zone, 1000, "text"),
        parted(["day", "at"], ["%d.%m.%Y", "%I:%M %p"], zone, 60_000, "text"),
    ]
