"""Summaries get a tombstone once they are past their `retain`, and go when it has stood; not before."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from pymongo import MongoClient

from bucketwise.buckets.fields.times import TimeRange
from bucketwise.config.errors import HaltedError
from bucketwise.config.policies import Policy, Retain, Rule, RuleRetain
from bucketwise.rollups.calendar.windows import to_ms
from bucketwise.rollups.progress import note_ended
from bucketwise.rollups.rolling.expiry import count_expired, count_overdue, expire_summaries, lift_tombstones
from tests.rollups.conftest import Bench, nobody_else
from tests.rollups.rolling.test_rollup import DAY, FIRST, HOUR, NOW, policy_of, tick

AT_ONCE = Retain(hourly=10 * HOUR, daily=None, grace=timedelta(0))
LATER = FIRST + 1201 * HOUR
GONE_AND_WAITING = tuple[int, int]
Document = dict[str, Any]


def keeping(hours: int, grace: timedelta = 7 * DAY, **more: Any) -> Policy:
    return policy_of(retain=Retain(hourly=hours * HOUR, grace=grace), **more)


@pytest.fixture(scope="module")
def rolled_up(client: MongoClient[Document]) -> Iterator[dict[str, list[Document]]]:
    """All collections once 1,200 hours of one series are rolled up, 1,200 hours old at most."""
    database = client[f"test_{uuid4().hex[:12]}"]
    database["ticks"].insert_many([tick(n, "A", FIRST + n * HOUR) for n in range(1200)])
    Bench(database).roll_up(policy_of(), LATER)
    yield {name: list(database[name].find()) for name in database.list_collection_names()}
    client.drop_database(database.name)


@pytest.fixture
def full(bench: Bench, rolled_up: dict[str, list[Document]]) -> Bench:
    for name, documents in rolled_up.items():
        if documents:
            bench.database[name].insert_many(documents)
    return bench


def expire(bench: Bench, policy: Policy, now: datetime, **more: Any) -> GONE_AND_WAITING:
    """Says what a dry run would, and does it."""
    said = count_expired(bench.context(policy, now))
    done = expire_summaries(bench.context(policy, now), **more)
    assert (said.gone, said.waiting) == (done.gone, done.waiting)
    return done.gone["hourly"], done.waiting["hourly"]


@pytest.mark.proof
def test_a_summary_goes_once_its_window_ended_before_the_retention(full: Bench) -> None:
    full.database["hourly"].insert_one({"_id": "mine", "start": FIRST, "end": FIRST})
    policy = policy_of(retain=AT_ONCE)
    assert count_expired(full.context(policy, LATER)).gone == {"hourly": 1190, "daily": 0}
    assert full.database["hourly"].count_documents({}) == 1201
    assert expire_summaries(full.context(policy, LATER)).gone == {"hourly": 1190, "daily": 0}
    assert full.starts("hourly") == [FIRST, *(LATER - n * HOUR for n in range(11, 1, -1))]
    assert expire_summaries(full.context(policy, LATER)).gone == {"hourly": 0, "daily": 0}


def test_without_retention_nothing_goes(bench: Bench) -> None:
    bench.database["ticks"].insert_one(tick(1, "A", FIRST))
    bench.roll_up(policy_of(), NOW)
    assert expire_summaries(bench.context(policy_of(), NOW + 9999 * DAY)).gone == {"hourly": 0, "daily": 0}
    daily_only = policy_of(rollup={"daily": "daily"}, retain=Retain(daily=DAY, grace=timedelta(0)))
    assert expire_summaries(bench.context(daily_only, NOW)).gone == {"daily": 1}
    assert expire_summaries(bench.context(policy_of(rollup=None), NOW)).gone == {}


@pytest.mark.proof
def test_it_goes_when_its_tombstone_has_stood_for_the_grace(full: Bench) -> None:
    """Each day's tombstone has its own grace."""
    policy = keeping(1000)
    assert expire(full, policy, LATER) == (0, 200)
    assert expire(full, policy, LATER) == (0, 200)
    assert expire(full, policy, LATER + DAY) == (0, 224)
    assert expire(full, policy, LATER + 7 * DAY - HOUR) == (0, 200 + 7 * 24 - 1)
    assert expire(full, policy, LATER + 7 * DAY) == (200, 7 * 24)
    assert expire(full, policy, LATER + 8 * DAY - HOUR) == (0, 8 * 24 - 1)
    assert expire(full, policy, LATER + 8 * DAY) == (24, 7 * 24)
    assert min(full.starts("hourly")) == FIRST + 224 * HOUR


@pytest.mark.proof
def test_a_longer_retention_lifts_what_waits(full: Bench) -> None:
    """And the mistake begins from the start where it is made again."""
    assert expire(full, keeping(24), LATER) == (0, 1176)
    assert expire(full, keeping(9999), LATER + 8 * DAY) == (0, 0)
    assert expire(full, keeping(24), LATER + 8 * DAY) == (0, 1190)
    assert expire(full, keeping(24), LATER + 15 * DAY) == (1190, 0)


