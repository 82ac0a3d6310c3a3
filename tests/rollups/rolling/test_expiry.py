"""Summaries go once they are past their `retain`, and not before."""

from __future__ import annotations

from datetime import timedelta

from config.policies import Retain
from rollups.rolling.expiry import count_expired, expire_summaries
from tests.rollups.conftest import Bench
from tests.rollups.rolling.test_rollup import DAY, FIRST, HOUR, NOW, policy_of, tick


def test_a_summary_goes_once_its_window_ended_before_the_retention(bench: Bench) -> None:
    bench.database["ticks"].insert_many([tick(n, "A", FIRST + n * HOUR) for n in range(1200)])
    later = FIRST + 1201 * HOUR
    bench.roll_up(policy_of(), later)
    bench.database["hourly"].insert_one({"_id": "mine", "start": FIRST, "end": FIRST})
    policy = policy_of(retain=Retain(hourly=10 * HOUR, daily=None))
    assert count_expired(bench.context(policy, later)).gone == {"hourly": 1190, "daily": 0}
    assert bench.database["hourly"].count_documents({}) == 1201
    assert expire_summaries(bench.context(policy, later)).gone == {"hourly": 1190, "daily": 0}
    assert bench.starts("hourly") == [FIRST, *(later - n * HOUR for n in range(11, 1, -1))]
    assert expire_summaries(bench.context(policy, later)).gone == {"hourly": 0, "daily": 0}


def test_without_retention_nothing_goes(bench: Bench) -> None:
    bench.database["ticks"].insert_one(tick(1, "A", FIRST))
    bench.roll_up(policy_of(), NOW)
    assert expire_summaries(bench.context(policy_of(), NOW + 9999 * DAY)).gone == {"hourly": 0, "daily": 0}
    daily_only = policy_of(rollup={"daily": "daily"}, retain=Retain(daily=timedelta(days=1)))
    assert expire_summaries(bench.context(daily_only, NOW)).gone == {"daily": 1}
    assert expire_summaries(bench.context(policy_of(rollup=None), NOW)).gone == {}
