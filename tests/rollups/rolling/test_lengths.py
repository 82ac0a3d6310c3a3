"""Roll-ups of many days of sample buckets: what is looked at grows with the days, and with nothing else."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bucketwise.buckets.source import Source
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Policy
from tests.rollups.conftest import Bench

Document = dict[str, Any]
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
FIRST = datetime(2020, 3, 1, tzinfo=UTC)


def policy_of(**more: Any) -> Policy:
    return make_policy(
        name="p",
        collection="c",
        model="samples",
        start_field="first",
        end_field="last",
        sample_time_field="t",
        samples_field="samples",
        value_fields=("v",),
        series_fields=("s",),
        **{"rollup": {"hourly": "h", "daily": "d"}, **more},
    )


def bucket(first: datetime, last: datetime) -> Document:
    times = [first, first + (last - first) / 2, last]
    samples = [{"t": at.replace(microsecond=0), "v": 1.5} for at in times]
    return {"s": "a", "first": first, "last": last, "samples": samples}


def load(bench: Bench, days: int, *, has_long: bool = True) -> None:
    """Half an hour of each hour, and one bucket as long as all of them."""
    found = bench.database["c"]
    for field in ("first", "last"):
        found.create_index(field)
    starts = [FIRST + i * HOUR + HOUR / 12 for i in range(24 * days)]
    found.insert_many([bucket(at, at + HOUR / 2) for at in starts])
    if has_long:
        found.insert_one(bucket(FIRST + HOUR, FIRST + days * DAY - HOUR))


def examined(bench: Bench, days: int, *, has_long: bool) -> int:
    """How many buckets MongoDB looks at in a first roll-up of so many days."""
    load(bench, days, has_long=has_long)
    database = bench.database
    database.create_collection("system.profile", capped=True, size=50_000_000)
    database.command({"profile": 2, "slowms": 0})
    bench.roll_up(policy_of(), FIRST + (days + 2) * DAY)
    database.command({"profile": 0})
    ns = {"ns": f"{database.name}.c"}
    found = sum(int(it.get("docsExamined", 0)) for it in database["system.profile"].find(ns))
    assert database["h"].count_documents({}) == 24 * days
    database.client.drop_database(database.name)
    return found


@pytest.mark.parametrize("has_long", [True, False])
def test_a_first_roll_up_looks_at_each_bucket_a_few_times(bench: Bench, has_long: bool) -> None:
    of_few = examined(bench, 30, has_long=has_long)
    assert of_few <= 3 * 24 * 30
    assert examined(bench, 60, has_long=has_long) <= 2.2 * of_few


#: Days that are to be rolled up, from the first one on.
WEEKS, AFTER_A_WEEK, AFTER_TWO = (0, 6, 12, 18), (0, 1, 9), (0, 1, 17)


@pytest.mark.parametrize(
    ("days", "late_data", "looks"),
    [
        ((0, 1, 2), "stream", True),
        (WEEKS, "stream", True),
        (AFTER_A_WEEK, "stream", True),
        (AFTER_TWO, "stream", False),  # and all between would be looked at
        ((0, 1), "stream", False),
        ((0, 1, 2), "scan", False),  # nobody would learn of what changes meanwhile
    ],
)
def test_lengths_are_looked_at_where_that_pays(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, days: tuple[int, ...], late_data: str, looks: bool
) -> None:
    found, asked = bench.database["c"], list[int]()
    found.create_index("first")
    found.insert_many([bucket(FIRST + it * DAY + HOUR, FIRST + it * DAY + 2 * HOUR) for it in days])
    after_the_look(monkeypatch, lambda *_given: asked.append(1))
    bench.roll_up(policy_of(rollup={"hourly": "h", "daily": "d", "late_data": late_data}), FIRST + 30 * DAY)
    assert len(asked) == looks


def test_lengths_are_looked_at_as_far_as_is_due(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Late buckets of the first days: those of the weeks after them are not looked at."""
    load(bench, 30, has_long=False)
    bench.roll_up(policy_of(), FIRST + 40 * DAY)
    late = [bucket(FIRST + day * DAY + HOUR, FIRST + day * DAY + 2 * HOUR) for day in range(3)]
    bench.database["c"].insert_many([{**it, "s": "b"} for it in late])
    looks = list[tuple[int, int]]()
    after_the_look(monkeypatch, lambda *given: looks.append(given))
    bench.roll_up(policy_of(), FIRST + 40 * DAY)
    assert hours(bench, "b") == {FIRST + day * DAY + hour * HOUR for day in range(3) for hour in (1, 2)}
    ((start, end),) = looks
    first = int(FIRST.timestamp() * 1000)
    assert first - DAY // timedelta(milliseconds=1) <= start <= first
    assert end <= first + 4 * DAY // timedelta(milliseconds=1)


def hours(bench: Bench, series: str) -> set[datetime]:
    return {it["start"] for it in bench.database["h"].find({"_id.series.s": series})}


def after_the_look(patch: pytest.MonkeyPatch, change: Callable[[int, int], object]) -> None:
    """`change`: is given what was looked at."""
    look = Source.look_at_lengths

    def then(source: Source, start_ms: int, end_ms: int) -> None:
        look(source, start_ms, end_ms)
        change(start_ms, end_ms)

    patch.setattr(Source, "look_at_lengths", then)


#: Some that the look takes for usual ones, and some that it knows to be longer.
@pytest.mark.parametrize("length", [HOUR, 6 * HOUR - HOUR / 60, 14 * HOUR, 3 * DAY], ids=str)
@pytest.mark.parametrize("late_data", ["stream", "scan"])
def test_what_is_filled_meanwhile_is_found_all_the_same(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, length: timedelta, late_data: str
) -> None:
    """All that lay there before the run is in its summaries."""
    load(bench, 12)
    policy = policy_of(rollup={"hourly": "h", "daily": "d", "late_data": late_data})
    first = FIRST + DAY - HOUR
    bench.database["c"].insert_one({**bucket(first, first + length), "s": "b"})
    wanted = {(first + part * length / 2).replace(minute=0, second=0) for part in range(3)}

    def fill(*_given: int) -> None:
        more = first + length + 5 * DAY
        filled: Document = {"$push": {"samples": {"t": more, "v": 2.0}}, "$set": {"last": more}}
        bench.database["c"].update_one({"s": "b"}, filled)

    with monkeypatch.context() as patch:
        after_the_look(patch, fill)
        bench.roll_up(policy, FIRST + 14 * DAY)
    assert hours(bench, "b") >= wanted


def test_one_that_begins_earlier_meanwhile_is_rolled_up_by_the_next_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(bench, 12)
    database, policy, now = bench.database, policy_of(), FIRST + 14 * DAY
    database["c"].insert_one({**bucket(FIRST + 10 * DAY, FIRST + 10 * DAY + HOUR), "s": "b"})
    earlier = FIRST + 2 * HOUR

    def begin_earlier(*_given: int) -> None:
        sample = {"$each": [{"t": earlier, "v": 2.0}], "$position": 0}
        database["c"].update_one({"s": "b"}, {"$push": {"samples": sample}, "$set": {"first": earlier}})

    with monkeypatch.context() as patch:
        after_the_look(patch, begin_earlier)
        bench.roll_up(policy, now)
    bench.roll_up(policy, now)
    at = FIRST + 10 * DAY
    assert hours(bench, "b") == {earlier, at, at + HOUR}
