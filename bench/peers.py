"""What others would do, written as a competent user would. Each is an action: see `bench.measuring`, which
gives it the memory settings that any script has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.testbed import Testbed
from bench.workloads import FIRST_DAY

Document = dict[str, Any]
_SLOTS = [str(second) for second in range(60)]


class Day(NamedTuple):
    """A day of a workload: [start, end)."""

    start: datetime
    end: datetime

    @property
    def query(self) -> Document:
        """Returns the query for its minute buckets."""
        return {"d": {"$gte": self.start, "$lt": self.end}}


def days(testbed: Testbed) -> Iterator[Day]:
    """Yields the days of a workload."""
    for number in range(testbed.days):
        start = FIRST_DAY + timedelta(days=number)
        yield Day(start, start + timedelta(days=1))


def write_parquet(testbed: Testbed, tables: Iterator[pa.Table]) -> None:
    """Writes a row group a table, or more."""
    writer = None
    for table in tables:
        writer = writer or pq.ParquetWriter(testbed.file, table.schema, compression="zstd")
        writer.write_table(table)
    assert writer is not None
    writer.close()


def _sorted(table: pa.Table) -> pa.Table:
    """Sorts by series and time."""
    return table.sort_by([(name, "ascending") for name in table.column_names[:-1]])


def rows_of_dicts(found: Iterable[Document]) -> pa.Table:
    """Returns a row a reading of minute buckets that pymongo has decoded, by series and time."""
    symbols: list[str] = []
    times: list[int] = []
    prices: list[float] = []
    for bucket in found:
        start, slots = int(bucket["d"].timestamp()) * 1000, bucket["p"]
        symbols += [bucket["symbol"]] * len(slots)
        times += [start + int(second) * 1000 for second in slots]
        prices += slots.values()
    time = pa.array(times, pa.timestamp("ms", tz="UTC"))
    return _sorted(pa.table({"symbol": symbols, "time": time, "p": prices}))


def rows_of_structs(testbed: Testbed, day: Day) -> pa.Table:
    """Returns a row a reading of minute buckets, by series and time: read into pymongoarrow's struct columns,
    one a slot, sorted as buckets, and made rows by numpy."""
    from pymongoarrow.api import Schema, find_arrow_all

    schema = Schema(
        {
            "symbol": pa.string(),
            "d": pa.timestamp("ms"),
            "p": pa.struct([(it, pa.float64()) for it in _SLOTS]),
        }
    )
    found = find_arrow_all(testbed.source, day.query, schema=schema)
    found = found.sort_by([("symbol", "ascending"), ("d", "ascending")])
    slots = found["p"].combine_chunks()
    prices = np.column_stack([slots.field(it).to_numpy(zero_copy_only=False) for it in _SLOTS]).ravel()
    starts = found["d"].cast(pa.int64()).to_numpy()
    times = (starts[:, None] + np.arange(60) * 1000).ravel()
    symbols = found["symbol"].combine_chunks().dictionary_encode()
    rows = pa.array(np.repeat(np.arange(len(starts)), 60))
    is_reading = pa.array(~np.isnan(prices))
    columns = pa.table(
        {
            "symbol": symbols.take(rows),
            "time": pa.array(times).cast(pa.timestamp("ms", tz="UTC")),
            "p": pa.array(prices),
        }
    )
    return columns.filter(is_reading)


def minutes_by_pymongo(testbed: Testbed) -> None:
    """Reads slots into pymongo's dicts, and writes them through lists with pyarrow."""
    write_parquet(testbed, (rows_of_dicts(testbed.source.find(day.query)) for day in days(testbed)))


def minutes_by_pymongoarrow(testbed: Testbed) -> None:
    """Reads slots with pymongoarrow, and writes them with pyarrow."""
    write_parquet(testbed, (rows_of_structs(testbed, day) for day in days(testbed)))


def samples_by_pymongo(testbed: Testbed) -> None:
    """Writes samples as Parquet, decoded by pymongo."""

    def table(found: Iterator[Document]) -> pa.Table:
        devices: list[int] = []
        sensors: list[int] = []
        times: list[int] = []
        values: list[float | None] = []
        for bucket in found:
            samples = bucket["samples"]
            devices += [bucket["deviceid"]] * len(samples)
            sensors += [bucket["sensorid"]] * len(samples)
            times += [sample["time"] * 1000 for sample in samples]
            values += [sample.get("val") for sample in samples]
        time = pa.array(times, pa.timestamp("ms", tz="UTC"))
        return _sorted(pa.table({"deviceid": devices, "sensorid": sensors, "time": time, "val": values}))

    spans = ((int(day.start.timestamp()), int(day.end.timestamp())) for day in days(testbed))
    write_parquet(testbed, (table(testbed.source.find({"first": {"$gte": a, "$lt": b}})) for a, b in spans))


_HOUR: Document = {"$dateTrunc": {"date": "$d", "unit": "hour"}}


