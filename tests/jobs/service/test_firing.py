"""APScheduler fires when cron does."""

from __future__ import annotations

from datetime import datetime, timedelta

from apscheduler.triggers.base import BaseTrigger
from hypothesis import given
from hypothesis import strategies as st

from bucketwise.config.cron import parse_cron
from bucketwise.jobs.schedule.scheduler import CronTrigger
from tests.config.test_cron import instants


@given(st.sampled_from(["*/7 * * * *", "0 0 13 * fri", "5 4 29 2 *", "@weekly"]), instants)
def test_the_trigger_walks_from_firing_to_firing(text: str, instant: datetime) -> None:
    trigger = CronTrigger(parse_cron(text))
    assert isinstance(trigger, BaseTrigger)
    first = trigger.get_next_fire_time(None, instant)
    second = trigger.get_next_fire_time(first, instant)
    assert first is not None
    assert second is not None
    assert trigger.cron.last_until(second - timedelta(minutes=1)) == first
