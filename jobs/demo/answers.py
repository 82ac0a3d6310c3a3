"""The acts that answer questions: summaries, and DuckDB on the archive."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import getitem

import numpy as np

from config.policies import Policy
from jobs.demo.invent import DAY, SECOND, Integers, days, difference_of, hours, windows
from jobs.demo.stage import Stage

_SQL = """\
SELECT date_trunc('week', dt)::DATE AS week, symbol, count(*) AS readings,
       arg_min(p, time) AS first, max(p) AS high, min(p) AS low, arg_max(p, time) AS last
FROM read_parquet('{files}', hive_partitioning = true)
GROUP BY ALL ORDER BY ALL"""


def summaries(stage: Stage) -> None:
    """Compares each summary with the readings that it stands for, and shows the last hours of trading."""
    stage.show.act(
        "Summaries", "A document an hour and series, and one a day, in the policy's own time zone."
    )
    for policy in stage.call.policies:
        made, rollup = stage.made[policy.name], policy.rollup
        assert rollup is not None
        _compare(stage, policy, str(rollup.hourly), hours(made))
        _compare(stage, policy, str(rollup.daily), days(made, rollup.timezone))
    hourly, figures = stage.database["ticks_hourly"], ("first", "max", "min", "last", "avg")
    rows = []
    for it in hourly.find({"symbol": "ACME"}).sort("start", -1).limit(5):
        prices = [f"{it['p'][key]:.2f}" for key in figures]
        rows.append([f"ACME  {it['start']:%a %d %b  %H:%M}", it["count"], *prices])
    stage.show.table(("ticks_hourly", "Readings", *map(str.capitalize, figures)), rows[::-1])
    stage.show.verdict("Each summary equals its readings, summed up in plain Python")


def _compare(stage: Stage, policy: Policy, collection: str, edges: Integers) -> None:
    assert policy.rollup is not None
    made, held, expected = stage.made[policy.name], {}, set()
    for summary in stage.database[collection].find():
        series = (reduce(getitem, it.split("."), summary["_id"]["series"]) for it in policy.series_names)
        held[*series, int(summary["start"].timestamp()) * SECOND] = summary
    for it in windows(made, edges, stage.ago(policy.rollup.settle)):
        key = (*made.series[it.series].values(), it.start)
        expected.add(key)
        fault = difference_of(it, held[key][it.field]) if key in held else "it is missing"
        stage.show.holds(f"{collection}, {key}, {it.field}: {fault}", fault is None)
    stage.show.equal(f"summaries in {collection}", len(held), len(expected))


def query(stage: Stage) -> None:
    """Queries the archive in DuckDB, as anything that reads Parquet can."""
    stage.show.act(
        "A query on the archive", "Nothing of bucketwise takes part: DuckDB reads the files where they lie."
    )
    import duckdb

    files = "store/ticks/data/**/*.parquet"
    stage.show.sql(_SQL.format(files=files))
    with duckdb.connect() as connection:
        found = connection.execute(_SQL.format(files=f"{stage.folder}/{files}".replace("'", "''"))).fetchall()
    stage.show.equal("DuckDB's answer", found, _weeks(stage))
    heads = ("week", "symbol", "readings", "first", "high", "low", "last")
    stage.show.table(heads, [[*it[:3], *(f"{price:.2f}" for price in it[3:])] for it in found], left=2)
    stage.show.verdict("The answer equals the readings that were invented")


def _weeks(stage: Stage) -> list[tuple[object, ...]]:
    made = stage.made["ticks"]
    archived = stage.expired(stage.call.settings.policies["ticks"])[made.bucket]
    week, rows = (made.time // DAY + 3) // 7, list[tuple[object, ...]]()  # the epoch was a Thursday
    for number in np.unique(week[archived]).tolist():
        monday = (datetime.fromtimestamp(0, UTC) + timedelta(days=number * 7 - 3)).date()
        for series, fields in enumerate(made.series):
            part = np.flatnonzero(archived & (week == number) & (made.of == series))
            if it := made.values["p"][part[np.argsort(made.time[part])]].tolist():
                rows.append((monday, fields["symbol"], len(it), it[0], max(it), min(it), it[-1]))
    return rows
