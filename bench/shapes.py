"""Further shapes of documents, each with the regular workload that it is like."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
from bson.int64 import Int64

from bench.workloads import (
    MINUTES,
    READING_KEYS,
    READINGS,
    SAMPLE_INDEXES,
    SAMPLE_KEYS,
    SAMPLES,
    SLOT_KEYS,
    Document,
    Workload,
)

_ZONE, _GERMAN = ZoneInfo("Europe/Berlin"), "%d.%m.%Y %H:%M:%S"
_HOUR_KEYS: Document = {**SLOT_KEYS, "slot_levels": ["second"], "span": "hour"}
del _HOUR_KEYS["slot"]


def _hours(number: int, rng: np.random.Generator) -> Iterator[tuple[Document, list[Document]]]:
    """Yields a document for each series and hour, and the minute buckets of that hour."""
    minutes = list(MINUTES.day(number, rng))
    series = len(minutes) // 1440
    for hour in range(24):
        for symbol in range(series):
            held = minutes[hour * 60 * series + symbol : (hour + 1) * 60 * series : series]
            yield {"symbol": held[0]["symbol"], "d": held[0]["d"]}, held


def _nested(number: int, rng: np.random.Generator) -> Iterator[Document]:
    for head, held in _hours(number, rng):
        yield {**head, "p": {str(minute): bucket["p"] for minute, bucket in enumerate(held)}}


def _values(held: list[Document]) -> list[float]:
    return [value for bucket in held for value in bucket["p"].values()]


def _seconds(number: int, rng: np.random.Generator) -> Iterator[Document]:
    for head, held in _hours(number, rng):
        yield {**head, "p": {f"{second:04}": value for second, value in enumerate(_values(held))}}


def _places(number: int, rng: np.random.Generator) -> Iterator[Document]:
    for head, held in _hours(number, rng):
        yield {**head, "p": _values(held)}


def _tens(number: int, rng: np.random.Generator) -> Iterator[Document]:
    for head, held in _hours(number, rng):
        for first in range(0, 60, 10):
            keys = map(str, range(1, 601))
            values = dict(zip(keys, _values(held[first : first + 10]), strict=True))
            yield {**head, "d": held[first]["d"], "p": values}


def _inside(number: int, rng: np.random.Generator) -> Iterator[Document]:
    for bucket in MINUTES.day(number, rng):
        slots = {slot: {"p": value} for slot, value in bucket["p"].items()}
        yield {"v": slots, "symbol": bucket["symbol"], "d": bucket["d"]}


def _identified(number: int, rng: np.random.Generator) -> Iterator[Document]:
    for bucket in MINUTES.day(number, rng):
        yield {"_id": {"symbol": bucket["symbol"], "d": bucket["d"]}, "p": bucket["p"]}


def _unended(number: int, rng: np.random.Generator) -> Iterator[Document]:
    for bucket in SAMPLES.day(number, rng):
        del bucket["last"]
        yield bucket


def _pairs(number: int, rng: np.random.Generator) -> Iterator[Document]:
    for bucket in SAMPLES.day(number, rng):
        yield {**bucket, "samples": [[Int64(it["time"] * 1000), it["val"]] for it in bucket["samples"]]}


def _several(number: int, rng: np.random.Generator) -> Iterator[Document]:
    """Yields samples of ten sensors in each document, sensor after sensor."""
    for bucket in SAMPLES.day(number, rng):
        samples = [{"sensor": f"s{i % 10}", **it} for i, it in enumerate(bucket["samples"])]
        yield {**bucket, "samples": samples}


def _milliseconds(number: int, rng: np.random.Generator) -> Iterator[Document]:
    for reading in READINGS.day(number, rng):
        yield {**reading, "d": Int64(reading["d"].timestamp() * 1000)}


def _texts(number: int, rng: np.random.Generator) -> Iterator[Document]:
    for reading in READINGS.day(number, rng):
        yield {**reading, "d": reading["d"].strftime("%Y-%m-%dT%H:%M:%SZ")}


def _german(number: int, rng: np.random.Generator) -> Iterator[Document]:
    for bucket in MINUTES.day(number, rng):
        yield {**bucket, "d": bucket["d"].strftime("%d.%m.%Y %H:%M")}


def _stamps(number: int, rng: np.random.Generator) -> Iterator[Document]:
    for bucket in MINUTES.day(number, rng):
        yield {**bucket, "d": bucket["d"].strftime("%Y-%m-%d %H:%M")}


def _side_by_side(number: int, rng: np.random.Generator) -> Iterator[Document]:
    """Yields the readings of each minute as an array of times beside one of values."""
    for bucket in MINUTES.day(number, rng):
        times = [bucket["d"] + timedelta(seconds=second) for second in range(60)]
        yield {**bucket, "last": times[-1], "t": times, "p": list(bucket["p"].values())}


def _local_days(number: int, rng: np.random.Generator) -> Iterator[Document]:
    """Yields a document for each series and local day, with a place for each five seconds. Each second of
    five is a series of its own."""
    start = datetime(2018, 6, 4, tzinfo=_ZONE) + timedelta(days=number)
    held: dict[str, list[float]] = {}
    for bucket in MINUTES.day(number, rng):
        held.setdefault(bucket["symbol"], []).extend(bucket["p"].values())
    for symbol, values in held.items():
        for second in range(5):
            yield {"symbol": f"{symbol}.{second}", "d": start.astimezone(UTC), "p": values[second::5]}


def _german_samples(number: int, rng: np.random.Generator) -> Iterator[Document]:
    for bucket in SAMPLES.day(number, rng):
        samples = [
            {"time": datetime.fromtimestamp(it["time"], UTC).strftime(_GERMAN), "val": it["val"]}
            for it in bucket["samples"]
        ]
        yield {**bucket, "samples": samples}


def _attributes(number: int, rng: np.random.Generator) -> Iterator[Document]:
    for reading in READINGS.day(number, rng):
        yield {**reading, "attrs": [{"k": "unit", "v": "USD"}, {"k": "p", "v": reading.pop("p")}]}


_UNENDED = {key: value for key, value in SAMPLE_KEYS.items() if key != "end_field"}
_PAIRS = {key: value for key, value in SAMPLE_KEYS.items() if key != "sample_time_field"}
_PAIRS |= {"samples_as": "pairs", "sample_time_unit": "ms"}
_SEVERAL = {**SAMPLE_KEYS, "series_fields": ["deviceid", "sensorid", "samples.*.sensor"]}
_IDENTIFIED = {**SLOT_KEYS, "time_field": "_id.d", "series_fields": ["_id.symbol"]}
_NESTED = {**_HOUR_KEYS, "slot_levels": ["minute", "second"]}

_TENS = {**SLOT_KEYS, "slot": "1s", "span": "10m", "first_slot": 1}

_SIDE_BY_SIDE = {
    **{key: SLOT_KEYS[key] for key in ("series_fields", "value_fields")},
    **{"model": "samples", "samples_as": "arrays", "sample_time_field": "t", "sample_time_unit": "date"},
    **{"start_field": "d", "end_field": "last", "time_unit": "date"},
}
_LOCAL = {**SLOT_KEYS, "slot": "5s", "span": "day", "timezone": str(_ZONE)}
_GERMAN_SAMPLES = {**SAMPLE_KEYS, "sample_time_format": _GERMAN}

#: Those whose times are text, which takes longer.
TEXTS = {"minute buckets, times as text that sorts", "minute buckets, times as text that does not sort"}
TEXTS |= {"one-reading documents, times as text", "sample buckets, times as text"}
#: Each, and the one that it is like.
FURTHER = {
    Workload("hours, seconds in minutes", _nested, _NESTED): MINUTES,
    Workload("hours, seconds 0000 to 3599", _seconds, _HOUR_KEYS): MINUTES,
    Workload("hours, seconds by place", _places, _HOUR_KEYS): MINUTES,
    Workload("ten-minute buckets, seconds from 1", _tens, _TENS): MINUTES,
    Workload(
        "minute buckets, a sub-document a slot", _inside, {**SLOT_KEYS, "value_fields": ["v.*.p"]}
    ): MINUTES,
    Workload(
        "minute buckets, times as text that sorts",
        _stamps,
        {**SLOT_KEYS, "time_format": "%Y-%m-%d %H:%M", "timezone": "Atlantic/Reykjavik"},
    ): MINUTES,
    Workload(
        "minute buckets, times as text that does not sort",
        _german,
        {**SLOT_KEYS, "time_format": "%d.%m.%Y %H:%M"},
    ): MINUTES,
    Workload("parallel arrays, a minute each", _side_by_side, _SIDE_BY_SIDE): MINUTES,
    Workload("local days, slots of 5 s", _local_days, _LOCAL): MINUTES,
    Workload("sample buckets, times as text", _german_samples, _GERMAN_SAMPLES, SAMPLE_INDEXES): SAMPLES,
    Workload("minute buckets, fields in _id", _identified, _IDENTIFIED, (("_id.d",),)): MINUTES,
    Workload("sample buckets without a last time", _unended, _UNENDED, (("first",),)): SAMPLES,
    Workload("sample buckets of pairs", _pairs, _PAIRS, SAMPLE_INDEXES): SAMPLES,
    Workload("sample buckets of several series", _several, _SEVERAL, SAMPLE_INDEXES): SAMPLES,
    Workload(
        "one-reading documents, times in ms", _milliseconds, {**READING_KEYS, "time_unit": "ms"}
    ): READINGS,
    Workload("one-reading documents, times as text", _texts, {**READING_KEYS, "time_unit": "iso"}): READINGS,
    Workload(
        "one-reading documents, attributes", _attributes, {**READING_KEYS, "attributes_field": "attrs"}
    ): READINGS,
}
