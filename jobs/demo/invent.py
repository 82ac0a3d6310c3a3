"""Invents readings that look real: the same ones for the same present.

Each function gives the readings as columns, with which the demo compares every result, and the documents in
which an application would have written them. What summaries must hold is computed from the columns, in plain
Python: no code of the suite takes part.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from itertools import compress
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import bson
import numpy as np
from bson import DatetimeMS, ObjectId
from numpy.typing import NDArray

DAYS = 28
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
_EXCHANGE = ZoneInfo("America/New_York")

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
_NONE = np.zeros(0, np.int64)


@dataclass
class Invented:
    """One collection. Shapes: s series, b buckets, n readings."""

    series: list[dict[str, Any]]  # s: the series fields of each
    documents: list[bytes] = field(default_factory=list)  # b, as BSON
    extra: list[bytes] = field(default_factory=list)  # overflow documents
    of: Integers = field(default_factory=lambda: _NONE)  # n: index into series
    bucket: Integers = field(default_factory=lambda: _NONE)  # n: index into documents
    time: Integers = field(default_factory=lambda: _NONE)  # n: milliseconds
    values: dict[str, Floats] = field(default_factory=dict)  # value field -> n

    @property
    def last(self) -> Integers:
        """Returns when the last reading of each bucket was, (b,)."""
        last = np.zeros(len(self.documents), np.int64)
        np.maximum.at(last, self.bucket, self.time)
        return last

    def select(self, which: Flags) -> list[bytes]:
        """Returns the documents where `which`, one flag for each of all, is true, in order."""
        return sorted(compress(self.documents, which.tolist()))

    def add(self, series: int, buckets: Integers, times: Integers, **values: Floats) -> None:
        """Adds readings of one series. `buckets`: which of the documents still to come each is in, from 0."""
        self.of = np.append(self.of, np.full(len(times), series))
        self.bucket = np.append(self.bucket, len(self.documents) + buckets)
        self.time = np.append(self.time, times)
        for name, column in values.items():
            self.values[name] = np.append(self.values.get(name, []), column)

    def write(self, ms: int, document: dict[str, Any]) -> ObjectId:
        """Adds a document as an application would have written it then. Returns its `_id`."""
        identity = _id(ms, len(self.documents))
        self.documents.append(bson.encode({"_id": identity, **document}))
        return identity


def invent(now: datetime) -> dict[str, Invented]:
    """Invents four weeks of everything, up to `now`, by policy."""
    end = int(now.astimezone(UTC).timestamp()) * SECOND
    return {it.__name__: it(end) for it in (ticks, iot, temperature, metrics, sales)}


def ticks(end: int) -> Invented:
    """Invents `slots`: a price each second of the trading hours, a document a minute, with gaps at times."""
    rng, made = np.random.default_rng(1), Invented([{"symbol": name} for name in ("ACME", "BOLT")])
    keys = [str(second) for second in range(60)]
    for series, price in enumerate((56.0, 131.5)):
        for opening in _openings(end):
            seconds = min(390, (end - opening) // MINUTE) * 60
            walk = price * np.exp(np.cumsum(rng.standard_normal(seconds) * 7e-5))
            price = float(walk[-1]) * float(np.exp(rng.standard_normal() * 0.006))
            prices, there = np.round(walk, 2), rng.random(seconds) > 0.0004
            at = np.flatnonzero(there)
            made.add(series, at // 60, opening + at * SECOND, p=prices[there])
            for first in range(0, seconds, 60):
                minute = slice(first, first + 60)
                slots = zip(keys, prices[minute].tolist(), there[minute].tolist(), strict=True)
                when = opening + first * SECOND
                held = {key: price for key, price, is_there in slots if is_there}
                made.write(when + MINUTE, {"p": held, **made.series[series], "d": DatetimeMS(when)})
    return made


def _openings(end: int) -> Iterator[int]:
    """Yields when the exchange opened, on weekdays: 9:30 in New York."""
    first = datetime.fromtimestamp((end - DAYS * DAY) / SECOND, UTC).date()
    for day in (first + timedelta(days=after) for after in range(1, DAYS + 1)):
        opening = int(datetime.combine(day, time(9, 30), _EXCHANGE).timestamp()) * SECOND
        if day.weekday() < 5 and opening + MINUTE <= end:
            yield opening


def iot(end: int) -> Invented:
    """Invents `samples` closed by size: a vibration sensor's level about every five minutes, in epoch
    seconds."""
    size, count, rng = 200, DAYS * 288, np.random.default_rng(2)
    places = [(device, sensor) for device in (1234, 1240) for sensor in (1, 3)]
    made = Invented([{"deviceid": device, "sensorid": sensor} for device, sensor in places])
    for series, fields in enumerate(made.series):
        at = (end - DAYS * DAY) // SECOND + np.arange(count) * 300 + rng.integers(0, 20, count)
        at = at[at * SECOND < end]
        hum = 55 + 12 * np.sin(at / 86_400 * 2 * np.pi + series) + rng.standard_normal(len(at)) * 3
        levels = np.round(hum).astype(np.int64)
        made.add(series, np.arange(len(at)) // size, at * SECOND, val=levels.astype(np.float64))
        for low in range(0, len(at), size):
            times, values = at[low : low + size].tolist(), levels[low : low + size].tolist()
            samples = [{"val": level, "time": when} for level, when in zip(values, times, strict=True)]
            day = DatetimeMS(times[0] * SECOND // DAY * DAY)
            kept = {"nsamples": len(times), "day": day, "first": times[0], "last": times[-1]}
            made.write(times[0] * SECOND, {**fields, **kept, "samples": samples})
    return made


def temperature(end: int) -> Invented:
    """Invents `reading`: a document a minute and room, with two values."""
    rng = np.random.default_rng(3)
    made = Invented([{"room": room} for room in ("cellar", "kitchen")])
    at = end // MINUTE * MINUTE - np.arange(DAYS * 1440, 0, -1) * MINUTE
    for series, (base, swing) in enumerate(((12.0, 0.4), (20.5, 2.2))):
        daily = np.sin((at % DAY) / DAY * 2 * np.pi - 2.2)
        drift = np.cumsum(rng.standard_normal(len(at)) * 0.004)
        celsius = np.round(base + swing * daily + drift + rng.standard_normal(len(at)) * 0.05, 1)
        humidity = np.round(48 - 4 * daily + rng.standard_normal(len(at)) * 0.4, 1)
        _write_each(made, series, made.series[series], at, celsius=celsius, humidity=humidity)
    return made


def metrics(end: int) -> Invented:
    """Invents `timeseries`: what three machines report every five minutes."""
    rng, hosts = np.random.default_rng(4), ("web-1", "web-2", "db-1")
    made = Invented([{"meta.host": host} for host in hosts])
    at = end // MINUTE * MINUTE - np.arange(DAYS * 288, 0, -1) * 5 * MINUTE
    for series, host in enumerate(hosts):
        busy: Floats = 35 + 25 * np.sin((at % DAY) / DAY * 2 * np.pi - 1.8) + rng.gamma(2.0, 3.0, len(at))
        load = (busy / 22 + rng.random(len(at)) / 4).round(2)
        cpu = busy.clip(0, 100).round(1)
        _write_each(made, series, {"meta": {"host": host}}, at, cpu=cpu, load=load)
    return made


def _write_each(made: Invented, series: int, fields: dict[str, Any], at: Integers, **values: Floats) -> None:
    """Writes a document for each reading."""
    made.add(series, np.arange(len(at)), at, **values)
    for when, *numbers in zip(at.tolist(), *(column.tolist() for column in values.values()), strict=True):
        made.write(when, {**fields, "at": DatetimeMS(when), **dict(zip(values, numbers, strict=True))})


def sales(end: int) -> Invented:
    """Invents `samples` closed by time: a document an hour and shop. In rush hours it overflows into a second
    one."""
    room, rng = 60, np.random.default_rng(5)
    made = Invented([{"shop": shop} for shop in ("harbour", "station")])
    for start in range(end // HOUR * HOUR - DAYS * DAY, end // HOUR * HOUR, HOUR):
        hour = start // HOUR % 24
        for series, fields in enumerate(made.series if 8 <= hour < 19 else ()):
            count = int(rng.poisson((90 if hour in (11, 12, 17) else 25) * (0.7 + 0.5 * series))) + 1
            at = start + np.sort(rng.choice(HOUR, count, replace=False))
            amounts: Floats = np.round(rng.gamma(2.2, 6.5, count) + 0.5, 2)
            made.add(series, np.zeros(count, np.int64), at, amount=amounts)
            pairs = zip(at.tolist(), amounts.tolist(), strict=True)
            sold = [{"timestamp": DatetimeMS(when), "amount": amount} for when, amount in pairs]
            span = {"start_date": DatetimeMS(start), "end_date": DatetimeMS(start + HOUR - 1)}
            kept = {"transaction_count": count, "sum_amount": round(float(amounts.sum()), 2)}
            flag = {"has_extras": True} if count > room else {}
            owner = made.write(start + HOUR, {**fields, **span, **kept, "measurements": sold[:room], **flag})
            if flag:
                more = {"_id": _id(start + HOUR, 900_000 + len(made.extra)), "bucket_id": owner}
                made.extra.append(bson.encode({**more, "measurements": sold[room:]}))
    return made


def _id(ms: int, number: int) -> ObjectId:
    """Returns an ObjectId as a driver would have made it then, but the same in every demo."""
    return ObjectId((ms // SECOND).to_bytes(4, "big") + b"demo\0" + number.to_bytes(3, "big"))


class Expected(NamedTuple):
    """One value field of one series in one window."""

    series: int
    start: int  # milliseconds
    field: str
    values: Floats  # by time


def hours(made: Invented) -> Integers:
    """Returns the edges of all UTC hours that hold a reading, and of those between."""
    return np.arange(made.time.min() // HOUR, made.time.max() // HOUR + 2, dtype=np.int64) * HOUR


def days(made: Invented, zone: str) -> Integers:
    """Returns the edges of all calendar days in a zone that hold a reading, and of those between."""
    tz = ZoneInfo(zone)
    first, last = (
        datetime.fromtimestamp(at / SECOND, tz).date() for at in (made.time.min(), made.time.max())
    )
    dates = (first + timedelta(days=n) for n in range((last - first).days + 2))
    return np.array([int(datetime.combine(it, time(), tz).timestamp()) * SECOND for it in dates])


def windows(made: Invented, edges: Integers, due: int) -> Iterator[Expected]:
    """Yields what the summaries of all windows that end by `due` must stand for."""
    window = np.searchsorted(edges, made.time, side="right") - 1
    order = np.lexsort((made.time, window, made.of))
    order = order[edges[window[order] + 1] <= due]
    cells = made.of[order] * len(edges) + window[order]
    for part in np.split(order, np.flatnonzero(np.diff(cells)) + 1):
        for name, values in made.values.items():
            yield Expected(int(made.of[part[0]]), int(edges[window[part[0]]]), name, values[part])


def difference_of(expected: Expected, summary: dict[str, Any]) -> str | None:
    """Returns how a summary's sub-document differs from its readings; None if it does not."""
    values, ranked, count = expected.values, np.sort(expected.values), len(expected.values)
    exact = {"count": count, "min": ranked[0], "max": ranked[-1], "first": values[0], "last": values[-1]}
    within = {key: (wanted, wanted) for key, wanted in exact.items()}
    total = math.fsum(values)
    for key, wanted in (("sum", total), ("avg", total / count)):
        within[key] = (wanted - abs(wanted) * 1e-12, wanted + abs(wanted) * 1e-12)
    for percent in (50, 95, 99):
        rank = (count - 1) * percent / 100
        if f"p{percent}" in summary:
            within[f"p{percent}"] = (ranked[math.floor(rank)] * 0.99, ranked[math.ceil(rank)] * 1.01)
    for key, (low, high) in within.items():
        if not low <= summary[key] <= high:
            return f"{key} is {summary[key]}, and the readings give {low} to {high}"
    return None
