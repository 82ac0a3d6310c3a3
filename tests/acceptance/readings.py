"""Real readings, as a CSV tells them, and the buckets of every model that hold them."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from bson import ObjectId

Document = dict[str, Any]


class Reading(NamedTuple):
    series: str
    time: datetime
    values: Mapping[str, float]


@cache
def skab(folder: Path) -> list[Reading]:
    """Eight sensors at one second; the file's name is the series."""
    found = []
    for path in sorted((folder / "skab").glob("*.csv")):
        with path.open(newline="") as file:
            for row in csv.DictReader(file, delimiter=";"):
                time = datetime.fromisoformat(row.pop("datetime")).replace(tzinfo=UTC)
                found.append(Reading(path.stem, time, {name: float(text) for name, text in row.items()}))
    return found


@cache
def nab(folder: Path) -> list[Reading]:
    """Metrics at five minutes, irregular, some instants twice."""
    found = []
    for path in sorted((folder / "nab").glob("*.csv")):
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                time = datetime.fromisoformat(row["timestamp"]).replace(tzinfo=UTC)
                found.append(Reading(path.stem, time, {"value": float(row["value"])}))
    return found


def as_readings(readings: list[Reading]) -> Iterator[Document]:
    for reading in readings:
        yield {"_id": ObjectId(), "rig": reading.series, "at": reading.time, **reading.values}


def as_slots(readings: list[Reading]) -> Iterator[Document]:
    def minute(reading: Reading) -> tuple[str, datetime]:
        return reading.series, reading.time.replace(second=0)

    for (series, start), group in itertools.groupby(readings, minute):
        held = list(group)
        slots = {name: {str(r.time.second): r.values[name] for r in held} for name in held[0].values}
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
