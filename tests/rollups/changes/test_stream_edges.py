"""Change streams at their edges: updates that tell little, busy writers, collections that come and go."""

# mypy: disable-error-code="index, union-attr"

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from bucketwise.buckets.source import Source
from bucketwise.config.models import make_policy
from bucketwise.rollups.calendar.windows import to_ms
from bucketwise.rollups.changes.collector import ChangeCollector, EventReader
from bucketwise.rollups.changes.drain import Stream
from bucketwise.rollups.progress import load as loaded
from tests.rollups.changes.test_stream import (
    DAY,
    FIRST,
    HOUR,
    MINUTE,
    NOW,
    OLD,
    bucket,
    late_of,
    load,
    mended,
    overflowing,
    reading,
    readings,
    samples,
    windows,
)
from tests.rollups.conftest import Bench

Document = dict[str, Any]


def one(at: Any, price: float = 9.0) -> Document:
    return {"time": at, "p": price}


@pytest.mark.proof
def test_the_first_sample_is_given_a_later_time(bench: Bench) -> None:
    policy = samples()
    load(bench, policy)
    later = [OLD + HOUR + n * MINUTE for n in range(3)]
    bench.database["ticks"].update_one(
        {"_id": 32},
        {
            "$set": {
                **{f"samples.{n}": one(at) for n, at in enumerate(later)},
                "first": later[0],
                "last": later[2],
            }
        },
    )
    mended(bench, policy)


def test_only_the_first_sample_is_given_a_later_time(bench: Bench) -> None:
    policy = samples()
    bench.database["ticks"].insert_one(bucket(1, FIRST))  # an older one: nothing outlives its readings
    bench.database["ticks"].insert_one(
        {
            "_id": 0,
            "symbol": "A",
            "first": OLD,
            "last": OLD + 2 * HOUR,
            "samples": [one(OLD), one(OLD + HOUR), one(OLD + 2 * HOUR)],
        }
    )
    bench.roll_up(policy, NOW)
    bench.database["ticks"].update_one(
        {"_id": 0}, {"$set": {"samples.0": one(OLD + HOUR + MINUTE), "first": OLD + HOUR}}
    )
    mended(bench, policy)


def test_a_counted_bucket_has_its_last_sample_changed_as_one_is_added(bench: Bench) -> None:
    policy = samples(count_field="n")
    bench.database["ticks"].insert_one(
        {
            "_id": 0,
            "symbol": "A",
            "n": 3,
            "first": OLD,
            "last": OLD + 5 * HOUR,
            "samples": [one(OLD), one(OLD + HOUR), one(OLD + 5 * HOUR)],
        }
    )
    bench.roll_up(policy, NOW)
    bench.database["ticks"].update_one(
        {"_id": 0},
        {
            "$set": {
                "samples.2": one(OLD + 2 * HOUR),
                "samples.3": one(OLD + 3 * HOUR),
                "last": OLD + 3 * HOUR,
            },
            "$inc": {"n": 1},
        },
    )
    mended(bench, policy)


@pytest.mark.proof
def test_a_collection_comes_by_renaming_after_a_run_without_one(bench: Bench) -> None:
    policy, ticks = readings(), bench.database["ticks"]
    load(bench, policy)
    ticks.rename("elsewhere")
    bench.roll_up(policy, NOW)
    bench.database["elsewhere"].update_one({"_id": 32}, {"$set": {"p": 7.0}})
    bench.database["elsewhere"].rename("ticks")
    mended(bench, policy)


def test_a_plan_ends_while_readings_come_in(bench: Bench) -> None:
    policy = readings()
    load(bench, policy)
    done, stop = threading.Event(), threading.Event()

    def write() -> None:
        n = 0
        while not stop.is_set():
            bench.database["ticks"].update_one({"_id": 32}, {"$inc": {"p": 1.0}})
            n += 1

    def plan() -> None:
        bench.roll_up(policy, NOW, dry_run=True)
        done.set()

    writer = threading.Thread(target=write)
    planner = threading.Thread(target=plan, daemon=True)
    writer.start()
    planner.start()
    ended = done.wait(60)
    stop.set()
    writer.join()
    planner.join()
    assert ended


def test_a_view_as_source(bench: Bench) -> None:
    bench.database["real"].insert_one(reading(1, FIRST))
    bench.database.create_collection("ticks", viewOn="real", pipeline=[])
    assert bench.roll_up(readings(), NOW).hourly.written == 1


@pytest.mark.proof
def test_deletes_in_many_transactions_are_not_gathered_one_by_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, held = readings(), []
    load(bench, policy)
    taken = ChangeCollector.add

    def add(self: ChangeCollector, event: Document) -> None:
        taken(self, event)
        held.append(len(self._deletes[1]) if self._deletes else 0)

    for n in range(20):
        with bench.database.client.start_session() as session, session.start_transaction():
            bench.database["ticks"].delete_one({"_id": n}, session=session)
    monkeypatch.setattr(ChangeCollector, "add", add)
    assert bench.roll_up(policy, NOW).hourly.kept == 20, "the oldest"
    assert held == [1] * 20


