"""The documents that are measured: regular ones of three bucket models, and irregular ones.

A workload is made of whole days, so that more readings are more days of the same series.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import bson
import numpy as np
from bson.int64 import Int64
from numpy.typing import NDArray

Document = dict[str, Any]
#: The documents of one day, given its number and a source of chance, in the order in which they are written.
Day = Callable[[int, np.random.Generator], Iterator[Document]]

FIRST_DAY = datetime(2018, 6, 4, tzinfo=UTC)
_SECONDS, _MINUTES = 60, 1440
_SLOTS = [str(second) for second in range(_SECONDS)]
_SYMBOLS = [f"SY{number:02}" for number in range(20)]
_SAMPLES = 200


@dataclass(frozen=True, eq=False)
class Workload:
    """A collection to measure: some days of documents, and the keys of a policy for them."""

    name: str  # and what its buckets are
    day: Day
    policy: Document
    indexes: tuple[tuple[str, ...], ...] = (("symbol", "d"), ("d",))

    @property
    def collection(self) -> str:
        """Returns the name of its collection."""
        return self.name.replace(" ", "_").replace(",", "")

    def days(self, readings: int) -> int:
        """Returns how many days hold about so many readings, at least one."""
        return max(1, round(readings / (len(_SYMBOLS) * _MINUTES * _SECONDS)))

    def documents(self, days: int) -> Iterator[bytes]:
        """Yields the documents, the same ones each time."""
        rng = np.random.default_rng(7)
        for number in range(days):
            for document in self.day(number, rng):
                identity = {} if "_id" in document else {"_id": bson.ObjectId()}
                yield bson.encode(identity | document)


def _prices(rng: np.random.Generator) -> NDArray[np.float64]:
    """Ticks of two decimals, a row a minute: each second goes on from the one before."""
    steps = rng.integers(-2, 3, size=_MINUTES * _SECONDS)
    return np.round(50.0 + np.cumsum(steps) / 100, 2).reshape(_MINUTES, _SECONDS)


def _minutes(
    number: int, rng: np.random.Generator, slots: Callable[[list[float]], Document], symbols: list[str]
) -> Iterator[Document]:
    """Yields a bucket of each symbol, minute by minute."""
    start = FIRST_DAY + timedelta(days=number)
    prices = [_prices(rng).tolist() for _ in symbols]
    for minute in range(_MINUTES):
        for symbol, rows in zip(symbols, prices, strict=True):
            yield {"p": slots(rows[minute]), "symbol": symbol, "d": start + timedelta(minutes=minute)}


def _full(values: list[float]) -> Document:
    return dict(zip(_SLOTS, values, strict=True))


def _regular(number: int, rng: np.random.Generator) -> Iterator[Document]:
    return _minutes(number, rng, _full, _SYMBOLS)


def _gaps(number: int, rng: np.random.Generator) -> Iterator[Document]:
    """Yields buckets in which every slot is missing with a chance of one in ten."""

    def slots(values: list[float]) -> Document:
        kept = rng.random(_SECONDS) > 0.1
        return {slot: value for slot, value, is_kept in zip(_SLOTS, values, kept, strict=True) if is_kept}

    return _minutes(number, rng, slots, _SYMBOLS)


def _upserted(number: int, rng: np.random.Generator) -> Iterator[Document]:
    """Yields buckets whose slots are in any order, as several writers set them."""

    def slots(values: list[float]) -> Document:
        return {_SLOTS[slot]: values[slot] for slot in rng.permutation(_SECONDS).tolist()}

    return _minutes(number, rng, slots, _SYMBOLS)


def _mixed(number: int, rng: np.random.Generator) -> Iterator[Document]:
    """Yields buckets with whole numbers as ints, as JavaScript drivers write them."""

    def slots(values: list[float]) -> Document:
        halves = [round(value * 2) / 2 for value in values]
        return {slot: int(it) if it.is_integer() else it for slot, it in zip(_SLOTS, halves, strict=True)}

    return _minutes(number, rng, slots, _SYMBOLS)


def _named(number: int, rng: np.random.Generator) -> Iterator[Document]:
    """Symbols of 1 to 20 letters."""
    return _minutes(number, rng, _full, ["X" * (length + 1) for length in range(len(_SYMBOLS))])


def _readings(number: int, rng: np.random.Generator) -> Iterator[Document]:
    start = FIRST_DAY + timedelta(days=number)
    prices = [_prices(rng).ravel().tolist() for _ in _SYMBOLS]
    # A tenth of the seconds: one document a reading is ten times the bytes.
    for second in range(0, _MINUTES * _SECONDS, 10):
        for symbol, row in zip(_SYMBOLS, prices, strict=True):
            yield {"symbol": symbol, "d": start + timedelta(seconds=second), "p": row[second]}


def _sampled(number: int, rng: np.random.Generator, *, sparse: bool) -> Iterator[Document]:
    """Yields buckets closed by size; where sparse, after fewer samples as well, and some samples hold no
    value."""
    epoch = int((FIRST_DAY + timedelta(days=number)).timestamp())
    walks = [_prices(rng).ravel().tolist() for _ in _SYMBOLS]
    at = 0
    while at < _MINUTES * _SECONDS:
        size = min(_SAMPLES, _MINUTES * _SECONDS - at)
        if sparse:
            size = min(size, int(rng.integers(100, _SAMPLES + 1)))
        for sensor, walk in enumerate(walks):
            samples = [{"val": walk[i], "time": epoch + i} for i in range(at, at + size)]
            if sparse:
                for i in np.flatnonzero(rng.random(size) < 0.05).tolist():
                    del samples[i]["val"]
            yield {
                "deviceid": 1234,
                "sensorid": sensor,
                "nsamples": size,
                "day": FIRST_DAY + timedelta(days=number),
                "first": epoch + at,
                "last": epoch + at + size - 1,
                "samples": samples,
            }
        at += size


def _samples(number: int, rng: np.random.Generator) -> Iterator[Document]:
    return _sampled(number, rng, sparse=False)


def _sparse(number: int, rng: np.random.Generator) -> Iterator[Document]:
    return _sampled(number, rng, sparse=True)


def _longs(number: int, rng: np.random.Generator) -> Iterator[Document]:
    """Yields buckets of doubles or of longs, at random; all slots of one alike."""

    def slots(values: list[float]) -> Document:
        if rng.random() < 0.5:
            return _full(values)
        return {slot: Int64(round(value * 100)) for slot, value in zip(_SLOTS, values, strict=True)}

    return _minutes(number, rng, slots, _SYMBOLS)


SLOT_KEYS: Document = {
    "model": "slots",
    "slot": "second",
    "time_field": "d",
    "series_fields": ["symbol"],
    "value_fields": ["p"],
}
READING_KEYS: Document = {
    "model": "reading",
    "time_field": "d",
    "series_fields": ["symbol"],
    "value_fields": ["p"],
}
SAMPLE_KEYS: Document = {
    "model": "samples",
    "series_fields": ["deviceid", "sensorid"],
    "value_fields": ["val"],
    "samples_field": "samples",
    "sample_time_field": "time",
    "start_field": "first",
    "end_field": "last",
    "count_field": "nsamples",
}
SAMPLE_INDEXES = (("deviceid", "sensorid", "last"), ("first",), ("last",))


def _counts(number: int, rng: np.random.Generator) -> Iterator[Document]:
    """Yields buckets of counters that begin again once a day or so."""
    start = FIRST_DAY + timedelta(days=number)
    for_each = []
    for _ in _SYMBOLS:
        counts = np.cumsum(rng.integers(0, 100, size=_MINUTES * _SECONDS))
        begins = int(rng.integers(0, len(counts)))
        counts[begins:] -= counts[begins]
        for_each.append(counts.astype(np.float64).reshape(_MINUTES, _SECONDS).tolist())
    for minute in range(_MINUTES):
        for symbol, rows in zip(_SYMBOLS, for_each, strict=True):
            yield {"p": _full(rows[minute]), "symbol": symbol, "d": start + timedelta(minutes=minute)}


def _states(number: int, rng: np.random.Generator) -> Iterator[Document]:
    """Yields buckets of five values, each of which mostly stays for some seconds."""

    def slots(values: list[float]) -> Document:
        return _full([float(round(value * 10) % 5) for value in values])

    return _minutes(number, rng, slots, _SYMBOLS)


def _words(number: int, rng: np.random.Generator) -> Iterator[Document]:
    """Yields buckets of five texts, each of which mostly stays for some seconds."""
    texts = ("off", "heating", "cooling", "fan only", "defrost")

    def slots(values: list[float]) -> Document:
        return dict(zip(_SLOTS, (texts[round(value * 10) % 5] for value in values), strict=True))

    return _minutes(number, rng, slots, _SYMBOLS)


def _of_kind(**field: str) -> Document:
    return {**SLOT_KEYS, "values": {"p": field}}


MINUTES = Workload("minute buckets", _regular, SLOT_KEYS)
READINGS = Workload("one-reading documents", _readings, READING_KEYS)
SAMPLES = Workload("sample buckets", _samples, SAMPLE_KEYS, indexes=SAMPLE_INDEXES)
GAPS = Workload("minute buckets, one slot in ten missing", _gaps, SLOT_KEYS)
MIXED = Workload("minute buckets, ints and doubles in each", _mixed, SLOT_KEYS)
NAMED = Workload("minute buckets, symbols of 1 to 20 letters", _named, SLOT_KEYS)
IRREGULAR = (
    GAPS,
    MIXED,
    Workload("minute buckets, some of doubles, some of longs", _longs, SLOT_KEYS),
    NAMED,
)
UPSERTED = Workload("minute buckets, slots in any order", _upserted, SLOT_KEYS)
SPARSE = Workload("sample buckets of 100 to 200, some without value", _sparse, SAMPLE_KEYS, SAMPLE_INDEXES)
COUNTS = Workload("minute buckets of counts", _counts, SLOT_KEYS)
STATES = Workload("minute buckets of five values", _states, SLOT_KEYS)
WORDS = Workload("minute buckets of five texts", _words, {**SLOT_KEYS, "nonnumeric_ok": ["p"]})
AVERAGES = Workload(
    "minute buckets, averages by time", _regular, _of_kind(time_weighted="linear", max_gap="1h")
)
_STATE = _of_kind(kind="state", max_gap="1h")
#: Where steps between readings are counted, and the same documents where they aren't.
STEPS = {
    Workload("minute buckets, a counter", _counts, _of_kind(kind="counter")): COUNTS,
    AVERAGES: MINUTES,
    Workload("minute buckets, five states", _states, _STATE): STATES,
    Workload("minute buckets, five states that are texts", _words, {**_STATE, "nonnumeric_ok": ["p"]}): WORDS,
}