def _merge(testbed: Testbed, hours: list[Document], target: str) -> None:
    """Hours from the readings, then days from the hours."""
    testbed.source.aggregate([*hours, {"$merge": target}], allowDiskUse=True)
    days: list[Document] = [
        {
            "$group": {
                "_id": {
                    "symbol": "$_id.symbol",
                    "start": {"$dateTrunc": {"date": "$_id.start", "unit": "day"}},
                },
                "count": {"$sum": "$count"},
                "sum": {"$sum": "$sum"},
                "squares": {"$sum": "$squares"},
                "min": {"$min": "$min"},
                "max": {"$max": "$max"},
                "first": {"$first": "$first"},
                "last": {"$last": "$last"},
            }
        },
        {"$merge": f"{target}_daily"},
    ]
    testbed.database[target].aggregate([{"$sort": {"_id": 1}}, *days], allowDiskUse=True)


def _group(value: str) -> Document:
    """Returns a stage that groups readings in the order in which they were written, so that first and last
    need no sort."""
    return {
        "$group": {
            "_id": {"symbol": "$symbol", "start": _HOUR},
            "count": {"$sum": 1},
            "sum": {"$sum": value},
            "squares": {"$sum": {"$multiply": [value, value]}},
            "min": {"$min": value},
            "max": {"$max": value},
            "first": {"$first": value},
            "last": {"$last": value},
        }
    }


def minutes_unwound(testbed: Testbed) -> None:
    """Groups slots by $unwind, $group, $merge. Without percentiles: the server has had them since version
    7."""
    slots: list[Document] = [
        {"$project": {"symbol": 1, "d": 1, "p": {"$objectToArray": "$p"}}},
        {"$unwind": "$p"},
    ]
    _merge(testbed, [*slots, _group("$p.v")], "unwound")


def minutes_mapped(testbed: Testbed) -> None:
    """Groups slots by the best pipeline we found: each bucket's figures by $map over its slots, then
    $group."""
    values: Document = {"$map": {"input": {"$objectToArray": "$p"}, "in": "$$this.v"}}
    squares: Document = {"$map": {"input": "$v", "in": {"$multiply": ["$$this", "$$this"]}}}
    figures: Document = {
        "$project": {
            "symbol": 1,
            "d": 1,
            "count": {"$size": "$v"},
            "sum": {"$sum": "$v"},
            "squares": {"$sum": squares},
            "min": {"$min": "$v"},
            "max": {"$max": "$v"},
            "first": {"$first": "$v"},
            "last": {"$last": "$v"},
        }
    }
    group = _group("$p.v")
    for name in ("count", "sum", "squares"):
        group["$group"][name] = {"$sum": f"${name}"}
    for name in ("min", "max", "first", "last"):
        group["$group"][name] = {f"${name}": f"${name}"}
    _merge(testbed, [{"$project": {"symbol": 1, "d": 1, "v": values}}, figures, group], "mapped")


def readings_grouped(testbed: Testbed) -> None:
    """Groups readings into summaries in an aggregation pipeline."""
    _merge(testbed, [_group("$p")], "grouped")


def averages_in_windows(testbed: Testbed) -> None:
    """Averages by time, linear between readings, of each hour: each reading with the next one of its series
    by $setWindowFields. A step counts in the hour in which it begins."""
    slots: list[Document] = [
        {"$project": {"symbol": 1, "d": 1, "p": {"$objectToArray": "$p"}}},
        {"$unwind": "$p"},
        {"$set": {"d": {"$dateAdd": {"startDate": "$d", "unit": "second", "amount": {"$toInt": "$p.k"}}}}},
    ]
    following: Document = {
        name: {"$shift": {"output": value, "by": 1}} for name, value in (("then", "$d"), ("next", "$p.v"))
    }
    lasting: Document = {"$subtract": ["$then", "$d"]}
    area: Document = {"$multiply": [{"$avg": ["$p.v", "$next"]}, lasting]}
    pipeline: list[Document] = [
        *slots,
        {"$setWindowFields": {"partitionBy": "$symbol", "sortBy": {"d": 1}, "output": following}},
        {"$match": {"$expr": {"$lte": [lasting, 3_600_000]}}},
        {
            "$group": {
                "_id": {"symbol": "$symbol", "start": _HOUR},
                "area": {"$sum": area},
                "covered": {"$sum": lasting},
            }
        },
        {"$set": {"time_avg": {"$cond": ["$covered", {"$divide": ["$area", "$covered"]}, None]}}},
        {"$merge": "windows"},
    ]
    testbed.source.aggregate(pipeline, allowDiskUse=True)


def averages_by_duckdb(testbed: Testbed) -> None:
    """Averages by time, linear between readings, of each hour: over the Parquet of an archive, into a
    table. A step counts in the hour in which it begins."""
    import duckdb

    with duckdb.connect() as connection:
        connection.execute("SET enable_progress_bar = false")
        connection.execute(
            f"""
            CREATE TABLE windows AS
            WITH steps AS (
                SELECT symbol, time, p, lead(time) OVER w AS later, lead(p) OVER w AS following
                FROM read_parquet('{testbed.store}/copy/data/**/*.parquet')
                WINDOW w AS (PARTITION BY symbol ORDER BY time)
            )
            SELECT symbol, time_bucket(INTERVAL 1 HOUR, time) AS start,
                sum((p + following) / 2 * epoch_ms(later - time)) / sum(epoch_ms(later - time)) AS time_avg
            FROM steps WHERE later - time <= INTERVAL 1 HOUR
            GROUP BY ALL
            """
        )
