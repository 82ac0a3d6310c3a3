"""Documents of the kinds that people write, with the policy that they were made by: widths, zones, names and
numbers are drawn."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from bson.int64 import Int64
from bson.objectid import ObjectId

Document = dict[str, Any]
ZONES = (
    "UTC",
    *("Europe/Vienna", "Europe/London", "Europe/Helsinki", "America/Toronto", "America/St_Johns"),
    *("America/Phoenix", "Australia/Lord_Howe", "Australia/Melbourne", "Asia/Kolkata", "Pacific/Chatham"),
)
_WIDTHS = {"10m": 600, "12m": 720, "15m": 900, "20m": 1200, "30m": 1800, "1h": 3600, "2h": 7200, "3h": 10800}
_NAMES = {
    "time": ("d", "day", "start", "begin", "von", "x1"),
    "series": ("meter", "pump", "wagon", "line", "q"),
    "value": ("kwh", "flow", "v", "y", "wert"),
}


@dataclass(frozen=True)
class Variant:
    """Documents, the keys of the policy that they were made by, and whether `init` has to know it, and not
    ask."""

    name: str
    documents: list[Document]
    keys: dict[str, Any]
    is_known: bool


class _Draw:
    """Names and numbers."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.time, self.series, self.value = (self.random.choice(it) for it in _NAMES.values())
        self.count = self.random.randint(2, 4)
        self.day = date(2025, self.random.randint(1, 12), self.random.randint(1, 20))

    def number(self) -> float:
        return round(self.random.uniform(-5, 500), 3)

    def keys(self, model: str, **more: Any) -> dict[str, Any]:
        common = {"model": model, "series_fields": [self.series], "value_fields": [self.value]}
        return {**common, **({} if model == "samples" else {"time_field": self.time}), **more}

    def all_series(self) -> list[str]:
        return [f"{self.series}-{number}" for number in range(1, self.count + 1)]


def midnight(day: date, zone: str) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)).astimezone(UTC)


