"""Summaries whose raw data was cleared away stay; those of readings that were taken back follow."""

# mypy: disable-error-code="index, union-attr"

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from bucketwise.config.models import make_policy
from tests.rollups.changes.test_stream import (
    DAY,
    FIRST,
    HOUR,
    MINUTE,
    NOW,
    OLD,
    ROLLUP,
    load,
    reading,
    readings,
)
from tests.rollups.conftest import WHOLE_AND_IN_PORTIONS, Bench

Document = dict[str, Any]
pytestmark = WHOLE_AND_IN_PORTIONS


def one(at: Any, price: float = 9.0) -> Document:
    return {"time": at, "p": price}


@pytest.mark.in_turn(1)
def test_another_series_takes_the_readings_over(bench: Bench) -> None:
    """A mistyped name is mended: the readings count once."""
    policy = readings()
    load(bench, policy)
    bench.database["ticks"].insert_many(
        [{**reading(1000 + n, OLD + n * MINUTE), "symbol": "Z"} for n in range(5)]
    )
    bench.roll_up(policy, NOW)
    bench.database["ticks"].update_many({"symbol": "Z"}, {"$set": {"symbol": "A"}})
    bench.roll_up(policy, NOW)
    total = sum(it["count"] for it in bench.database["hourly"].find({"start": OLD}))
    assert total == bench.database["ticks"].count_documents({"d": {"$gte": OLD, "$lt": OLD + HOUR}})


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(("old", "new"), [("UTC", "America/New_York"), ("America/New_York", "UTC")])
@pytest.mark.parametrize("first", [FIRST, FIRST + 10 * DAY + 12 * HOUR], ids=["midnight", "noon"])
def test_no_summary_of_another_zone_stays_beside_the_new_ones(
    bench: Bench, old: str, new: str, first: datetime
) -> None:
    """The first window of the old zone begins before any window of the new one that has a reading."""
    levels = [{"name": it, "collection": it} for it in ("weekly", "monthly")]
    bench.database["ticks"].insert_many([reading(n, first + n * HOUR) for n in range(40)])
    for zone in (old, new):
        policy = readings(rollup={"daily": "daily", "levels": levels, "timezone": zone})
        bench.roll_up(policy, NOW, whole=True)
    for level in ("daily", "weekly", "monthly"):
        found = list(bench.database[level].find())
        assert {it["timezone"] for it in found} == {new}
        assert sum(it["count"] for it in found) == 40


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("offset", [-600, 600])
@pytest.mark.parametrize("hour", [3, 12, 22])
@pytest.mark.parametrize("fields", [(None, "tz"), ("tz", None)], ids=["to", "from"])
def test_no_summary_of_days_by_other_clocks_stays(
    bench: Bench, offset: int, hour: int, fields: tuple[str | None, str | None]
) -> None:
    levels = [{"name": "weekly", "collection": "weekly"}]
    times = [FIRST + (hour + n) * HOUR for n in range(40)]
    bench.database["ticks"].insert_many({**reading(n, at), "tz": offset} for n, at in enumerate(times))
    for field in fields:
        policy = readings(rollup={"daily": "daily", "levels": levels}, local_offset_field=field)
        bench.roll_up(policy, NOW, whole=True)
    for level in ("daily", "weekly"):
        found = list(bench.database[level].find())
        assert {it["timezone"] for it in found} == {"local" if fields[1] else "UTC"}
        assert sum(it["count"] for it in found) == 40


