"""The act about summaries: each is held against the readings that it stands for."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from bson import DatetimeMS

from config.policies import Policy
from jobs.demo import oracle
from jobs.demo.invent import DAY, HOUR, SECOND, Integers
from jobs.demo.show import number, sparkline
from jobs.demo.stage import Stage

Summary = dict[str, Any]


def summaries(stage: Stage) -> None:
    stage.show.act(
        "Summaries", "A document an hour and series, and one a day, in the policy's own time zone."
    )
    for policy in stage.policies:
        made = stage.made[policy.name]
        assert policy.rollup is not None
        _compare(stage, policy, str(policy.rollup.hourly), oracle.hours(made))
        _compare(stage, policy, str(policy.rollup.daily), oracle.days(made, policy.rollup.timezone))
    if not stage.checks.failed:
        _candles(stage)
        _rooms(stage)
    stage.show.verdict("Each summary equals its readings, summed up in plain Python")


def _compare(stage: Stage, policy: Policy, collection: str, edges: Integers) -> None:
    assert policy.rollup is not None
    made, due = stage.made[policy.name], int((stage.now - policy.rollup.settle).timestamp()) * SECOND
    held = {_key(policy, it): it for it in stage.database[collection].find()}
    expected = set()
    for it in oracle.windows(made, edges, due):
        key = (*made.series[it.series].values(), it.start)
        expected.add(key)
        fault = oracle.wrong(it, held[key][it.field]) if key in held else "it is missing"
        stage.checks.holds(f"{collection}, {key}, {it.field}: {fault}", fault is None)
    stage.checks.equal(f"summaries in {collection}", len(held), len(expected))


def _key(policy: Policy, summary: Summary) -> tuple[Any, ...]:
    values = []
    for name in policy.series_names:
        value: Any = summary["_id"]["series"]
        for part in name.split("."):
            value = value[part]
        values.append(value)
    return (*values, int(summary["start"].timestamp()) * SECOND)


def _candles(stage: Stage) -> None:
    """The last hours of trading, as prices are looked at."""
    hours = stage.database["ticks_hourly"]
    rows = [
        [
            f"{it['symbol']}  {it['start']:%a %d %b  %H:%M}",
            number(it["count"]),
            *(f"{it['p'][key]:.2f}" for key in ("first", "max", "min", "last", "avg")),
        ]
        for it in hours.find({"symbol": "ACME"}).sort("start", -1).limit(5)
    ]
    heads = ("ticks_hourly", "Readings", "First", "Max", "Min", "Last", "Avg")
    stage.show.table(heads, rows[::-1])


def _rooms(stage: Stage) -> None:
    """The last whole day, hour by hour."""
    end = int(stage.now.timestamp()) * SECOND // DAY * DAY
    rows = []
    for fields in stage.made["temperature"].series:
        window = {"$gte": DatetimeMS(end - DAY), "$lt": DatetimeMS(end)}
        found = stage.database["temperature_hourly"].find({**fields, "start": window}).sort("start", 1)
        hours = [it["celsius"] for it in found]
        low, high = min(it["min"] for it in hours), max(it["max"] for it in hours)
        line = sparkline([it["avg"] for it in hours])
        rows.append(
            [f"{fields['room']:<9}{line}", number(sum(it["count"] for it in hours)), f"{low}", f"{high}"]
        )
    date = datetime.fromtimestamp((end - HOUR) / SECOND, UTC)
    stage.show.table((f"temperature_hourly  {date:%a %d %b}", "Readings", "Min °C", "Max °C"), rows)