def slots_of_a_day(draw: _Draw) -> Variant:
    """Slots of any width in an array or under keys from 0 or 1, days of any zone."""
    width = draw.random.choice(list(_WIDTHS))
    zone = draw.random.choice(ZONES)
    first, is_array = draw.random.choice([(0, True), (0, False), (1, False)])
    documents: list[Document] = []
    for series in draw.all_series():
        for number in range(draw.random.randint(4, 9)):
            start = midnight(draw.day + timedelta(days=number), zone)
            length = midnight(draw.day + timedelta(days=number + 1), zone) - start
            slots = [draw.number() for _ in range(int(length.total_seconds()) // _WIDTHS[width])]
            held: Any = slots if is_array else {str(at + first): it for at, it in enumerate(slots)}
            documents.append({draw.series: series, draw.time: start, draw.value: held})
    keys = draw.keys("slots", slot="hour" if width == "1h" else width, span="day", timezone=zone)
    return Variant(
        f"{width} {zone} {first}", documents, keys | ({"first_slot": 1} if first else {}), zone == "UTC"
    )


def slots_of_an_hour(draw: _Draw) -> Variant:
    """Slots of some seconds or minutes in buckets of an hour or a few."""
    slot, seconds = draw.random.choice([("10s", 10), ("30s", 30), ("minute", 60), ("5m", 300), ("10m", 600)])
    span, hours = draw.random.choice([("hour", 1), ("2h", 2), ("6h", 6)])
    first, is_array = draw.random.choice([(0, True), (0, False), (1, False)])
    start = midnight(draw.day, "UTC")
    documents: list[Document] = []
    for series in draw.all_series():
        for number in range(draw.random.randint(4, 9)):
            slots = [draw.number() for _ in range(hours * 3600 // seconds)]
            held: Any = slots if is_array else {str(at + first): it for at, it in enumerate(slots)}
            at = start + timedelta(hours=hours * number)
            documents.append({draw.time: at, draw.series: series, draw.value: held})
    keys = draw.keys("slots", slot=slot, span=span) | ({"first_slot": 1} if first else {})
    return Variant(f"{slot} in {span} {first}", documents, keys, is_known=True)


def clock_keys(draw: _Draw) -> Variant:
    """Keys that a clock shows, with gaps."""
    width = draw.random.choice(["10m", "15m", "20m", "30m", "1h", "2h"])
    zone = draw.random.choice(ZONES)
    form = draw.random.choice(["%H:%M", "%H%M", "%H:%M:%S"])
    clock = ZoneInfo(zone)
    documents: list[Document] = []
    for series in draw.all_series():
        for number in range(draw.random.randint(4, 7)):
            day = draw.day + timedelta(days=number)
            held = {}
            for place in range(86_400 // _WIDTHS[width]):
                shown = midnight(day, "UTC") + timedelta(seconds=place * _WIDTHS[width])
                back = shown.replace(tzinfo=clock).astimezone(UTC).astimezone(clock).replace(tzinfo=UTC)
                if back == shown and draw.random.random() < 0.9:
                    held[shown.strftime(form)] = draw.number()
            documents.append({draw.series: series, draw.time: midnight(day, zone), draw.value: held})
    more = {} if zone == "UTC" else {"slot_time": "local", "timezone": zone}
    slot = "hour" if width == "1h" else width
    keys = draw.keys("slots", slot=slot, span="day", slot_keys="clock", **more)
    return Variant(f"{form} {width} {zone}", documents, keys, zone == "UTC")


def month_days(draw: _Draw) -> Variant:
    """A month's document, a slot a day."""
    is_array = draw.random.random() < 0.5
    documents: list[Document] = []
    for series in draw.all_series():
        for month in range(1, draw.random.randint(4, 9)):
            days = (date(2025, month + 1, 1) - date(2025, month, 1)).days
            slots = [draw.number() for _ in range(days)]
            held: Any = slots if is_array else {str(at + 1): it for at, it in enumerate(slots)}
            at = datetime(2025, month, 1, tzinfo=UTC)
            documents.append({draw.time: at, draw.series: series, draw.value: held})
    keys = draw.keys("slots", slot="day", span="month") | ({} if is_array else {"first_slot": 1})
    return Variant(f"days {is_array}", documents, keys, is_known=True)


_FORMATS = (
    *("%d.%m.%Y %H:%M:%S", "%Y/%m/%d %H:%M", "%m/%d/%Y %I:%M %p", "%d-%b-%Y %H:%M:%S", "%Y%m%d%H%M%S"),
    *("%Y-%m-%d %H:%M:%S", "%Y,%m,%d,%H,%M,%S,%f", "%Y-%m-%dT%H:%M:%S", "%d/%m/%y %H:%M"),
)


def _instants(draw: _Draw) -> Iterator[tuple[str, datetime]]:
    start = midnight(draw.day, "UTC")
    for series in draw.all_series():
        at = start
        for _ in range(draw.random.randint(40, 70)):
            at += timedelta(minutes=draw.random.randint(11, 25))
            yield series, at


def texts(draw: _Draw) -> Variant:
    """Times as text of some format, by the clock of a zone."""
    zone = draw.random.choice(ZONES)
    form = draw.random.choice(_FORMATS)
    documents = [
        {
            draw.series: series,
            draw.time: at.astimezone(ZoneInfo(zone)).strftime(form),
            draw.value: draw.number(),
        }
        for series, at in _instants(draw)
    ]
    return Variant(f"{form} {zone}", documents, draw.keys("reading", time_format=form, timezone=zone), False)


def epochs(draw: _Draw) -> Variant:
    """Epoch numbers, as numbers or as text."""
    unit, per, is_text = draw.random.choice([("s", 1, True), ("ms", 1000, False), ("ms", 1000, True)])
    documents = []
    for series, at in _instants(draw):
        number = int(at.timestamp()) * per
        held: Any = str(number) if is_text else Int64(number)
        documents.append({draw.series: series, draw.time: held, draw.value: draw.number()})
    keys = {"time_format": "%s"} if is_text else {}
    more = {} if unit == "s" else {"time_unit": unit}
    return Variant(f"epoch {unit} {is_text}", documents, draw.keys("reading", **keys, **more), is_known=True)


def object_ids(draw: _Draw) -> Variant:
    """No time but that of the ObjectId."""
    documents = [
        {
            "_id": ObjectId(int(at.timestamp()).to_bytes(4, "big") + draw.random.randbytes(8)),
            draw.series: series,
            draw.value: draw.number(),
        }
        for series, at in _instants(draw)
    ]
    keys = {**draw.keys("reading"), "time_field": "_id", "time_unit": "objectid"}
    return Variant("ObjectId", documents, keys, is_known=True)


def parallel(draw: _Draw) -> Variant:
    """Times in an array, and values in others beside it."""
    unit, per = draw.random.choice([("s", 1), ("ms", 1000)])
    documents: list[Document] = []
    start = midnight(draw.day, "UTC")
    for series in draw.all_series():
        for number in range(draw.random.randint(4, 9)):
            begin = int((start + timedelta(hours=number)).timestamp())
            seconds = sorted(draw.random.sample(range(3600), draw.random.randint(20, 40)))
            held = [Int64((begin + it) * per) for it in seconds]
            values = [draw.number() for _ in held]
            documents.append({draw.series: series, "stamps": held, draw.value: values})
    keys = draw.keys("samples", samples_as="arrays", sample_time_field="stamps", sample_time_unit=unit)
    return Variant(f"parallel {unit}", documents, keys, is_known=True)


def elapsed(draw: _Draw) -> Variant:
    """Samples that count from the start of their bucket, which ends with its time or when it is full."""
    ends_full = draw.random.random() < 0.5
    unit, per, hours = draw.random.choice(
        [("+s", 1, 1), ("+ms", 1000, 1), ("+m", 1 / 60, 24), ("+h", 1 / 3600, 24)]
    )
    documents: list[Document] = []
    start = midnight(draw.day, "UTC")
    step = int(max(1, 1 / per))
    for series in draw.all_series():
        begin = start
        for _ in range(draw.random.randint(4, 9)):
            span = hours * draw.random.randint(3600, 9000) if ends_full else hours * 3600
            seconds = sorted(draw.random.sample(range(0, span, step), 20))
            samples = [{"o": int(it * per), draw.value: draw.number()} for it in seconds]
            documents.append({draw.series: series, draw.time: begin, "list": samples})
            begin += timedelta(seconds=seconds[-1] + step if ends_full else span)
    keys = draw.keys("samples", samples_field="list", sample_time_field="o", sample_time_unit=unit)
    return Variant(f"elapsed {unit}", documents, {**keys, "start_field": draw.time}, False)


def units(draw: _Draw) -> Variant:
    """Numbers as text, with a unit and a decimal comma or point."""
    unit, comma = draw.random.choice(["kWh", "°F", "m³/h", "%"]), draw.random.choice([",", "."])
    documents = [
        {
            draw.series: series,
            draw.time: at,
            draw.value: f"{draw.number():.2f} {unit}".replace(".", comma),
        }
        for series, at in _instants(draw)
    ]
    tables = {draw.value: {"text": True, "decimal": comma, "unit": unit}}
    return Variant(f"{unit} {comma}", documents, draw.keys("reading", values=tables), is_known=True)


KINDS: tuple[Callable[[_Draw], Variant], ...] = (
    *(slots_of_a_day, slots_of_an_hour, clock_keys, month_days, texts, epochs, object_ids, parallel, elapsed),
    units,
)


def variant(kind: Callable[[_Draw], Variant], seed: int) -> Variant:
    """The documents of a kind that a seed gives, each with an `_id`."""
    found = kind(_Draw(seed))
    filled = [{"_id": number, **it} for number, it in enumerate(found.documents)]
    return Variant(found.name, filled, found.keys, found.is_known)
