"""Broken buckets are reported and remembered, until they are sound or gone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from bucketwise.rollups.rolling.quarantine import MAX_DETAILS
from tests.rollups.conftest import Bench
from tests.rollups.rolling.test_rollup import NOW, iot, policy_of, tick

OLD = NOW - timedelta(days=30)
HOUR = timedelta(hours=1)


def bucket(identity: Any, start: datetime, end: datetime, counted: int = 2) -> dict[str, Any]:
    samples = [{"time": start, "val": 1.0}, {"time": end, "val": 2.0}]
    return {"_id": identity, "symbol": "A", "n": counted, "first": start, "last": end, "samples": samples}


def remembered(bench: Bench) -> dict[Any, dict[str, Any]]:
    return {one["_id"]["id"]: one for one in bench.database["bucketwise_quarantine"].find()}


def test_a_broken_bucket_is_told_once_however_many_days_it_spans(bench: Bench) -> None:
    policy = iot(count_field="n")
    sound = [bucket(n, OLD + n * HOUR, OLD + n * HOUR) for n in range(2, 90)]
    bench.database["ticks"].insert_many([bucket(1, OLD, OLD + timedelta(days=3), counted=3), *sound])
    report = bench.roll_up(policy, NOW)
    assert [found.id for found in report.quarantined] == [1] and report.quarantined_total == 1
    assert report.readings == 2 * 88
    (record,) = remembered(bench).values()
    assert record["_id"] == {"policy": "ticks", "id": 1}
    assert record["field"] == report.quarantined[0].field and record["reason"] == report.quarantined[0].reason
    assert record["first_seen"] == record["last_seen"] == NOW


def test_what_is_mended_is_rolled_up_however_old(bench: Bench) -> None:
    policy = iot(count_field="n")
    bench.database["ticks"].insert_many(
        [bucket(n, OLD + n * HOUR, OLD + n * HOUR + HOUR / 2, counted=n) for n in range(2, 5)]
    )
    bench.roll_up(policy, NOW)
    assert set(remembered(bench)) == {3, 4}
    again = bench.roll_up(policy, NOW + HOUR)
    assert [found.id for found in again.quarantined] == [3, 4], "though their windows are not looked at"
    assert again.hourly.due == 0 or again.readings == 0
    record = remembered(bench)[3]
    assert (record["first_seen"], record["last_seen"]) == (NOW, NOW + HOUR)
    bench.database["ticks"].update_one({"_id": 3}, {"$set": {"n": 2}})
    mended = bench.roll_up(policy, NOW + HOUR)
    assert (mended.hourly.written, mended.daily.written) == (1, 1)
    assert [found.id for found in mended.quarantined] == [4]
    assert set(remembered(bench)) == {4}
    bench.database["ticks"].delete_one({"_id": 4})
    assert bench.roll_up(policy, NOW + HOUR).quarantined_total == 0
    assert remembered(bench) == {}


def test_buckets_without_a_time_are_found(bench: Bench) -> None:
    bench.database["ticks"].insert_many([tick(1, "A", OLD), {"_id": 2, "symbol": "A", "d": "soon", "p": 1}])
    report = bench.roll_up(policy_of(), NOW)
    assert [found.id for found in report.quarantined] == [2]
    assert report.readings == 1


def test_policies_remember_apart(bench: Bench) -> None:
    bench.database["ticks"].insert_one({"_id": 2, "symbol": "A", "p": 1})
    bench.roll_up(policy_of(name="a"), NOW)
    bench.roll_up(policy_of(name="b"), NOW)
    bench.database["ticks"].drop()
    bench.roll_up(policy_of(name="a"), NOW)
    assert [one["_id"] for one in bench.database["bucketwise_quarantine"].find()] == [
        {"policy": "b", "id": 2}
    ]


def test_many_are_counted_and_a_thousand_told(bench: Bench) -> None:
    bench.database["ticks"].insert_many(
        [{"_id": {"n": n}, "symbol": "A", "p": 1} for n in range(MAX_DETAILS + 200)]
    )
    report = bench.roll_up(policy_of(), NOW)
    assert (len(report.quarantined), report.quarantined_total) == (MAX_DETAILS, MAX_DETAILS + 200)
    assert bench.database["bucketwise_quarantine"].count_documents({}) == MAX_DETAILS + 200
    bench.database["ticks"].update_many({}, {"$set": {"d": datetime(2021, 1, 1, tzinfo=UTC)}})
    assert bench.roll_up(policy_of(), NOW).readings == MAX_DETAILS + 200
    assert bench.database["bucketwise_quarantine"].count_documents({}) == 0
