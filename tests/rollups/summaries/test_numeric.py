"""Which series ever had a number, asked of their summaries: few commands, by an index."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from pymongo.database import Database

from bucketwise.archivers.moving.sweep import NumericHistory
from bucketwise.buckets.fields.times import DAY_MS
from bucketwise.buckets.models.series import series_key
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Policy, Rollup
from bucketwise.rollups.calendar.windows import HOUR
from bucketwise.rollups.statistics import FieldState
from bucketwise.rollups.summaries import documents
from bucketwise.rollups.summaries.summary import State
from tests.rollups.samples import day_summary, hour_summary

Db = Database[dict[str, Any]]
BOTH = Rollup(hourly="hourly", daily="daily")
DAYS = 3


def policy(rollup: Rollup, **more: Any) -> Policy:
    return make_policy(
        name="it",
        collection="it",
        model="reading",
        time_field="d",
        series_fields=("a.b", "c"),
        value_fields=("p", "q.x"),
        rollup=rollup,
        **more,
    )


def state(*finite: bool) -> State:
    first = (0, b"", 1.0)
    some: FieldState = (1, 1, 1, 1.0, 1.0), (first, first), {}, (0, 0)
    none: FieldState = (0, 0, 0, math.inf, -math.inf), (), {}, (0, 0)
    return State(1, {name: some if it else none for name, it in zip(("p", "q.x"), finite, strict=True)})


def had(number: int, day: int) -> tuple[bool, bool]:
    """In which fields series `number` has a finite number on a day."""
    return number % 3 == day, number % 2 == 0 and day == 1


def series(number: int) -> tuple[Any, ...]:
    return (number, ["x", True, {"k": number}, datetime(2018, 1, 1, tzinfo=UTC)][number % 4])


def load(database: Db, it: Policy, count: int) -> None:
    for number in range(count):
        for day in range(DAYS):
            held, start = state(*had(number, day)), day * DAY_MS
            hour = hour_summary(it, series(number), start + 5 * HOUR, held)
            whole = day_summary(it, series(number), start, start + DAY_MS, "UTC", held)
            for name, document in (("hourly", hour), ("daily", whole)):
                database[name].insert_one(bson.decode(document, documents.OPTIONS))


def wanted(numbers: range) -> dict[bytes, tuple[Any, ...]]:
    return {series_key(series(number)): series(number) for number in numbers}


def expected_days(numbers: range, days: range) -> set[tuple[bytes, int, str]]:
    return {
        (series_key(series(number)), day, name)
        for number in numbers
        for day in days
        for name, it in zip(("p", "q.x"), had(number, day), strict=True)
        if it
    }


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(
    "rollup", [BOTH, Rollup(hourly="hourly"), Rollup(daily="daily")], ids=["both", "hourly", "daily"]
)
def test_tells_what_a_plain_loop_tells(database: Db, rollup: Rollup) -> None:
    it, numbers = policy(rollup), range(1, 12)
    load(database, it, 16)
    found = NumericHistory(database, it)
    names = {
        key: {name for of, _, name in expected_days(numbers, range(DAYS)) if of == key}
        for key in wanted(numbers)
    }
    assert found.fields_ever(wanted(numbers)) == names
    assert found.days(wanted(numbers).values(), 0, DAY_MS) == expected_days(numbers, range(2))
    assert found.days(wanted(numbers).values(), DAY_MS + 1, DAY_MS + 2) == expected_days(numbers, range(1, 2))


@pytest.mark.parametrize(
    ("rollup", "more"),
    [
        (Rollup(daily="daily", timezone="Europe/Berlin"), {}),
        (Rollup(daily="daily"), {"local_offset_field": "tz"}),
    ],
)
def test_days_of_another_clock_tell_of_no_utc_day(database: Db, rollup: Rollup, more: dict[str, Any]) -> None:
    it = policy(rollup, **more)
    load(database, it, 4)
    assert NumericHistory(database, it).days(wanted(range(4)).values(), 0, DAY_MS) == set()
    assert any(NumericHistory(database, it).fields_ever(wanted(range(4))).values())


@pytest.mark.proof
def test_many_series_are_few_commands_and_each_is_asked_for_once(database: Db) -> None:
    it = policy(BOTH)
    load(database, it, 300)
    found = NumericHistory(database, it)
    database.command("profile", 2)
    for _ in range(2):
        found.fields_ever(wanted(range(250)))
    database.command("profile", 0)
    asked = list(database["system.profile"].find({"command.aggregate": {"$exists": True}}))
    assert len(asked) == 3
    assert all("IXSCAN" in one["planSummary"] for one in asked)
    assert sum(one["docsExamined"] for one in asked) == 250 * DAYS


def test_without_summaries_nothing_is_known(database: Db) -> None:
    it = policy(BOTH).model_copy(update={"rollup": None})
    assert NumericHistory(database, it).fields_ever(wanted(range(1))) == {series_key(series(0)): set()}
