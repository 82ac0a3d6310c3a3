"""Firing times against the plainest oracle: look at every minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from apscheduler.triggers.base import BaseTrigger
from hypothesis import given
from hypothesis import strategies as st

from config.cron import parse_cron
from jobs.service.firing import CronTrigger, first_after, last_until

MINUTE = timedelta(minutes=1)


def matches(text: str, at: datetime) -> bool:
    """Cron's rule, read from the text alone: numbers, `*`, lists."""
    minute, hour, day, month, weekday = text.split()

    def fits(field: str, value: int) -> bool:
        return field == "*" or value in [int(part) for part in field.split(",")]

    fits_day, fits_weekday = fits(day, at.day), fits(weekday, (at.weekday() + 1) % 7)
    date_fits = (fits_day or fits_weekday) if day != "*" and weekday != "*" else (fits_day and fits_weekday)
    return fits(minute, at.minute) and fits(hour, at.hour) and fits(month, at.month) and date_fits


def field(low: int, high: int) -> st.SearchStrategy[str]:
    numbers = st.lists(st.integers(low, high), min_size=1, max_size=4, unique=True)
    return st.just("*") | numbers.map(lambda values: ",".join(map(str, values)))


expressions = st.tuples(field(0, 59), field(0, 23), field(1, 31), st.just("*"), field(0, 6)).map(" ".join)
instants = st.integers(0, 4 * 366 * 86_400).map(
    lambda seconds: datetime(2023, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
)


@given(expressions, instants)
def test_no_firing_is_missed_or_made_up(text: str, instant: datetime) -> None:
    cron = parse_cron(text)
    floor = instant.replace(second=0, microsecond=0)
    span = [floor + count * MINUTE for count in range(-3000, 3000)]
    before = [at for at in span if at <= instant and matches(text, at)]
    after = [at for at in span if at > instant and matches(text, at)]
    found_before, found_after = last_until(cron, instant), first_after(cron, instant)
    if before:
        assert found_before == before[-1]
    else:
        assert found_before is not None
        assert found_before < span[0]
        assert matches(text, found_before)
    if after:
        assert found_after == after[0]
    else:
        assert found_after is not None
        assert found_after > span[-1]
        assert matches(text, found_after)


@given(expressions, instants)
def test_the_trigger_walks_from_firing_to_firing(text: str, instant: datetime) -> None:
    trigger = CronTrigger(parse_cron(text))
    assert isinstance(trigger, BaseTrigger)
    first = trigger.get_next_fire_time(None, instant)
    second = trigger.get_next_fire_time(first, instant)
    assert first is not None
    assert second is not None
    assert last_until(trigger.cron, second - MINUTE) == first


@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        ("0 0 * * 0", "2026-11-21T12:00Z", "2026-11-22T00:00Z"),  # 0 is Sunday
        ("0 0 * * 7", "2026-11-21T12:00Z", "2026-11-22T00:00Z"),  # so is 7
        ("0 0 * * mon", "2026-11-21T12:00Z", "2026-11-23T00:00Z"),
        ("0 0 13 * 5", "2026-11-21T12:00Z", "2026-11-27T00:00Z"),  # a 13th or a Friday
        ("0 0 */2 * 5", "2026-11-21T12:00Z", "2026-11-27T00:00Z"),  # a star: both must fit
        ("0 0 29 2 *", "2026-11-21T12:00Z", "2028-02-29T00:00Z"),
        ("0 0 29 2 *", "2096-03-01T12:00Z", "2104-02-29T00:00Z"),
        ("59 23 31 12 *", "2026-12-31T23:59Z", "2027-12-31T23:59Z"),
        ("*/5 * * * *", "2026-11-21T12:00:01Z", "2026-11-21T12:05Z"),
        ("@daily", "2026-11-21T00:00Z", "2026-11-22T00:00Z"),
    ],
)
def test_next_firings(text: str, after: str, expected: str) -> None:
    assert first_after(parse_cron(text), datetime.fromisoformat(after)) == datetime.fromisoformat(expected)
