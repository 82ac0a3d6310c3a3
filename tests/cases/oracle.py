"""What must come of documents: summaries in plain Python, from the readings that they were made of."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

import bson
from pymongo.database import Database

Row = dict[str, Any]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
#: What a value counts as that is no number: a text, or `true` without a map.
NO_NUMBER = "no number"


@dataclass(frozen=True)
class Reading:
    """`series` and `values` by the names that summaries have; `at`: milliseconds since 1970. A value is a
    float, NO_NUMBER, or None where there is none."""

    series: Row
    at: int
    values: Row


@dataclass
class Written:
    """A document with its readings, in their order in it. `is_broken`: it has to be quarantined."""

    document: Row
    readings: list[Reading]
    is_broken: bool = False

    @property
    def body(self) -> bytes:
        return bson.encode(self.document)


@dataclass
class Variant:
    """Documents in the order of their `_id`s, and the policy that reads them."""

    name: str
    policy: list[str]
    documents: list[Written]
    fields: list[str]
    tables: list[str] = field(default_factory=list)
    zone: str = "UTC"
    duplicates: str = "keep"
    may_stop: bool = False

    def __str__(self) -> str:
        return self.name

    @property
    def last(self) -> datetime:
        return instant(max(it.at for doc in self.documents if not doc.is_broken for it in doc.readings))

    @property
    def now(self) -> str:
        """Some days after the last reading."""
        at = self.last.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=35)
        return at.strftime("%Y-%m-%dT%H:%M:%SZ")

    def text(self, archive: str = 'to = "offline"', after: str = "1d") -> str:
        """The tables of the policy file."""
        rollup = ["[policies.c.rollup]", 'hourly = "c_hourly"', 'daily = "c_daily"']
        lines = ["[policies.c]", 'collection = "c"', *self.policy, *rollup]
        lines += ["[policies.c.archive]", f'after = "{after}"', archive, *self.tables]
        return "\n".join(lines) + "\n"

    def sound(self) -> list[Written]:
        return [it for it in self.documents if not it.is_broken]


def instant(ms: int) -> datetime:
    return EPOCH + ms * _MS


def ms_of(at: datetime) -> int:
    return (at - EPOCH) // _MS


@cache
def day_start(day: date, zone: str) -> datetime:
    """The first minute at which clocks of a zone show this day or a later one."""
    at = datetime(day.year, day.month, day.day, tzinfo=UTC) - timedelta(hours=16)
    while at.astimezone(ZoneInfo(zone)).date() < day:
        at += timedelta(minutes=1)
    return at


def _window(at: datetime, level: str, zone: str) -> datetime:
    if level == "hourly":
        return at.replace(minute=0, second=0, microsecond=0)
    local = at.astimezone(ZoneInfo(zone)).date()
    days = [local + timedelta(days=it) for it in (-1, 0, 1)]
    return max(start for start in (day_start(it, zone) for it in days) if start <= at)


def _key(series: Row, start: datetime) -> tuple[Any, ...]:
    return (*sorted((name, type(it) is bool, it) for name, it in series.items()), start)


def counted(documents: Iterable[Written], duplicates: str) -> list[Reading]:
    """The readings that summaries count, in the order of time; where times are equal, in that of `_id`s."""
    found: list[Reading] = []
    by_time: dict[tuple[Any, ...], int] = {}
    for reading in (it for document in documents for it in document.readings):
        key = _key(reading.series, instant(reading.at))
        if duplicates != "keep" and key in by_time:
            if duplicates == "last":
                found[by_time[key]] = reading
            continue
        by_time[key] = len(found)
        found.append(reading)
    return sorted(found, key=lambda it: it.at)


def summaries(variant: Variant, documents: Sequence[Written], level: str) -> dict[tuple[Any, ...], Row]:
    """By series and start."""
    grouped: dict[tuple[Any, ...], list[Reading]] = defaultdict(list)
    for it in counted(documents, variant.duplicates):
        grouped[_key(it.series, _window(instant(it.at), level, variant.zone))].append(it)
    return {
        key: {"count": len(some), **{name: _values(some, name) for name in variant.fields}}
        for key, some in grouped.items()
    }


def _values(readings: list[Reading], name: str) -> Row:
    held = [(instant(it.at), it.values.get(name)) for it in readings]
    numbers = [(at, float(it)) for at, it in held if it is not None and it != NO_NUMBER]
    finite = [(at, it) for at, it in numbers if math.isfinite(it)]
    found: Row = {
        "count": len(finite),
        "sum": math.fsum(it for _, it in finite),
        "nonfinite": len(numbers) - len(finite),
        "nonnumeric": sum(it == NO_NUMBER for _, it in held),
    }
    if finite:
        values = [it for _, it in finite]
        found |= {"min": min(values), "max": max(values), "avg": found["sum"] / len(values)}
        found |= {"first": values[0], "first_at": finite[0][0], "last": values[-1], "last_at": finite[-1][0]}
    return found


def differences(database: Database[Row], variant: Variant, documents: Sequence[Written]) -> list[str]:
    """How the summaries differ from those that there must be: a line each."""
    found: list[str] = []
    for level in ("hourly", "daily"):
        wanted = summaries(variant, documents, level)
        held = {
            _key(_flat(it["_id"]["series"]), it["start"].replace(tzinfo=UTC)): it
            for it in database[f"c_{level}"].find()
        }
        found += [f"{level} {key}: missing" for key in wanted.keys() - held.keys()]
        found += [f"{level} {key}: not expected" for key in held.keys() - wanted.keys()]
        for key in wanted.keys() & held.keys():
            found += [f"{level} {key} {it}" for it in _unlike(wanted[key], held[key])]
    return sorted(found)


def _flat(series: Row) -> Row:
    found: Row = {}
    for name, value in series.items():
        inner = _flat(value) if isinstance(value, dict) else {"": value}
        found |= {f"{name}.{key}".rstrip("."): it for key, it in inner.items()}
    return found


def _unlike(wanted: Row, summary: Row) -> list[str]:
    found = []
    for name, value in wanted.items():
        held: Any = summary
        for part in name.split("."):
            held = held.get(part, {})
        if not isinstance(value, dict):
            found += [] if held == value else [f"{name}: {held}, not {value}"]
            continue
        found += [
            f"{name}.{key}: {held.get(key)}, not {it}"
            for key, it in value.items()
            if not _is_same(held.get(key, 0 if key in ("nonfinite", "nonnumeric") else None), it)
        ]
    return found


def _is_same(held: Any, wanted: Any) -> bool:
    if isinstance(wanted, datetime):
        return held is not None and held.replace(tzinfo=UTC) == wanted
    if isinstance(wanted, float) and isinstance(held, int | float):
        return abs(held - wanted) <= 1e-12 * max(1.0, abs(wanted))
    return bool(held == wanted)
