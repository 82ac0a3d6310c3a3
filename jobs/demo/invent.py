"""Invents readings that look like life: the same ones for the same present.

Each function gives the readings as columns, which is what the demo holds every result against, and the
documents in which an application would have written them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
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


@dataclass
class Invented:
    """One collection. Shapes: s series, b buckets, n readings."""

    name: str  # of the policy and of its collection
    series: list[dict[str, Any]]  # s: the series fields of each
    documents: list[bytes] = field(default_factory=list)  # b, as BSON
    extra: list[bytes] = field(default_factory=list)  # overflow documents
    of: Integers = field(default_factory=lambda: np.zeros(0, np.int64))  # n: index into series
    bucket: Integers = field(default_factory=lambda: np.zeros(0, np.int64))  # n: index into documents
    time: Integers = field(default_factory=lambda: np.zeros(0, np.int64))  # n: milliseconds
    values: dict[str, Floats] = field(default_factory=dict)  # value field -> n

    @property
    def last(self) -> Integers:
        """b: when the last reading of each bucket was."""
        last = np.zeros(len(self.documents), np.int64)
        np.maximum.at(last, self.bucket, self.time)
        return last

    def some(self, which: NDArray[np.bool_]) -> list[bytes]:
        """The documents where `which`, of all of them, is true."""
        return [document for document, wanted in zip(self.documents, which.tolist(), strict=True) if wanted]


class _Columns:
    """Gathers readings piece by piece."""

    def __init__(self, *value_fields: str) -> None:
        self._pieces: list[tuple[Integers, Integers, Integers, list[Floats]]] = []
        self._value_fields = value_fields

    def add(self, series: int, buckets: Integers, times: Integers, *values: Floats) -> None:
        self._pieces.append((np.full(len(times), series), buckets, times, list(values)))

    def into(self, target: Invented) -> Invented:
        of, bucket, time, values = zip(*self._pieces, strict=True)
        target.of, target.bucket, target.time = map(np.concatenate, (of, bucket, time))
        for i, name in enumerate(self._value_fields):
            target.values[name] = np.concatenate([piece[i] for piece in values])
        return target


def invent(now: datetime) -> list[Invented]:
    """Four weeks of everything, up to `now`."""
    end = int(now.astimezone(UTC).timestamp()) * SECOND
    return [ticks(end), iot(end), temperature(end), metrics(end), sales(end)]


def ticks(end: int) -> Invented:
    """`slots`: a price each second of the trading hours, a document a minute; the feed hiccups at times."""
    rng, made = np.random.default_rng(1), Invented("ticks", [{"symbol": name} for name in ("ACME", "BOLT")])
    keys, columns = [str(second) for second in range(60)], _Columns("p")
    for series, price in enumerate((56.0, 131.5)):
        for opening in _openings(end):
            minutes = min(390, (end - opening) // MINUTE)
            seconds = minutes * 60
            walk = price * np.exp(np.cumsum(rng.standard_normal(seconds) * 7e-5))
            price = float(walk[-1]) * float(np.exp(rng.standard_normal() * 0.006))
            prices, there = np.round(walk, 2), rng.random(seconds) > 0.0004
            start = len(made.documents)
            at = np.arange(seconds)[there]
            columns.add(series, start + at // 60, opening + at * SECOND, prices[there])
            for minute in range(minutes):
                span = slice(minute * 60, minute * 60 + 60)
                slots = dict(zip(keys, prices[span].tolist(), strict=True))
                for second in np.flatnonzero(~there[span]).tolist():
                    del slots[keys[second]]
                when = opening + minute * MINUTE
                made.documents.append(
                    _encode(
                        {
                            "_id": _id(when + MINUTE, len(made.documents)),
                            "p": slots,
                            **made.series[series],
                            "d": DatetimeMS(when),
                        }
                    )
                )
    return columns.into(made)


def _openings(end: int) -> Iterator[int]:
    """When the exchange opened, on weekdays: 9:30 in New York."""
    first = datetime.fromtimestamp((end - DAYS * DAY) / SECOND, UTC).date()
    for after in range(1, DAYS + 1):
        day: date = first + timedelta(days=after)
        opening = int(datetime.combine(day, time(9, 30), _EXCHANGE).timestamp()) * SECOND
        if day.weekday() < 5 and opening + MINUTE <= end:
            yield opening


def iot(end: int) -> Invented:
    """`samples` closed by size: a vibration sensor's level about every five minutes, in epoch seconds."""
    size, rng, columns = 200, np.random.default_rng(2), _Columns("val")
    places = [(device, sensor) for device in (1234, 1240) for sensor in (1, 3)]
    made = Invented("iot", [{"deviceid": device, "sensorid": sensor} for device, sensor in places])
    for series, fields in enumerate(made.series):
        count = DAYS * 288
        at = (end - DAYS * DAY) // SECOND + np.arange(count) * 300 + rng.integers(0, 20, count)
        at = at[at * SECOND < end]
        hum = 55 + 12 * np.sin(at / 86_400 * 2 * np.pi + series) + rng.standard_normal(len(at)) * 3
        levels = np.round(hum).astype(np.int64)
        start = len(made.documents)
        columns.add(series, start + np.arange(len(at)) // size, at * SECOND, levels.astype(np.float64))
        for low in range(0, len(at), size):
            times, values = at[low : low + size].tolist(), levels[low : low + size].tolist()
            made.documents.append(
                _encode(
                    {
                        "_id": _id(times[0] * SECOND, len(made.documents)),
                        **fields,
                        "nsamples": len(times),
                        "day": DatetimeMS(times[0] * SECOND // DAY * DAY),
                        "first": times[0],
                        "last": times[-1],
                        "samples": [{"val": v, "time": t} for v, t in zip(values, times, strict=True)],
                    }
                )
            )
    return columns.into(made)


def temperature(end: int) -> Invented:
    """`reading`: a document a minute and room, with two values."""
    rng, columns = np.random.default_rng(3), _Columns("celsius", "humidity")
    made = Invented("temperature", [{"room": room} for room in ("cellar", "kitchen")])
    at = end // MINUTE * MINUTE - np.arange(DAYS * 1440, 0, -1) * MINUTE
    for series, (base, swing) in enumerate(((12.0, 0.4), (20.5, 2.2))):
        daily = np.sin((at % DAY) / DAY * 2 * np.pi - 2.2)
        drift = np.cumsum(rng.standard_normal(len(at)) * 0.004)
        celsius = np.round(base + swing * daily + drift + rng.standard_normal(len(at)) * 0.05, 1)
        humidity = np.round(48 - 4 * daily + rng.standard_normal(len(at)) * 0.4, 1)
        columns.add(series, len(made.documents) + np.arange(len(at)), at, celsius, humidity)
        for when, warm, wet in zip(at.tolist(), celsius.tolist(), humidity.tolist(), strict=True):
            made.documents.append(
                _encode(
                    {
                        "_id": _id(when, len(made.documents)),
                        **made.series[series],
                        "at": DatetimeMS(when),
                        "celsius": warm,
                        "humidity": wet,
                    }
                )
            )
    return columns.into(made)


def metrics(end: int) -> Invented:
    """`timeseries`: what three machines report every five minutes."""
    rng, columns = np.random.default_rng(4), _Columns("cpu", "load")
    hosts = ("web-1", "web-2", "db-1")
    made = Invented("metrics", [{"meta.host": host} for host in hosts])
    at = end // MINUTE * MINUTE - np.arange(DAYS * 288, 0, -1) * 5 * MINUTE
    for series, host in enumerate(hosts):
        busy: Floats = 35 + 25 * np.sin((at % DAY) / DAY * 2 * np.pi - 1.8) + rng.gamma(2.0, 3.0, len(at))
        cpu = busy.clip(0, 100).round(1)
        load = (busy / 22 + rng.random(len(at)) / 4).round(2)
        columns.add(series, len(made.documents) + np.arange(len(at)), at, cpu, load)
        for when, percent, queue in zip(at.tolist(), cpu.tolist(), load.tolist(), strict=True):
            made.documents.append(
                _encode(
                    {
                        "at": DatetimeMS(when),
                        "meta": {"host": host},
                        "_id": _id(when, len(made.documents)),
                        "cpu": percent,
                        "load": queue,
                    }
                )
            )
    return columns.into(made)


def sales(end: int) -> Invented:
    """`samples` closed by time: a document an hour and shop. In rush hours it overflows into a second one."""
    room, rng, columns = 60, np.random.default_rng(5), _Columns("amount")
    made = Invented("sales", [{"shop": shop} for shop in ("harbour", "station")])
    for hour in range(end // HOUR * HOUR - DAYS * DAY, end // HOUR * HOUR, HOUR):
        if not 8 <= hour // HOUR % 24 < 19:
            continue
        rush = 90 if hour // HOUR % 24 in (11, 12, 17) else 25
        for series, fields in enumerate(made.series):
            count = int(rng.poisson(rush * (0.7 + 0.5 * series))) + 1
            at = hour + np.sort(rng.choice(HOUR, count, replace=False))
            amounts: Floats = np.round(rng.gamma(2.2, 6.5, count) + 0.5, 2)
            columns.add(series, np.full(count, len(made.documents)), at, amounts)
            sold = [
                {"timestamp": DatetimeMS(when), "amount": amount}
                for when, amount in zip(at.tolist(), amounts.tolist(), strict=True)
            ]
            identity = _id(hour + HOUR, len(made.documents))
            overflows = count > room
            bucket = {
                "_id": identity,
                **fields,
                "start_date": DatetimeMS(hour),
                "end_date": DatetimeMS(hour + HOUR - 1),
                "transaction_count": count,
                "sum_amount": round(float(amounts.sum()), 2),
                "measurements": sold[:room],
            }
            made.documents.append(_encode(bucket | ({"has_extras": True} if overflows else {})))
            if overflows:
                more = {"_id": _id(hour + HOUR, 900_000 + len(made.extra)), "bucket_id": identity}
                made.extra.append(_encode(more | {"measurements": sold[room:]}))
    return columns.into(made)


def _id(ms: int, number: int) -> ObjectId:
    """An ObjectId as a driver would have made it then, but the same in every demo."""
    return ObjectId((ms // SECOND).to_bytes(4, "big") + b"demo\0" + number.to_bytes(3, "big"))


def _encode(document: dict[str, Any]) -> bytes:
    return bson.encode(document)
