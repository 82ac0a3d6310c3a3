"""Further shapes of documents that people write, made of real readings: each with the keys that say it.

`values` tells where the value fields lie: {fields} stands for their names, {starred} for the same inside a
slot.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from bson import ObjectId
from bson.int64 import Int64

from tests.acceptance.readings import Document, Reading

Make = Callable[[list[Reading]], Iterator[Document]]


class Shape(NamedTuple):
    keys: str
    make: Make
    series: str = "rig"
    values: str = "{fields}"


def _grouped(readings: list[Reading], **parts: int) -> Iterator[tuple[str, datetime, list[Reading]]]:
    """By series and a span that begins where these parts of the time do."""

    def key(reading: Reading) -> tuple[str, datetime]:
        return reading.series, reading.time.replace(**parts)  # type: ignore[arg-type]

    for (series, start), group in itertools.groupby(sorted(readings, key=lambda it: it[:2]), key):
        yield series, start, list(group)


_HOUR, _DAY = {"minute": 0, "second": 0}, {"hour": 0, "minute": 0, "second": 0}


def _by_field(held: list[Reading], key: Callable[[datetime], tuple[str, ...]]) -> Document:
    """Of each field: slots inside slots."""
    found: Document = {name: {} for name in held[0].values}
    for reading in held:
        *outer, last = key(reading.time)
        for name, value in reading.values.items():
            into = found[name]
            for part in outer:
                into = into.setdefault(part, {})
            into[last] = value
    return found


def nested(readings: list[Reading]) -> Iterator[Document]:
    """An hour: minutes, and seconds in them."""
    for series, start, held in _grouped(readings, **_HOUR):
        slots = _by_field(held, lambda time: (str(time.minute), str(time.second)))
        yield {"_id": ObjectId(), "rig": series, "at": start, **slots}


def padded(readings: list[Reading]) -> Iterator[Document]:
    """A day: hours and minutes and seconds, each of two digits."""
    for series, start, held in _grouped(readings, **_DAY):
        slots = _by_field(held, lambda time: (f"{time:%H}", f"{time:%M}", f"{time:%S}"))
        yield {"_id": ObjectId(), "rig": series, "at": start, **slots}


def seconds(readings: list[Reading]) -> Iterator[Document]:
    """An hour: seconds 0 to 3599."""
    for series, start, held in _grouped(readings, **_HOUR):
        slots = _by_field(held, lambda time: (str(time.minute * 60 + time.second),))
        yield {"_id": ObjectId(), "rig": series, "at": start, **slots}


def hours(readings: list[Reading]) -> Iterator[Document]:
    """A day: hours, of each its first reading."""
    first = [held[0] for _, _, held in _grouped(readings, **_HOUR)]
    whole = [reading._replace(time=reading.time.replace(minute=0, second=0)) for reading in first]
    for series, start, held in _grouped(whole, **_DAY):
        yield {
            "_id": ObjectId(),
            "rig": series,
            "at": start,
            **_by_field(held, lambda time: (str(time.hour),)),
        }


def places(readings: list[Reading]) -> Iterator[Document]:
    """An hour: seconds by their place in an array, null where there is none."""
    for series, start, held in _grouped(readings, **_HOUR):
        arrays: dict[str, list[float | None]] = {name: [None] * 3600 for name in held[0].values}
        for reading in held:
            for name, value in reading.values.items():
                arrays[name][reading.time.minute * 60 + reading.time.second] = value
        yield {"_id": ObjectId(), "rig": series, "at": start, **arrays}


def inside(readings: list[Reading]) -> Iterator[Document]:
    """An hour: seconds, each a sub-document."""
    for series, start, held in _grouped(readings, **_HOUR):
        slots = {str(it.time.minute * 60 + it.time.second): dict(it.values) for it in held}
        yield {"_id": ObjectId(), "rig": series, "at": start, "v": slots}


def unended(readings: list[Reading]) -> Iterator[Document]:
    """Samples of an hour, without a field for the last."""
    for series, start, held in _grouped(readings, **_HOUR):
        samples = [{"time": it.time, **it.values} for it in held]
        yield {"_id": ObjectId(), "rig": series, "start": start, "samples": samples}


def pairs(readings: list[Reading]) -> Iterator[Document]:
    """Samples of an hour as [ms, values…]."""
    for series, start, held in _grouped(readings, **_HOUR):
        samples = [[_ms(it.time), *it.values.values()] for it in held]
        last = held[-1].time
        yield {"_id": ObjectId(), "rig": series, "start": start, "end": last, "samples": samples}


def unended_pairs(readings: list[Reading]) -> Iterator[Document]:
    for document in pairs(readings):
        del document["end"]
        yield document


def _ms(time: datetime) -> Int64:
    return Int64(int(time.timestamp()) * 1000)


def epoch_ms(readings: list[Reading]) -> Iterator[Document]:
    for it in readings:
        yield {"_id": ObjectId(), "rig": it.series, "at": _ms(it.time), **it.values}


def epoch_ns(readings: list[Reading]) -> Iterator[Document]:
    for series, start, held in _grouped(readings, **_HOUR):
        samples = [{"time": Int64(_ms(it.time) * 1_000_000), **it.values} for it in held]
        first, last = (Int64(_ms(time) * 1000) for time in (start, held[-1].time))
        yield {"_id": ObjectId(), "rig": series, "start": first, "end": last, "samples": samples}


def iso(readings: list[Reading]) -> Iterator[Document]:
    """Text, with an offset from UTC in every other series."""
    for it in readings:
        ahead = timedelta(hours=2) if len(it.series) % 2 else timedelta(0)
        text = (it.time + ahead).strftime("%Y-%m-%dT%H:%M:%S") + ("+02:00" if ahead else "Z")
        yield {"_id": ObjectId(), "rig": it.series, "at": text, **it.values}


def attributes(readings: list[Reading]) -> Iterator[Document]:
    for it in readings:
        held = [{"k": name, "v": value} for name, value in it.values.items()]
        yield {"_id": ObjectId(), "rig": it.series, "at": it.time, "attrs": [{"k": "unit", "v": "C"}, *held]}


def several(readings: list[Reading]) -> Iterator[Document]:
    """All that was measured in an hour, whatever measured it."""
    by_hour: dict[datetime, list[Reading]] = defaultdict(list)
    for it in sorted(readings, key=lambda reading: (reading.time, reading.series)):
        by_hour[it.time.replace(minute=0, second=0)].append(it)
    for start, held in by_hour.items():
        samples = [{"rig": it.series, "time": it.time, **it.values} for it in held]
        yield {"_id": ObjectId(), "start": start, "end": held[-1].time, "samples": samples}


def identified(readings: list[Reading]) -> Iterator[Document]:
    """Series and start lie in `_id`."""
    for document in seconds(readings):
        del document["_id"]
        yield {"_id": {"rig": document.pop("rig"), "at": document.pop("at")}, **document}


def identified_readings(readings: list[Reading]) -> Iterator[Document]:
    seen = set()
    for it in readings:
        if (it.series, it.time) not in seen:
            seen.add((it.series, it.time))
            yield {"_id": {"rig": it.series, "at": it.time}, **it.values}


_SLOTS = 'model = "slots"\ntime_field = "at"\n'
_READING = 'model = "reading"\ntime_field = "at"\n'
_SAMPLES = 'model = "samples"\nstart_field = "start"\nsamples_field = "samples"\n'
_TIMED = f'{_SAMPLES}sample_time_field = "time"\n'
SHAPES = {
    "nested": Shape(_SLOTS + 'slot_levels = ["minute", "second"]', nested),
    "padded": Shape(_SLOTS + 'slot_levels = ["hour", "minute", "second"]', padded),
    "seconds": Shape(_SLOTS + 'slot_levels = ["second"]\nspan = "hour"', seconds),
    "hours": Shape(_SLOTS + 'slot_levels = ["hour"]', hours),
    "places": Shape(_SLOTS + 'slot_levels = ["second"]\nspan = "hour"', places),
    "inside": Shape(_SLOTS + 'slot_levels = ["second"]\nspan = "hour"', inside, values="{starred}"),
    "unended": Shape(_TIMED, unended),
    "pairs": Shape(_SAMPLES + 'end_field = "end"\nsamples_as = "pairs"\nsample_time_unit = "ms"', pairs),
    "unended_pairs": Shape(_SAMPLES + 'samples_as = "pairs"\nsample_time_unit = "ms"', unended_pairs),
    "epoch_ms": Shape(_READING + 'time_unit = "ms"', epoch_ms),
    "epoch_ns": Shape(_TIMED + 'end_field = "end"\ntime_unit = "us"\nsample_time_unit = "ns"', epoch_ns),
    "iso": Shape(_READING + 'time_unit = "iso"', iso),
    "attributes": Shape(_READING + 'attributes_field = "attrs"', attributes),
    "several": Shape(_TIMED + 'end_field = "end"', several, "samples.*.rig"),
    "identified": Shape(
        'model = "slots"\ntime_field = "_id.at"\nslot_levels = ["second"]\nspan = "hour"',
        identified,
        "_id.rig",
    ),
    "identified_readings": Shape('model = "reading"\ntime_field = "_id.at"', identified_readings, "_id.rig"),
}
