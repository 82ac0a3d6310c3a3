"""Buckets of every model as an application writes them, and the ledger of the readings that they hold.

A `Model` turns a bucket of the ledger into documents, and says where in time a reading may lie. It knows
nothing of how the suite reads them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import bson
from bson.int64 import Int64

Document = dict[str, Any]
Id = int | str
SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def instant(ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=ms)


def milliseconds(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(milliseconds=1)


class Reading(NamedTuple):
    at: int  # milliseconds since 1970
    values: tuple[Any, ...]  # a value field each: a number, a text, None


@dataclass
class Bucket:
    """`own`: the readings in the bucket's own document. `extras`: those of its overflow, by `_id`."""

    id: Id
    series: int
    start: int  # slots: of the minute or hour; samples: where its readings begin
    own: list[Reading]
    extras: dict[int, list[Reading]] = field(default_factory=dict)
    bounds: tuple[int, int] = (0, 0)  # samples: the times last written

    @property
    def readings(self) -> list[Reading]:
        return [*self.own, *(reading for _, some in sorted(self.extras.items()) for reading in some)]

    def copy(self) -> Bucket:
        extras = {name: list(some) for name, some in self.extras.items()}
        return Bucket(self.id, self.series, self.start, list(self.own), extras, self.bounds)


class Entry(NamedTuple):
    """A reading of the ledger, in the order in which the suite promises it: time, series, `_id`, place."""

    at: int
    series: int
    id: tuple[int, Id]  # numbers before texts, as MongoDB sorts them
    place: int
    values: tuple[Any, ...]


def entries(model: Model, buckets: Iterable[Bucket]) -> list[Entry]:
    return sorted(
        (
            Entry(reading.at, bucket.series, (isinstance(bucket.id, str), bucket.id), place, reading.values)
            for bucket in buckets
            for place, reading in enumerate(bucket.readings)
            if model.is_reading(reading)
        ),
        key=lambda entry: entry[:4],
    )


@dataclass(frozen=True)
class Model:
    """A bucket model; by itself one document a reading. `step`: readings lie at multiples of it, ms."""

    name: str
    keys: str
    fields: tuple[str, ...] = ("p",)
    step: int = 250
    overflow: bool = False

    series = "dev"  # where it lies
    inside = ""  # in front of the value fields

    def toml(self, collection: str) -> str:
        values = ", ".join(f'"{self.inside}{name}"' for name in self.fields)
        overflow = (
            f'[policies.{collection}.overflow]\nflag_field = "more"\ncollection = "{collection}_more"\n'
            'ref_field = "of"\nsamples_field = "held"\n'
            if self.overflow
            else ""
        )
        return (
            f'[policies.{collection}]\ncollection = "{collection}"\n{self.keys}\n'
            f'series_fields = ["{self.series}"]\nvalue_fields = [{values}]\n'
            f"nonnumeric_ok = [{values}]\n{overflow}"
        )

    @property
    def holds_many(self) -> bool:
        return False

    def is_reading(self, _reading: Reading) -> bool:
        return True

    def time(self, start: int, tick: int) -> int:
        """Where the tick, 0 to 3599, of a bucket with this start lies: by itself, a second and a bit."""
        return start + tick * SECOND + tick % 4 * self.step

    def start(self, ms: int, _tick: int) -> int:
        return ms

    def put(self, some: list[Reading], reading: Reading) -> None:
        some.append(reading)

    def main(self, bucket: Bucket) -> Document:
        (reading,) = bucket.own
        values = dict(zip(self.fields, reading.values, strict=True))
        return {"_id": bucket.id, "dev": bucket.series, "d": instant(reading.at), **values}

    def more(self, bucket: Bucket) -> Iterator[Document]:
        """The overflow documents."""
        for name, some in bucket.extras.items():
            yield {"_id": name, "of": bucket.id, **self.held(bucket, name, some)}

    def held(self, bucket: Bucket, name: int, some: list[Reading]) -> Document:
        raise NotImplementedError