@pytest.mark.in_turn(1)
def test_a_summary_of_another_zone_stays_where_its_readings_are_gone(bench: Bench) -> None:
    bench.database["ticks"].insert_many([reading(n, FIRST + n * HOUR) for n in range(96)])
    bench.roll_up(readings(rollup={"daily": "daily"}), NOW)
    bench.database["ticks"].delete_many({"d": {"$lt": FIRST + 2 * DAY}})
    bench.roll_up(readings(rollup={"daily": "daily", "timezone": "America/New_York"}), NOW, whole=True)
    stays = list(bench.database["daily"].find({"timezone": "UTC"}).sort("start"))
    assert [it["start"] for it in stays] == [FIRST, FIRST + DAY]


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("at", [0, 1], ids=["at its very start", "a minute in"])
def test_a_late_reading_does_not_stand_for_an_hour_that_was_cleared_away(bench: Bench, at: int) -> None:
    policy = readings()
    bench.database["ticks"].insert_many([reading(n, FIRST + n * MINUTE) for n in range(600)])
    bench.roll_up(policy, NOW)
    assert bench.database["hourly"].find_one({"start": FIRST})["count"] == 60
    bench.database["ticks"].create_index("other", expireAfterSeconds=3600)
    bench.database["ticks"].delete_many({"d": {"$lt": FIRST + 5 * HOUR}})
    bench.roll_up(policy, NOW)
    bench.database["ticks"].insert_one(reading(9999, FIRST + at * MINUTE))
    bench.roll_up(policy, NOW)
    assert bench.database["hourly"].find_one({"start": FIRST})["count"] >= 60


@pytest.mark.in_turn(1)
def test_a_ttl_shorter_than_recheck_takes_no_summaries(bench: Bench) -> None:
    policy = readings()
    now = FIRST + 40 * HOUR
    bench.database["ticks"].insert_many([reading(n, FIRST + n * 10 * MINUTE) for n in range(6 * 40)])
    bench.roll_up(policy, now)
    before = bench.raw("hourly")
    bench.database["ticks"].create_index("other", expireAfterSeconds=86400)
    bench.database["ticks"].delete_many({"d": {"$lt": now - 24 * HOUR}})
    bench.roll_up(policy, now)
    assert bench.raw("hourly") == before


@pytest.mark.in_turn(1)
def test_readings_deleted_under_scan_can_be_taken_out_with_a_range(bench: Bench) -> None:
    """Where others of their window show that these were meant."""
    policy = readings(rollup={**ROLLUP, "late_data": "scan"})
    bench.database["ticks"].insert_many([reading(n, FIRST + n * 20 * MINUTE) for n in range(3 * 48)])
    bench.roll_up(policy, NOW)
    bench.database["ticks"].delete_one({"_id": 31})
    bench.roll_up(policy, NOW, since=FIRST, until=FIRST + 2 * DAY)
    counts = sum(it["count"] for it in bench.database["hourly"].find())
    days = sum(it["count"] for it in bench.database["daily"].find())
    assert (counts, days) == (143, 143)


@pytest.mark.in_turn(1)
def test_a_day_is_not_replaced_by_less_than_its_hours_tell(bench: Bench) -> None:
    policy = readings(rollup={**ROLLUP, "late_data": "scan"})
    bench.database["ticks"].insert_many([reading(n, FIRST + n * 20 * MINUTE) for n in range(3 * 48)])
    bench.roll_up(policy, NOW)
    before = bench.raw("hourly"), bench.raw("daily")
    start, end = FIRST + 5 * HOUR, FIRST + 6 * HOUR
    bench.database["ticks"].delete_many({"d": {"$gte": start, "$lt": end}})
    bench.roll_up(policy, NOW, since=start, until=end)
    assert (bench.raw("hourly"), bench.raw("daily")) == before


