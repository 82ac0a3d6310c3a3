"""Summaries whose readings were deleted: those under a hold stay, the others go, and their neighbours no
longer tell of them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from bucketwise.buckets.fields.times import EVER, TimeRange
from bucketwise.rollups import progress
from bucketwise.rollups.holds import Hold, Holds
from tests.rollups.changes.test_stream import (
    DAY,
    FIRST,
    HOUR,
    NOW,
    OLD,
    keep_images,
    load,
    mended,
    reading,
    readings,
)
from tests.rollups.conftest import Bench


def hold(bench: Bench, series: dict[str, str], within: TimeRange) -> None:
    holds = Holds(bench.database, "ticks")
    with bench.database.client.start_session() as session:
        holds.put(
            Hold("case-9", series, within, "a court", NOW, "ann", freeze=False, salt=bytes(32)), session
        )


def hours(bench: Bench) -> dict[str, list[datetime]]:
    found = bench.database["hourly"].find({"start": {"$gte": OLD, "$lt": OLD + 3 * HOUR}}).sort("start", 1)
    series: dict[str, list[datetime]] = {}
    for it in found:
        series.setdefault(it["_id"]["series"]["symbol"], []).append(it["start"])
    return series


def counts_of_day(bench: Bench, name: str) -> dict[str, int]:
    """The readings of the day, by series."""
    found: dict[str, int] = {}
    for it in bench.database[name].find({"start": {"$gte": OLD, "$lt": OLD + DAY}}):
        series = it["_id"]["series"]["symbol"]
        found[series] = found.get(series, 0) + it["count"]
    return found


@pytest.fixture
def deleted(bench: Bench) -> Bench:
    """Three hours of two series are rolled up, and an application deletes their readings."""
    load(bench, readings(), 7)
    bench.database["ticks"].delete_many({"d": {"$gte": OLD, "$lt": OLD + 3 * HOUR}})
    found = [
        {**reading(1000 + 10 * hour + place, OLD + hour * HOUR), "symbol": symbol}
        for hour in range(3)
        for place, symbol in enumerate("AB")
    ]
    older = {**reading(999, FIRST), "symbol": "B"}  # so that it is not by age that the others go
    bench.database["ticks"].insert_many([*found, older])
    bench.roll_up(readings(), NOW)
    assert hours(bench) == {it: [OLD + hour * HOUR for hour in range(3)] for it in "AB"}
    bench.database["ticks"].delete_many({"_id": {"$gte": 1000}})
    return bench


def test_without_a_hold_they_go(deleted: Bench) -> None:
    deleted.roll_up(readings(), NOW)
    assert hours(deleted) == {}


@pytest.mark.parametrize(
    ("series", "within", "kept"),
    [
        ({"symbol": "A"}, EVER, {"A": [0, 1, 2]}),
        ({}, TimeRange(OLD + HOUR, OLD + 2 * HOUR), {"A": [1], "B": [1]}),
        ({"symbol": "B"}, TimeRange(None, OLD + HOUR), {"B": [0]}),
        ({"symbol": "C"}, EVER, {}),
    ],
)
def test_a_hold_keeps_those_that_it_covers(
    deleted: Bench, series: dict[str, str], within: TimeRange, kept: dict[str, list[int]]
) -> None:
    hold(deleted, series, within)
    deleted.roll_up(readings(), NOW)
    assert hours(deleted) == {it: [OLD + hour * HOUR for hour in some] for it, some in kept.items()}
    assert len(progress.load(deleted.database, readings()).held.windows) == sum(map(len, kept.values()))
    assert counts_of_day(deleted, "daily") == counts_of_day(deleted, "hourly")


def test_the_neighbours_of_a_summary_that_goes_tell_of_each_other(bench: Bench) -> None:
    """Of a counter: each tells the step from the reading before it."""
    counter: dict[str, Any] = {"values": {"p": {"kind": "counter", "max_gap": "9h"}}}
    policy = readings(**counter)
    bench.database.create_collection("ticks")
    keep_images(bench.database, "ticks")  # so that its hour alone is looked at
    load(bench, policy, 7)
    bench.database["ticks"].delete_one({"_id": 32})
    report = mended(bench, policy)
    assert report.hourly.written >= 2
