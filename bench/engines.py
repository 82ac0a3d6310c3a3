"""What people do with engines beside MongoDB, to the same summaries and the same Parquet of minute buckets, a
day at a time. Each is an action: see `bench.measuring`, for which these are scripts.

Their percentiles are exact, where ours are estimates.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.peers import Day, days, rows_of_dicts, rows_of_structs, write_parquet
from bench.testbed import Testbed

_QUANTILES = [0.5, 0.95, 0.99]
#: The levels, with the names that the engines have for their windows.
LEVELS = {"hourly_by": "hour", "daily_by": "day"}


class Engine(ABC):
    """The readings of one day, in an engine."""

    @abstractmethod
    def summaries(self, unit: str) -> pa.Table:
        """Returns a row each series and window."""

    @abstractmethod
    def rows(self) -> pa.Table:
        """Returns a row a reading, by series and time."""

    @abstractmethod
    def close(self) -> None:
        """Gives up what the engine holds."""


def _summarize(testbed: Testbed, load: Callable[[Testbed, Day], Engine], day: Day) -> None:
    with closing(load(testbed, day)) as engine:
        for level, unit in LEVELS.items():
            found = engine.summaries(unit).to_pylist()
            ids = [{"symbol": it.pop("symbol"), "start": it.pop("start")} for it in found]
            documents = [{"_id": key, **it} for key, it in zip(ids, found, strict=True)]
            testbed.database[level].insert_many(documents, ordered=False)


def _rows(testbed: Testbed, load: Callable[[Testbed, Day], Engine], day: Day) -> pa.Table:
    with closing(load(testbed, day)) as engine:
        return engine.rows()


def _exported(testbed: Testbed, day: Day) -> Path:
    """Writes a day as mongoexport does: a line of extended JSON a document."""
    from bson.json_util import RELAXED_JSON_OPTIONS, dumps

    path = testbed.folder / "exported.json"
    with path.open("w") as file:
        for document in testbed.source.find(day.query):
            file.write(dumps(document, json_options=RELAXED_JSON_OPTIONS) + "\n")
    return path


class _DuckDB(Engine):
    def __init__(self, rows: str, given: pa.Table | None = None) -> None:
        """`rows`: a query, which may read `given`."""
        import duckdb

        self._connection = duckdb.connect()
        self._connection.execute("SET TimeZone = 'UTC'")
        if given is not None:
            self._connection.register("given", given)
        self._connection.execute(f"CREATE TABLE readings AS {rows}")

    def summaries(self, unit: str) -> pa.Table:
        return self._connection.execute(
            f"""
            SELECT symbol, date_trunc('{unit}', time) AS start, count(*) AS count, sum(p) AS sum,
                sum(p * p) AS squares, min(p) AS min, max(p) AS max, arg_min(p, time) AS first,
                arg_max(p, time) AS last, quantile_cont(p, {_QUANTILES}) AS percentiles
            FROM readings GROUP BY ALL
            """
        ).to_arrow_table()

    def rows(self) -> pa.Table:
        return self._connection.execute("FROM readings ORDER BY symbol, time").to_arrow_table()

    def close(self) -> None:
        self._connection.close()


def _duckdb_json(testbed: Testbed, day: Day) -> Engine:
    return _DuckDB(
        f"""
        SELECT symbol, start + to_seconds(unnest(map_keys(p))::INTEGER) AS time, unnest(map_values(p)) AS p
        FROM (
            SELECT symbol, d['$date']::TIMESTAMPTZ AS start, p
            FROM read_json('{_exported(testbed, day)}', format = 'newline_delimited',
                columns = {{symbol: 'VARCHAR', d: 'MAP(VARCHAR, VARCHAR)', p: 'MAP(VARCHAR, DOUBLE)'}})
        )
        """
    )


def _duckdb_bson(testbed: Testbed, day: Day) -> Engine:
    return _DuckDB("FROM given", rows_of_dicts(testbed.source.find(day.query)))


class _Chdb(Engine):
    """ClickHouse within the process."""

    def __init__(self, testbed: Testbed, day: Day) -> None:
        session: Any = import_module("chdb.session")
        self._session = session.Session()
        columns = "symbol String, d Tuple(`$date` String), p Map(String, Float64)"
        self._session.query("CREATE DATABASE IF NOT EXISTS bench ENGINE = Atomic")
        self._session.query("DROP TABLE IF EXISTS bench.readings SYNC")
        self._session.query(
            f"""
            CREATE TABLE bench.readings ENGINE = Memory AS
            SELECT symbol, addSeconds(start, toUInt8(second)) AS time, price AS p
            FROM (
                SELECT symbol, parseDateTime64BestEffort(d.1, 3, 'UTC') AS start, p AS slots
                FROM file('{_exported(testbed, day)}', 'JSONEachRow', '{columns}')
            )
            ARRAY JOIN mapKeys(slots) AS second, mapValues(slots) AS price
            """
        )

    def _table(self, query: str) -> pa.Table:
        read = self._session.query(f"{query} SETTINGS output_format_arrow_string_as_string = 1", "Arrow")
        return pa.ipc.open_file(pa.py_buffer(read.bytes())).read_all()

    def summaries(self, unit: str) -> pa.Table:
        return self._table(
            f"""
            SELECT symbol, toDateTime64(date_trunc('{unit}', time), 3, 'UTC') AS start, count() AS count,
                sum(p) AS sum, sum(p * p) AS squares, min(p) AS min, max(p) AS max,
                argMin(p, time) AS first, argMax(p, time) AS last,
                quantilesExactInclusive({", ".join(map(str, _QUANTILES))})(p) AS percentiles
            FROM bench.readings GROUP BY symbol, start
            """
        )

    def rows(self) -> pa.Table:
        return self._table("SELECT * FROM bench.readings ORDER BY symbol, time")

    def close(self) -> None:
        self._session.close()


class _Polars(Engine):
    def __init__(self, testbed: Testbed, day: Day) -> None:
        import polars as pl

        read = pl.from_arrow(rows_of_structs(testbed, day))
        assert isinstance(read, pl.DataFrame)
        self._readings = read

    def summaries(self, unit: str) -> pa.Table:
        import polars as pl

        p = pl.col("p")
        start = pl.col("time").dt.truncate(f"1{unit[0]}").alias("start")
        found = self._readings.group_by("symbol", start).agg(
            p.len().alias("count"), p.sum().alias("sum"), p.pow(2).sum().alias("squares"),
            p.min().alias("min"), p.max().alias("max"), p.first().alias("first"), p.last().alias("last"),
            *(p.quantile(it, "linear").alias(f"q{it}") for it in _QUANTILES),
        )  # fmt: skip
        quantiles = [f"q{it}" for it in _QUANTILES]
        return found.with_columns(percentiles=pl.concat_list(quantiles)).drop(quantiles).to_arrow()

    def rows(self) -> pa.Table:
        return self._readings.to_arrow()

    def close(self) -> None:
        """Does nothing: the table goes with this object."""


def _summarize_all(testbed: Testbed, load: Callable[[Testbed, Day], Engine]) -> None:
    for day in days(testbed):
        _summarize(testbed, load, day)
    _check(testbed)


def _check(testbed: Testbed) -> None:
    for level in LEVELS:
        counted = sum(it["count"] for it in testbed.database[level].find({}, {"count": 1}))
        assert counted == testbed.readings


def summaries_by_duckdb_json(testbed: Testbed) -> None:
    """Summarizes in DuckDB what was exported as JSON."""
    _summarize_all(testbed, _duckdb_json)


def parquet_by_duckdb_json(testbed: Testbed) -> None:
    """Writes as Parquet, by way of DuckDB, what was exported as JSON."""
    write_parquet(testbed, (_rows(testbed, _duckdb_json, day) for day in days(testbed)))


def summaries_by_duckdb_bson(testbed: Testbed) -> None:
    """Summarizes in DuckDB what a script has decoded by pymongo."""
    _summarize_all(testbed, _duckdb_bson)


def summaries_by_chdb(testbed: Testbed) -> None:
    """Summarizes in chdb what was exported as JSON."""
    _summarize_all(testbed, _Chdb)


def parquet_by_chdb(testbed: Testbed) -> None:
    """Writes as Parquet, by way of chdb, what was exported as JSON."""
    write_parquet(testbed, (_rows(testbed, _Chdb, day) for day in days(testbed)))


def summaries_by_polars(testbed: Testbed) -> None:
    """Summarizes in Polars what pymongoarrow has read."""
    _summarize_all(testbed, _Polars)


def _on_two_workers(testbed: Testbed, of_day: Callable[[Testbed, Day], None]) -> None:
    dask: Any = import_module("distributed")
    cluster = dask.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with cluster, dask.Client(cluster) as client:
        client.gather([client.submit(of_day, testbed, day) for day in days(testbed)])


def _summarize_by_polars(testbed: Testbed, day: Day) -> None:
    _summarize(testbed, _Polars, day)


def _write_by_polars(testbed: Testbed, day: Day) -> None:
    path = testbed.store / f"{day.start:%Y-%m-%d}.parquet"
    pq.write_table(_rows(testbed, _Polars, day), path, compression="zstd")


def summaries_by_dask(testbed: Testbed) -> None:
    """Summarizes the days on two workers of Dask, each in Polars. Their start counts."""
    _on_two_workers(testbed, _summarize_by_polars)
    _check(testbed)


def parquet_by_dask(testbed: Testbed) -> None:
    """Writes the days as Parquet on two workers of Dask. Their start counts."""
    testbed.store.mkdir(exist_ok=True)
    _on_two_workers(testbed, _write_by_polars)