def ruled(hours: int, rule: Rule) -> Policy:
    return keeping(hours, rules=(rule,))


@pytest.mark.proof
def test_tombstones_stay_void_when_the_length_that_placed_them_comes_back(full: Bench) -> None:
    assert expire(full, keeping(24), LATER) == (0, 1176)
    expire(full, policy_of(), LATER + DAY)
    assert expire(full, keeping(24), LATER + 8 * DAY) == (0, 1190)
    assert expire(full, keeping(24), LATER + 15 * DAY) == (1190, 0)


@pytest.mark.proof
def test_tombstones_of_a_rule_stay_void_when_it_comes_back(full: Bench) -> None:
    policy = ruled(9999, Rule(match={"symbol": ("A",)}, retain=RuleRetain(hourly=DAY)))
    assert expire(full, policy, LATER) == (0, 1176)
    expire(full, policy_of(), LATER + DAY)
    assert expire(full, policy, LATER + 8 * DAY) == (0, 1190)
    assert expire(full, policy, LATER + 15 * DAY) == (1190, 0)


def test_a_lift_holds_for_a_rule_that_comes_later(full: Bench) -> None:
    expire(full, keeping(24), LATER)
    assert lift_tombstones(full.context(keeping(24), LATER), TimeRange(None, None)) == 1176
    policy = ruled(24, Rule(match={"symbol": ("A",)}, retain=RuleRetain(hourly=2 * DAY)))
    for days in (1, 8, 29):
        assert expire(full, policy, LATER + days * DAY)[0] == 0
    assert expire(full, policy, LATER + 38 * DAY) == (1190, 0)


@pytest.mark.proof
def test_a_changed_rule_brings_back_what_its_own_series_keep(bench: Bench) -> None:
    """No summary is made that is past its time, and has to go again."""
    rows = [(symbol, FIRST + n * HOUR) for symbol in "ABC" for n in range(120)]
    bench.database["ticks"].insert_many(tick(n, *row) for n, row in enumerate(rows))
    now = FIRST + 121 * HOUR

    def run(others: int, **rules: int | None) -> tuple[dict[str, int], int]:
        """How many hours of each series stand, of the rules and of the others, and how many went."""
        lengths = ((name, None if hours is None else hours * HOUR) for name, hours in rules.items())
        policy = keeping(
            others,
            timedelta(0),
            rules=tuple(Rule(match={"symbol": (it,)}, retain=RuleRetain(hourly=n)) for it, n in lengths),
        )
        bench.roll_up(policy, now)
        gone = expire(bench, policy, now)[0]
        series = [it["_id"]["series"]["symbol"] for it in bench.database["hourly"].find()]
        return {it: series.count(it) for it in "ABC"}, gone

    assert run(24, A=48) == ({"A": 48, "B": 24, "C": 24}, 0)
    assert run(24, A=48, B=72) == ({"A": 48, "B": 72, "C": 24}, 0)
    assert run(30, A=48, B=60) == ({"A": 48, "B": 60, "C": 30}, 12)
    assert run(30, B=60, A=None) == ({"A": 120, "B": 60, "C": 30}, 0)
    assert run(40) == ({"A": 40, "B": 40, "C": 40}, 80 + 20)
    assert run(40, C=24) == ({"A": 40, "B": 40, "C": 24}, 16)
    bench.database["ticks"].insert_many(tick(1000 + n, "ABC"[n], FIRST + 50 * HOUR) for n in range(3))
    assert run(40, C=24, B=30) == ({"A": 40, "B": 30, "C": 24}, 10)


def test_a_late_reading_counts_where_the_archive_of_other_series_ended(bench: Bench) -> None:
    ticks, kept = bench.database["ticks"], bench.database["archive"]
    archive = {"after": DAY, "to": "online", "collection": "archive"}
    rule = Rule(match={"symbol": ("A",)}, retain=RuleRetain(archive=30 * DAY))
    policy = policy_of(archive=archive, rules=(rule,))
    ticks.insert_many(tick(n, "AB"[n], FIRST) for n in range(2))
    bench.roll_up(policy, LATER)
    kept.insert_one(tick(1, "B", FIRST))
    ticks.delete_many({})
    note_ended(bench.database, policy, to_ms(FIRST + DAY), {0}, nobody_else)
    ticks.insert_many(tick(10 + n, "AB"[n], FIRST + HOUR / 2) for n in range(2))

    def counts(policy: Policy) -> dict[str, int]:
        bench.roll_up(policy, LATER)
        found = bench.database["hourly"].find({"start": FIRST})
        return {it["_id"]["series"]["symbol"]: it["count"] for it in found}

    assert counts(policy) == {"A": 1, "B": 2}
    ticks.insert_many(tick(20 + n, "AB"[n], FIRST + HOUR / 2) for n in range(2))
    more = Rule(match={"symbol": ("B",)}, retain=RuleRetain(hourly=9999 * DAY))
    assert counts(policy.model_copy(update={"rules": (rule, more)})) == {"A": 1, "B": 3}
    ticks.insert_many(tick(30 + n, "AB"[n], FIRST + HOUR / 2) for n in range(2))
    moved = policy.model_copy(update={"rules": (more, rule)})  # of its series any may have ended
    assert counts(moved) == {"A": 1, "B": 3}


