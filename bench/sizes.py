"""What summaries take, with their indexes: of few and of many readings each, of few series and of many."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pymongo import MongoClient
from pymongo.database import Database

from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.embedded import embedded_mongod
from bucketwise.jobs.core.stopping import Stop
from bucketwise.jobs.rollup import rollup

_START = datetime(2026, 3, 2, tzinfo=UTC)
_HOUR = timedelta(hours=1)
_BATCH_SIZE = 1_000
_POLICY = """
[policies.sensors]
collection = "sensors"
model = "samples"
series_fields = ["symbol"]
value_fields = ["p"]
samples_field = "samples"
sample_time_field = "d"
start_field = "first"
end_field = "last"
[policies.sensors.rollup]
hourly = "hourly"
daily = "daily"
percentiles = [50, 95, 99]
late_data = "scan"
"""
#: Of the second run.
_STATISTICS = ("count", "avg", "min", "max")


class Shape(NamedTuple):
    """So many series, hours of each, and readings an hour."""

    series: int
    hours: int
    readings: int


SHAPES = (Shape(10, 14 * 24, 12), Shape(10, 2 * 24, 3_600), Shape(10_000, 24, 12))


def measure(folder: Path | None) -> None:
    """Prints a table: bytes a summary, of documents as they are read, of files, and of indexes."""
    _row("series", "an hour", "statistics", "level", "document", "on disk", "indexes", "both")
    for shape in SHAPES:
        with (
            tempfile.TemporaryDirectory(prefix="bucketwise-bench-", dir=folder) as path,
            embedded_mongod(Path(path)) as mongod,
            MongoClient[dict[str, Any]](mongod.uri, tz_aware=True) as client,
        ):
            database = client["bench"]
            buckets = _buckets(shape)
            while some := list(islice(buckets, _BATCH_SIZE)):
                database["sensors"].insert_many(some)
            for name in ("first", "last"):
                database["sensors"].create_index(name)
            for names in ((), _STATISTICS):
                _roll_up(mongod.uri, Path(path), shape, names)
                for level in ("hourly", "daily"):
                    _show(database, shape, names, level)
                    database.drop_collection(level)
                database.drop_collection("bucketwise_progress")


def _buckets(shape: Shape) -> Iterator[dict[str, Any]]:
    """Yields a bucket of each series and hour: prices of two decimals, each near the one before."""
    chance = np.random.default_rng(7)
    step = _HOUR / shape.readings
    for hour in range(shape.hours):
        first = _START + hour * _HOUR
        times = [first + at * step for at in range(shape.readings)]
        for series in range(shape.series):
            walk = np.round(50 + np.cumsum(chance.integers(-20, 21, shape.readings)) / 100, 2)
            samples = [{"d": at, "p": price} for at, price in zip(times, walk.tolist(), strict=True)]
            yield {"symbol": f"SY{series:05}", "first": times[0], "last": times[-1], "samples": samples}


def _roll_up(uri: str, folder: Path, shape: Shape, names: Sequence[str]) -> None:
    path = folder / "bucketwise.toml"
    statistics = f"statistics = [{', '.join(f'{it!r}' for it in names)}]\n" if names else ""
    path.write_text(f'[mongodb]\nuri = "{uri}"\ndatabase = "bench"\n{_POLICY}{statistics}')
    now = _START + (shape.hours + 24) * _HOUR
    (result,) = rollup(Call("rollup", path, (), now, True, True, True, True, Stop(), environ={})).results
    if result.exit_code:
        raise RuntimeError(f"rollup: {result.error}")


def _show(database: Database[dict[str, Any]], shape: Shape, names: Sequence[str], level: str) -> None:
    database.client.admin.command("fsync")
    stats = database.command("collStats", level)
    document, on_disk, indexes = (
        stats[it] / stats["count"] for it in ("size", "storageSize", "totalIndexSize")
    )
    sizes = (document, on_disk, indexes, on_disk + indexes)
    told = ", ".join(names) or "all"
    _row(f"{shape.series:,}", f"{shape.readings:,}", told, level, *(f"{it:.0f} B" for it in sizes))


def _row(*cells: str) -> None:
    sys.stdout.write(f"| {' | '.join(cells)} |\n")
    sys.stdout.flush()