@dataclass(frozen=True)
class Slots(Model):
    """`step` is a second (a bucket is a minute) or a minute (a bucket is an hour)."""

    @property
    def holds_many(self) -> bool:
        return True

    def is_reading(self, reading: Reading) -> bool:
        return any(value is not None for value in reading.values)  # a null slot is none

    def time(self, start: int, tick: int) -> int:
        return start + (tick % 60 if self.step == SECOND else tick // 60) * self.step

    def start(self, ms: int, tick: int) -> int:
        hour = ms // HOUR * HOUR
        return hour + tick // 60 * MINUTE if self.step == SECOND else hour

    def put(self, some: list[Reading], reading: Reading) -> None:
        some[:] = sorted([it for it in some if it.at != reading.at] + [reading])

    def main(self, bucket: Bucket) -> Document:
        flag = {"more": True} if bucket.extras else {}
        return {
            "_id": bucket.id,
            **self.slots(bucket.start, bucket.own),
            "dev": bucket.series,
            "d": instant(bucket.start),
            **flag,
        }

    def slots(self, start: int, some: list[Reading]) -> Document:
        found: Document = {name: {} for name in self.fields}
        for reading in some:
            for name, value in zip(self.fields, reading.values, strict=True):
                found[name][str((reading.at - start) // self.step)] = value
        return found

    def held(self, bucket: Bucket, name: int, some: list[Reading]) -> Document:
        if name % 2:
            return self.slots(bucket.start, some)
        return {"held": [{"d": instant(it.at), self.fields[0]: it.values[0]} for it in some]}


@dataclass(frozen=True)
class Samples(Model):
    """Times are epoch seconds, or dates. The writer keeps bounds, count and sum up to date."""

    dates: bool = False

    @property
    def holds_many(self) -> bool:
        return True

    def time(self, start: int, tick: int) -> int:
        return start + tick * 5 * SECOND + tick % 4 * self.step  # five hours: buckets cross windows

    def stamp(self, ms: int) -> Any:
        if self.dates:
            return instant(ms)
        return ms / 1000 if ms % 1000 else ms // 1000

    def samples(self, some: list[Reading]) -> list[Document]:
        return [{"time": self.stamp(it.at), **dict(zip(self.fields, it.values, strict=True))} for it in some]

    def main(self, bucket: Bucket) -> Document:
        times = [reading.at for reading in bucket.readings]
        if times:
            bucket.bounds = min(times), max(times)
        bounds = bucket.bounds if self.dates else tuple(ms // 1000 * 1000 for ms in bucket.bounds)
        numbers = [it.values[0] for it in bucket.own if not isinstance(it.values[0], str | None)]
        return {
            "_id": bucket.id,
            "dev": bucket.series,
            "n": len(bucket.own),
            "sum": math.fsum(number for number in numbers if math.isfinite(number)),
            "first": self.stamp(bounds[0]),
            "last": self.stamp(bounds[1]),
            "held": self.samples(bucket.own),
            **({"more": 1} if bucket.extras else {}),
        }

    def held(self, _bucket: Bucket, _name: int, some: list[Reading]) -> Document:
        return {"held": self.samples(some)}


@dataclass(frozen=True)
class Milliseconds(Model):
    """Times are numbers."""

    def main(self, bucket: Bucket) -> Document:
        return {**super().main(bucket), "d": Int64(bucket.own[0].at)}


@dataclass(frozen=True)
class Texts(Model):
    """Times are text by clocks of several zones; values are attributes."""

    def main(self, bucket: Bucket) -> Document:
        (reading,) = bucket.own
        ahead = (0, 330, -480)[bucket.series % 3]
        clock = (instant(reading.at) + timedelta(minutes=ahead)).replace(tzinfo=None)
        zone = f"{'-' if ahead < 0 else '+'}{abs(ahead) // 60:02}:{abs(ahead) % 60:02}"
        held = [{"k": name, "v": it} for name, it in zip(self.fields, reading.values, strict=True)]
        text = clock.isoformat(timespec="milliseconds") + zone
        return {"_id": bucket.id, "dev": bucket.series, "d": text, "attrs": [{"k": "unit", "v": 1}, *held]}


@dataclass(frozen=True)
class Nested(Slots):
    """An hour: minutes, seconds in them, and a sub-document in each."""

    inside = "v.*."

    def time(self, start: int, tick: int) -> int:
        return start + tick * SECOND

    def start(self, ms: int, _tick: int) -> int:
        return ms // HOUR * HOUR

    def slots(self, start: int, some: list[Reading]) -> Document:
        found: Document = {}
        for reading in some:
            minute, second = divmod((reading.at - start) // SECOND, 60)
            values = dict(zip(self.fields, reading.values, strict=True))
            found.setdefault(f"{minute:02}", {})[str(second)] = values
        return {"v": found}


@dataclass(frozen=True)
class Unended(Samples):
    """No field tells the last time, and each sample tells its series."""

    dates: bool = True
    series = "held.*.dev"

    def main(self, bucket: Bucket) -> Document:
        document = super().main(bucket)
        del document["last"], document["dev"]
        return {**document, "held": [{**sample, "dev": bucket.series} for sample in document["held"]]}


@dataclass(frozen=True)
class Pairs(Samples):
    """Samples are arrays of milliseconds and values."""

    def samples(self, some: list[Reading]) -> list[Any]:
        return [[Int64(it.at), *it.values] for it in some]


_SAMPLES = (
    'model = "samples"\nsamples_field = "held"\nsample_time_field = "time"\nstart_field = "first"\n'
    'end_field = "last"\ncount_field = "n"\nsum_fields = {p = "sum"}'
)
_SECONDS = 'model = "slots"\nsparse_ok = true\nslot = "second"\ntime_field = "d"'
_MINUTES = 'model = "slots"\nsparse_ok = true\nslot = "minute"\ntime_field = "d"'
_NESTED = 'model = "slots"\nsparse_ok = true\nslot_levels = ["minute", "second"]\ntime_field = "d"'
_TEXTS = 'model = "reading"\ntime_field = "d"\ntime_unit = "iso"\nattributes_field = "attrs"'
_PAIRS = _SAMPLES.replace('sample_time_field = "time"', 'samples_as = "pairs"\nsample_time_unit = "ms"')
MODELS = {
    model.name: model
    for model in (
        Model("reading", 'model = "reading"\ntime_field = "d"', fields=("p", "q")),
        Slots("slots-second", _SECONDS, fields=("p", "q"), step=SECOND),
        Slots("slots-minute", _MINUTES, step=MINUTE),
        Slots("slots-overflow", _SECONDS, step=SECOND, overflow=True),
        Samples("samples-seconds", _SAMPLES, fields=("p", "q")),
        Samples("samples-dates", _SAMPLES, dates=True),
        Samples("samples-overflow", _SAMPLES, overflow=True, dates=True),
        Milliseconds("reading-ms", 'model = "reading"\ntime_field = "d"\ntime_unit = "ms"'),
        Texts("reading-iso", _TEXTS, fields=("p", "q")),
        Nested("slots-nested", _NESTED, fields=("p", "q"), step=SECOND),
        Unended("samples-unended", _SAMPLES.replace('end_field = "last"\n', ""), fields=("p", "q")),
        Pairs("samples-pairs", _PAIRS, fields=("p", "q")),
        Pairs("samples-pairs-unended", _PAIRS.replace('end_field = "last"\n', "")),
        Model("timeseries", 'model = "timeseries"\ntime_field = "d"', fields=("p", "q")),
    )
}


def update(before: Document, after: Document) -> Document:
    """The update that a writer would send for the difference: single slots, pushed samples, fields."""
    found: dict[str, Document] = {"$set": {}, "$unset": {}, "$push": {}}
    _differ(before, after, "", found)
    return {name: operations for name, operations in found.items() if operations}


def _differ(
    before: Mapping[str, Any], after: Mapping[str, Any], path: str, found: dict[str, Document]
) -> None:
    for key in {**before, **after}:
        old, new = before.get(key), after.get(key)
        if key not in after:
            found["$unset"][path + key] = ""
        elif key in before and bson.encode({"": old}) == bson.encode({"": new}):
            continue
        elif isinstance(old, dict) and isinstance(new, dict):
            _differ(old, new, f"{path}{key}.", found)
        elif isinstance(old, list) and isinstance(new, list) and new[: len(old)] == old:
            found["$push"][path + key] = {"$each": new[len(old) :]}
        else:
            found["$set"][path + key] = new
