"""The act in which DuckDB reads the archive, as anything that reads Parquet can."""

from __future__ import annotations

import importlib.util
from datetime import UTC, datetime, timedelta

import numpy as np

from config.errors import BucketwiseError
from jobs.demo.invent import DAY
from jobs.demo.show import number
from jobs.demo.stage import Stage

_SQL = """\
SELECT date_trunc('week', dt)::DATE AS week, symbol, count(*) AS readings,
       arg_min(p, time) AS first, max(p) AS high, min(p) AS low, arg_max(p, time) AS last
FROM read_parquet('{files}', hive_partitioning = true)
GROUP BY ALL ORDER BY ALL"""
Row = tuple[object, ...]


def require_duckdb() -> None:
    if importlib.util.find_spec("duckdb") is None:
        raise BucketwiseError(
            "the demo queries with DuckDB, which is missing. Run: pip install 'bucketwise[demo]'"
        )


def query(stage: Stage) -> None:
    import duckdb

    stage.show.act(
        "A query on the archive", "Nothing of bucketwise takes part: DuckDB reads the files where they lie."
    )
    stage.show.sql(_SQL.format(files="store/ticks/data/**/*.parquet"))
    files = str(stage.place.store / "ticks" / "data" / "**" / "*.parquet").replace("'", "''")
    with duckdb.connect() as connection:
        rows = connection.execute(_SQL.format(files=files)).fetchall()
    stage.checks.equal("DuckDB's answer", rows, _expected(stage))
    heads = ("week", "symbol", "readings", "first", "high", "low", "last")
    shown = [
        [f"{week}", symbol, number(count), *(f"{price:.2f}" for price in prices)]
        for week, symbol, count, *prices in rows
    ]
    stage.show.table(heads, shown, left=2)
    stage.show.verdict("The answer equals the readings that were invented")


def _expected(stage: Stage) -> list[Row]:
    made = stage.made["ticks"]
    archived = stage.expired(stage.call.settings.policies["ticks"])[made.bucket]
    monday = (made.time // DAY + 3) // 7  # the epoch was a Thursday
    rows: list[Row] = []
    for week in np.unique(monday[archived]).tolist():
        date = (datetime.fromtimestamp(0, UTC) + timedelta(days=week * 7 - 3)).date()
        for series, fields in enumerate(made.series):
            part = np.flatnonzero(archived & (monday == week) & (made.of == series))
            prices = made.values["p"][part[np.argsort(made.time[part])]].tolist()
            if prices:
                rows.append(
                    (date, fields["symbol"], len(prices), prices[0], max(prices), min(prices), prices[-1])
                )
    return rows