@pytest.mark.proof
def test_check_is_asked_while_many_events_are_read(bench: Bench) -> None:
    policy = readings()
    load(bench, policy)
    bench.database["ticks"].update_many({}, {"$inc": {"p": 1.0}})
    for _ in range(30):
        bench.database["ticks"].update_many({}, {"$inc": {"p": 1.0}})
    stream = Stream(policy, Source(bench.database, policy), "books")
    bookmark = loaded(bench.database, policy).bookmark
    assert bookmark is not None
    asked: list[int] = []
    changed = stream.drain(bookmark.token, None, lambda: asked.append(1))
    assert changed.events > 2000
    assert asked


@pytest.mark.proof
@pytest.mark.in_turn(2)
@pytest.mark.parametrize("how", ["addToSet", "sort", "last alone"])
def test_an_ordinary_way_to_append_does_not_cost_a_look_back(bench: Bench, how: str) -> None:
    policy = samples()
    load(bench, policy)
    ticks = bench.database["ticks"]
    if how == "addToSet":
        ticks.update_one(
            {"_id": 95},
            {
                "$addToSet": {"samples": one(FIRST + 95 * 3 * HOUR + 5 * MINUTE)},
                "$max": {"last": FIRST + 95 * 3 * HOUR + 5 * MINUTE},
            },
        )
    elif how == "sort":
        new = FIRST + 95 * 3 * HOUR + 5 * MINUTE
        ticks.update_one(
            {"_id": 95},
            {"$push": {"samples": {"$each": [one(new)], "$sort": {"time": 1}}}, "$max": {"last": new}},
        )
    else:
        new = FIRST + 95 * 3 * HOUR + 5 * MINUTE
        ticks.update_one({"_id": 95}, {"$push": {"samples": one(new)}})
        ticks.update_one({"_id": 95}, {"$max": {"last": new}})
    report = mended(bench, policy)
    assert report.daily.due == 1, late_of(report)


@pytest.mark.proof
def test_where_nothing_changed_little_is_looked_at(bench: Bench) -> None:
    """Buckets of an hour, none at midnight, and the indexes that `check` asks for."""
    policy, ticks = samples(), bench.database["ticks"]
    ticks.create_index("first")
    ticks.create_index("last")
    numbered = enumerate((day, hour) for day in range(100) for hour in range(1, 23))
    ticks.insert_many([bucket(n, FIRST + day * DAY + hour * HOUR) for n, (day, hour) in numbered])
    now = FIRST + 140 * DAY
    bench.roll_up(policy, now)

    def scanned() -> int:
        status = bench.database.client.admin.command("serverStatus")
        return int(status["metrics"]["queryExecutor"]["scanned"])

    before = scanned()
    assert windows(bench.roll_up(policy, now)) == (0, 0)
    assert scanned() - before < 2200


@pytest.mark.parametrize(
    ("touched", "expected"), [("h.5", (False, False)), ("h.3.t", (False, True)), ("h", (False, True))]
)
def test_a_sample_that_is_added_tells_its_time_and_a_changed_one_does_not(
    touched: str, expected: tuple[bool, bool]
) -> None:
    """Where no field tells when a bucket starts, and what it was before is not known."""
    keys: dict[str, Any] = {
        "collection": "it",
        "series_fields": ("d",),
        "value_fields": ("v",),
        "sample_time_field": "t",
    }
    policy = make_policy(name="it", model="samples", samples_field="h", **keys)
    times = {"first": [datetime(2026, 1, 5, tzinfo=UTC)], "last": [datetime(2026, 1, 5, tzinfo=UTC)]}
    event = {"ns": {"coll": "it"}, "documentKey": {"_id": 1}, "operationType": "update", "set": [touched]}
    change = EventReader(policy).read({**event, "now": times, "before": {}, "is_before_known": False})
    assert (change.open_ended, change.unknown) == expected
    assert [first for first, _ in change.spans] == [to_ms(datetime(2026, 1, 5, tzinfo=UTC))]


@pytest.mark.parametrize(
    ("operation", "touched", "is_before_known", "is_unknown"),
    [
        ("insert", [], False, False),
        ("delete", [], False, True),
        ("delete", [], True, False),
        ("update", ["samples.0.p"], False, False),
        ("update", ["bucket"], False, True),
        ("update", ["bucket"], True, False),
    ],
)
def test_what_overflow_was_of_is_not_known_where_no_image_tells(
    operation: str, touched: list[str], is_before_known: bool, is_unknown: bool
) -> None:
    event: Document = {"ns": {"coll": "extra"}, "documentKey": {"_id": 5}, "operationType": operation}
    after = {"ref": 7} if operation != "delete" else {}
    before = {"ref": 8} if is_before_known else {}
    change = EventReader(overflowing()).read(
        {**event, "now": after, "before": before, "set": touched, "is_before_known": is_before_known}
    )
    assert change.unknown == is_unknown
    assert set(change.buckets) == {*after.values(), *before.values()}
    assert change.overflow == ([5] if operation == "update" else ())
