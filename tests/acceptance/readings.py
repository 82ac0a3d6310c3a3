"""Real readings, as a CSV tells them, and the buckets of every model that hold them."""

from __future__ import annotations

import csv
import gzip
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from bson import ObjectId

Document = dict[str, Any]
_TESTS = Path(__file__).resolve().parents[1]
_BUNDLED = _TESTS / "data" / "nab"
_SKAB = _TESTS.parents[1] / "shared" / "data" / "skab"


class Reading(NamedTuple):
    series: str
    time: datetime
    values: Mapping[str, float]


@dataclass(frozen=True)
class Origin:
    """Where readings come from; the file's name is the series."""

    name: str
    slot: str  # how much time a slot holds, so that there is a reading in most of them
    read: Callable[[], list[Reading]]
    read_irregular: Callable[[], list[Reading]] | None = None  # of other times than whole slots, too

    def of(self, kind: str) -> list[Reading]:
        """The readings for buckets of one kind."""
        irregular = self.read_irregular if kind == "hourly" else None
        return (irregular or self.read)()

    def first(self, number: int, series: int | None = None) -> Origin:
        """Returns so many readings of each series, the first ones; and so many series."""
        irregular = self.read_irregular and partial(_first, self.read_irregular, number, series)
        return Origin(self.name, self.slot, partial(_first, self.read, number, series), irregular)

    def kinds(self, some: Iterable[str]) -> list[str]:
        """Those that it has readings for."""
        return [kind for kind in some if kind != "hourly" or self.read_irregular]


@cache
def _first(read: Callable[[], list[Reading]], number: int, series: int | None) -> list[Reading]:
    by_series = itertools.islice(itertools.groupby(read(), lambda reading: reading.series), series)
    return [it for _, held in by_series for it in itertools.islice(held, number)]


@cache
def _nab(pattern: str) -> list[Reading]:
    """Metrics at five minutes; Twitter's are off the minute."""
    found = []
    for path in sorted(_BUNDLED.glob(pattern)):
        with gzip.open(path, "rt", newline="") as file:
            for row in csv.DictReader(file):
                time = datetime.fromisoformat(row["timestamp"]).replace(tzinfo=UTC)
                series = path.name.removesuffix(".csv.gz")
                found.append(Reading(series, time, {"value": float(row["value"])}))
    return found


@cache
def _skab() -> list[Reading]:
    """Eight sensors at one second."""
    found = []
    for path in sorted(_SKAB.glob("*.csv")):
        with path.open(newline="") as file:
            for row in csv.DictReader(file, delimiter=";"):
                time = datetime.fromisoformat(row.pop("datetime")).replace(tzinfo=UTC)
                found.append(Reading(path.stem, time, {name: float(text) for name, text in row.items()}))
    return found


NAB = Origin("nab", "minute", partial(_nab, "[er][cd][2s]_*.csv.gz"), partial(_nab, "*.csv.gz"))
SKAB = Origin("skab", "second", _skab)
#: What the repository holds; and more, of another licence, on machines that have it beside the repository.
ORIGINS = [NAB, SKAB] if _SKAB.is_dir() else [NAB]


def as_readings(readings: list[Reading]) -> Iterator[Document]:
    for reading in readings:
        yield {"_id": ObjectId(), "rig": reading.series, "at": reading.time, **reading.values}


def as_slots(readings: list[Reading], slot: str) -> Iterator[Document]:
    """Minutes of seconds, or hours of minutes."""

    def bucket(reading: Reading) -> tuple[str, datetime]:
        minute = reading.time.replace(second=0)
        return reading.series, minute if slot == "second" else minute.replace(minute=0)

    for (series, start), group in itertools.groupby(readings, bucket):
        held = [(str(getattr(reading.time, slot)), reading.values) for reading in group]
        slots = {name: {key: values[name] for key, values in held} for name in held[0][1]}
        yield {"_id": ObjectId(), **slots, "rig": series, "at": start}


def as_sized_samples(readings: list[Reading], size: int = 200) -> Iterator[Document]:
    """Closed by size, epoch seconds."""
    for series, group in itertools.groupby(readings, lambda reading: reading.series):
        held = list(group)
        for start in range(0, len(held), size):
            piece = held[start : start + size]
            yield {
                "_id": ObjectId(),
                "rig": series,
                "nsamples": len(piece),
                "first": int(piece[0].time.timestamp()),
                "last": int(piece[-1].time.timestamp()),
                "samples": [{**r.values, "time": int(r.time.timestamp())} for r in piece],
            }


def as_hourly_samples(readings: list[Reading]) -> Iterator[Document]:
    """Closed by time, dates, with the fields that the writer keeps up to date."""

    def hour(reading: Reading) -> tuple[str, datetime]:
        return reading.series, reading.time.replace(minute=0, second=0)

    for (series, start), group in itertools.groupby(sorted(readings, key=lambda r: r[:2]), hour):
        held = list(group)
        yield {
            "_id": ObjectId(),
            "rig": series,
            "start_date": start,
            "end_date": start + timedelta(hours=1),
            "transaction_count": len(held),
            "sum_value": sum(reading.values["value"] for reading in held),
            "measurements": [{"timestamp": r.time, "value": r.values["value"]} for r in held],
        }
