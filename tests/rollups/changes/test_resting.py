"""A look at all windows but those of days that rest: what an audit does that reads a share of the archive."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketwise.config.policies import Policy
from bucketwise.rollups.calendar.due import Spans
from tests.examples import examples
from tests.rollups.calendar import test_local_days
from tests.rollups.conftest import Bench
from tests.rollups.rolling.test_rollup import policy_of, tick

Document = dict[str, Any]
DAY_MS = 86_400_000
FIRST = datetime(2021, 3, 20, tzinfo=UTC)
NOW = datetime(2021, 4, 12, tzinfo=UTC)
DAYS = 12
days = st.lists(st.tuples(st.integers(0, DAYS), st.integers(1, 5)), max_size=3)
levels = [{"name": it, "collection": it} for it in ("weekly", "monthly")]


def spans(given_: list[tuple[int, int]]) -> list[tuple[int, int]]:
    start = int(FIRST.timestamp()) * 1000 // DAY_MS
    return [((start + at) * DAY_MS, (start + at + length) * DAY_MS) for at, length in given_]


@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(-50, 50))), st.integers(-60, 60))
def test_gaps_are_what_is_in_none(given_: list[tuple[int, int]], start: int) -> None:
    held = {it for first, last in given_ for it in range(first, last)}
    gaps = list(Spans(given_).gaps(start, 60))
    assert [it for gap in gaps for it in range(*gap)] == [it for it in range(start, 60) if it not in held]


def of_zone(zone: str) -> Policy:
    rollup = {"hourly": "hourly", "daily": "daily", "timezone": zone, "levels": levels}
    return policy_of(rollup=rollup)


POLICIES = {zone: of_zone(zone) for zone in ("UTC", "Asia/Kolkata", "America/New_York")}
POLICIES["of the readings"] = test_local_days.policy_of(collection="ticks", name="ticks")


@settings(max_examples=examples(4))
@given(st.data())
def test_what_rests_is_as_it_stands_and_all_else_is_looked_at(bench: Bench, data: st.DataObject) -> None:
    policy = data.draw(st.sampled_from(list(POLICIES.values())))
    bench.database.client.drop_database(bench.database.name)
    is_local = policy.local_offset_field is not None
    for number in range(20):
        at = FIRST + timedelta(minutes=data.draw(st.integers(0, DAYS * 1440)))
        document = tick(number, f"S{number % 3}", at)
        if is_local:
            offset = data.draw(st.sampled_from(test_local_days.OFFSETS))
            document = test_local_days.reading(number, at, offset, number % 3)
        bench.database["archive"].insert_one(document)
    bench.database["ticks"].insert_one({**document, "_id": 1000})
    assert bench.roll_up(policy, NOW).written
    trusted_spans = spans(data.draw(days))
    kept = bench.roll_up(policy, NOW, whole=True, trusted_spans=trusted_spans, dry_run=True)
    assert (kept.written, kept.kept) == (0, 0)
    gone = bench.database["daily"].find_one_and_delete({})
    assert gone is not None
    day = int(gone["start"].timestamp()) * 1000
    reach = 19 * 3_600_000 if is_local else 0
    rests = any(
        start <= day - reach and day + DAY_MS + reach <= end for start, end in Spans(trusted_spans).spans
    )
    found = bench.roll_up(policy, NOW, whole=True, trusted_spans=trusted_spans, dry_run=True)
    assert bool(found.daily.written) != rests


@pytest.mark.proof
def test_readings_of_what_rests_are_not_read(bench: Bench) -> None:
    """Weeks and months are made of the days that stand."""
    policy = POLICIES["UTC"]
    bench.database["archive"].insert_many(
        tick(number, "A", FIRST + timedelta(days=number)) for number in range(DAYS)
    )
    bench.roll_up(policy, NOW)
    assert bench.roll_up(policy, NOW, whole=True, dry_run=True).readings == DAYS
    found = bench.roll_up(policy, NOW, whole=True, trusted_spans=spans([(1, 4), (6, DAYS)]), dry_run=True)
    assert (found.readings, found.written) == (2, 0)
