"""The acts that answer questions: summaries, and DuckDB on the archive."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from bson import DatetimeMS

from config.policies import Policy
from jobs.demo import oracle
from jobs.demo.invent import DAY, HOUR, SECOND, Integers
from jobs.demo.show import number, sparkline
from jobs.demo.stage import Stage

_SQL = """\
SELECT date_trunc('week', dt)::DATE AS week, symbol, count(*) AS readings,
       arg_min(p, time) AS first, max(p) AS high, min(p) AS low, arg_max(p, time) AS last
FROM read_parquet('{files}', hive_partitioning = true)
GROUP BY ALL ORDER BY ALL"""


def summaries(stage: Stage) -> None:
    """Shows summaries, each compared with the readings that it stands for."""
    about = "A document an hour and series, and one a day, in the policy's own time zone."
    stage.show.act("Summaries", about)
    for policy in stage.policies:
        made, rollup = stage.made[policy.name], policy.rollup
        assert rollup is not None
        _compare(stage, policy, str(rollup.hourly), oracle.hours(made))
        _compare(stage, policy, str(rollup.daily), oracle.days(made, rollup.timezone))
    if not stage.show.failed:
        _candles(stage)
        _rooms(stage)
    stage.show.verdict("Each summary equals its readings, summed up in plain Python")


def _compare(stage: Stage, policy: Policy, collection: str, edges: Integers) -> None:
    assert policy.rollup is not None
    made, held, expected = stage.made[policy.name], {}, set()
    for summary in stage.database[collection].find():
        series, start = summary["_id"]["series"], int(summary["start"].timestamp()) * SECOND
        held[*(_at(series, name) for name in policy.series_names), start] = summary
    for it in oracle.windows(made, edges, stage.ago(policy.rollup.settle)):
        key = (*made.series[it.series].values(), it.start)
        expected.add(key)
        fault = oracle.wrong(it, held[key][it.field]) if key in held else "it is missing"
        stage.show.holds(f"{collection}, {key}, {it.field}: {fault}", fault is None)
    stage.show.equal(f"summaries in {collection}", len(held), len(expected))


def _at(document: Any, path: str) -> Any:
    for part in path.split("."):
        document = document[part]
    return document


def _candles(stage: Stage) -> None:
    """Shows the last hours of trading as prices."""
    hours, figures = stage.database["ticks_hourly"], ("first", "max", "min", "last", "avg")
    rows = []
    for it in hours.find({"symbol": "ACME"}).sort("start", -1).limit(5):
        prices = [f"{it['p'][key]:.2f}" for key in figures]
        rows.append([f"{it['symbol']}  {it['start']:%a %d %b  %H:%M}", number(it["count"]), *prices])
    stage.show.table(("ticks_hourly", "Readings", *map(str.capitalize, figures)), rows[::-1])


def _rooms(stage: Stage) -> None:
    """Shows the last whole day, hour by hour."""
    end, rows = stage.ago(timedelta(0)) // DAY * DAY, []
    for fields in stage.made["temperature"].series:
        window = {"$gte": DatetimeMS(end - DAY), "$lt": DatetimeMS(end)}
        found = stage.database["temperature_hourly"].find({**fields, "start": window}).sort("start", 1)
        hours = [it["celsius"] for it in found]
        name = f"{fields['room']:<9}{sparkline([it['avg'] for it in hours])}"
        low, high = min(it["min"] for it in hours), max(it["max"] for it in hours)
        rows.append([name, number(sum(it["count"] for it in hours)), f"{low}", f"{high}"])
    date = datetime.fromtimestamp((end - HOUR) / SECOND, UTC)
    stage.show.table((f"temperature_hourly  {date:%a %d %b}", "Readings", "Min °C", "Max °C"), rows)


def query(stage: Stage) -> None:
    """Queries the archive in DuckDB, as anything that reads Parquet can."""
    import duckdb

    about = "Nothing of bucketwise takes part: DuckDB reads the files where they lie."
    stage.show.act("A query on the archive", about)
    stage.show.sql(_SQL.format(files="store/ticks/data/**/*.parquet"))
    files = str(stage.place.store / "ticks" / "data" / "**" / "*.parquet").replace("'", "''")
    with duckdb.connect() as connection:
        rows = connection.execute(_SQL.format(files=files)).fetchall()
    stage.show.equal("DuckDB's answer", rows, _weeks(stage))
    heads = ("week", "symbol", "readings", "first", "high", "low", "last")
    shown = [[f"{it[0]}", it[1], number(it[2]), *(f"{price:.2f}" for price in it[3:])] for it in rows]
    stage.show.table(heads, shown, left=2)
    stage.show.verdict("The answer equals the readings that were invented")


def _weeks(stage: Stage) -> list[tuple[object, ...]]:
    made = stage.made["ticks"]
    archived = stage.expired(stage.call.settings.policies["ticks"])[made.bucket]
    week, rows = (made.time // DAY + 3) // 7, list[tuple[object, ...]]()  # the epoch was a Thursday
    for number_of in np.unique(week[archived]).tolist():
        monday = (datetime.fromtimestamp(0, UTC) + timedelta(days=number_of * 7 - 3)).date()
        for series, fields in enumerate(made.series):
            part = np.flatnonzero(archived & (week == number_of) & (made.of == series))
            if it := made.values["p"][part[np.argsort(made.time[part])]].tolist():
                rows.append((monday, fields["symbol"], len(it), it[0], max(it), min(it), it[-1]))
    return rows