@pytest.mark.proof
def test_a_late_reading_counts_while_its_summary_waits(full: Bench) -> None:
    policy = keeping(24)
    expire(full, policy, LATER)
    full.database["ticks"].insert_one(tick(5000, "A", FIRST + HOUR / 2))
    full.roll_up(policy, LATER)
    first = full.database["hourly"].find_one({"start": FIRST})
    assert first is not None
    assert first["count"] == 2
    assert full.roll_up(policy, LATER, whole=True).written == 0
    expire(full, policy, LATER + 7 * DAY)
    full.database["ticks"].insert_one(tick(5001, "A", FIRST + HOUR / 2))
    full.roll_up(policy, LATER + 7 * DAY)
    assert full.database["hourly"].count_documents({"start": FIRST}) == 0


@pytest.mark.proof
def test_what_is_lifted_stays_for_thirty_days_and_its_grace(full: Bench) -> None:
    policy = keeping(24)
    assert lift_tombstones(full.context(policy, LATER), TimeRange(None, None)) == 0
    expire(full, policy, LATER)
    within = TimeRange(FIRST + 100 * HOUR, FIRST + 110 * HOUR)
    assert lift_tombstones(full.context(policy, LATER + DAY), within) == 10
    assert lift_tombstones(full.context(policy, LATER + DAY), within) == 0
    assert expire(full, policy, LATER + 7 * DAY) == (100, 1090)
    assert min(full.starts("hourly")) == FIRST + 100 * HOUR
    assert expire(full, policy, LATER + 38 * DAY - HOUR) == (0, 1090)
    assert expire(full, policy, LATER + 38 * DAY) == (1090, 0)


@pytest.mark.proof
def test_a_lift_in_the_middle_of_a_run_keeps_the_rest(full: Bench) -> None:
    """And what is recorded as gone is what has gone."""
    policy = keeping(24)
    expire(full, policy, LATER)
    context = full.context(policy, LATER + 7 * DAY)

    def lifting(_what: str, _count: int, _share: float | None = None, /) -> None:
        lift_tombstones(context, TimeRange(None, None))

    run = type(context)(context.database, policy, context.now, context.guard, context.check, lifting)
    assert expire_summaries(run).gone["hourly"] == 1000
    full.database["ticks"].insert_many([tick(6000 + n, "A", FIRST + n * HOUR) for n in (999, 1000)])
    full.roll_up(policy, LATER + 7 * DAY)
    counts = {it["start"]: it["count"] for it in full.database["hourly"].find()}
    assert (min(counts), counts[FIRST + 1000 * HOUR], len(counts)) == (FIRST + 1000 * HOUR, 2, 200)


@pytest.mark.proof
@pytest.mark.parametrize("limit", ["20%", 240])
def test_no_more_of_a_collection_goes_than_max_delete(full: Bench, limit: str | int) -> None:
    """The backlog of all the time in which no run was included."""
    archive = {"after": DAY, "to": "online", "collection": "a", "max_delete": limit}
    small, large = (keeping(hours, timedelta(0), archive=archive) for hours in (961, 960))
    said = count_expired(full.context(large, LATER)).limits
    assert [(it.due, it.total, it.most, it.is_exceeded) for it in said] == [(240, 1200, 240, False)]
    before = full.raw("hourly")
    with pytest.raises(HaltedError, match="it would remove 241 of the 1,200 summaries of hourly, and arch"):
        expire_summaries(full.context(keeping(959, timedelta(0), archive=archive), LATER))
    assert full.raw("hourly") == before
    assert expire(full, small, LATER) == (239, 0)
    assert expire(full, keeping(100, timedelta(0), archive=archive), LATER, allow_large=True) == (861, 0)


@pytest.mark.proof
def test_what_no_run_has_seen_to_is_overdue(full: Bench) -> None:
    policy = keeping(1000)

    def overdue(now: datetime) -> int:
        return count_overdue(full.context(policy, now), DAY)["hourly"]

    assert overdue(LATER) == 176
    expire(full, policy, LATER)
    assert [overdue(LATER + n * DAY) for n in (0, 1, 2)] == [0, 0, 24]
    expire(full, policy, LATER + 7 * DAY)
    assert overdue(LATER + 7 * DAY) == 0
    assert overdue(LATER + 8 * DAY) == 0
    expire(full, policy, LATER + 13 * DAY)
    assert overdue(LATER + 14 * DAY) == 0
    assert overdue(LATER + 15 * DAY) == 24 + 168