ARCHIVE = {"after": DAY, "to": "online", "collection": "archive"}
RULES: dict[str, Document] = {
    "percentiles": {"rollup": {**ROLLUP, "percentiles": (50, 99)}},
    "value_fields": {"value_fields": ("p", "q")},
    "expected_interval": {"expected_interval": MINUTE},
}


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("archive", [None, ARCHIVE], ids=["alone", "beside an archive"])
@pytest.mark.parametrize("way", ["run", "range", "scanned range", *RULES])
@pytest.mark.parametrize("at", [0, 1], ids=["at its very start", "a minute in"])
def test_nothing_replaces_the_only_witness_by_less(
    bench: Bench, archive: Document | None, way: str, at: int
) -> None:
    """What a script purged comes late, a reading of it, and so does one of another series; something older
    than both is there as well."""
    mode = "scan" if way == "scanned range" else "auto"
    policy = readings(rollup={**ROLLUP, "late_data": mode}, archive=archive)
    ticks = bench.database["ticks"]
    ticks.insert_many([reading(n, FIRST + n * MINUTE) for n in range(6 * 60)])
    bench.roll_up(policy, NOW)
    before = bench.raw("hourly")
    ticks.drop()
    late = [reading(1000, FIRST + at * MINUTE), {**reading(1001, FIRST + HOUR), "symbol": "Z"}]
    ticks.insert_many([*late, reading(1002, FIRST - DAY)])
    within: Document = {"since": FIRST, "until": FIRST + DAY} if "range" in way else {}
    if way in RULES:
        policy = readings(**{"archive": archive, **RULES[way]})
    report = bench.roll_up(policy, NOW, **within)
    after = bench.raw("hourly")
    assert {name: after[name] for name in before} == before
    assert bool(report.gone) == (archive is not None)
    if "range" in way:
        assert report.missed
    if way in RULES:
        assert report.outdated
        assert bench.roll_up(policy, NOW, whole=True, dry_run=True).outdated == report.outdated


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("ttl", [True, False], ids=["by a TTL index", "by a script"])
@pytest.mark.parametrize("later", [True, False], ids=["a run later", "in the same run"])
def test_an_update_elsewhere_takes_no_summary_of_what_was_cleared_away(
    bench: Bench, ttl: bool, later: bool
) -> None:
    """A replacement does not tell what it touched, so that all windows that were live are looked at."""
    policy, ticks = readings(), bench.database["ticks"]
    ticks.insert_many([reading(n, FIRST + n * 10 * MINUTE) for n in range(6 * 48)])
    if ttl:
        ticks.create_index("other", expireAfterSeconds=86400)
    bench.roll_up(policy, NOW)
    before = set(bench.raw("hourly")), set(bench.raw("daily"))
    ticks.delete_many({"d": {"$lt": FIRST + 20 * HOUR}})
    if later:
        bench.roll_up(policy, NOW)
    ticks.replace_one({"_id": 6 * 47}, reading(6 * 47, FIRST + 47 * HOUR, 5.0))
    bench.roll_up(policy, NOW)
    assert (set(bench.raw("hourly")), set(bench.raw("daily"))) == before
    first = bench.database["daily"].find_one({}, sort=[("start", 1)])
    assert first is not None and first["count"] == 6 * 24


@pytest.mark.in_turn(1)
def test_so_they_can_where_each_sample_tells_its_series(bench: Bench) -> None:
    plain = readings(rollup={**ROLLUP, "late_data": "scan"})
    policy = make_policy(
        name=plain.name, collection=plain.collection, model="samples", value_fields=plain.value_fields,
        rollup=plain.rollup, samples_field="held", sample_time_field="at", start_field="first",
        end_field="last", series_fields=("held.*.symbol",), time_unit="date", sample_time_unit="date",
    )  # fmt: skip
    times = [FIRST + n * 20 * MINUTE for n in range(3 * 48)]
    bench.database["ticks"].insert_many(
        {"_id": n, "first": at, "last": at, "held": [{"at": at, "p": 1.0, "symbol": it} for it in "AB"]}
        for n, at in enumerate(times)
    )
    bench.roll_up(policy, NOW)
    bench.database["ticks"].delete_one({"_id": 31})
    bench.roll_up(policy, NOW, since=FIRST, until=FIRST + 2 * DAY)
    counts = sum(it["count"] for it in bench.database["hourly"].find())
    assert counts == 2 * 143
