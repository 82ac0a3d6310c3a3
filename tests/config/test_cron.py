from __future__ import annotations

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.cron import CronError, parse_cron

EVERY_MINUTE, EVERY_HOUR = frozenset(range(60)), frozenset(range(24))
EVERY_DAY, EVERY_MONTH, EVERY_WEEKDAY = frozenset(range(1, 32)), frozenset(range(1, 13)), frozenset(range(7))


def test_stars() -> None:
    cron = parse_cron("* * * * *")
    assert (cron.minute, cron.hour) == (EVERY_MINUTE, EVERY_HOUR)
    assert (cron.day, cron.month, cron.weekday) == (EVERY_DAY, EVERY_MONTH, EVERY_WEEKDAY)
    assert not cron.day_restricted
    assert not cron.weekday_restricted


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("5", {5}),
        ("5,7,5", {5, 7}),
        ("10-13", {10, 11, 12, 13}),
        ("*/20", {0, 20, 40}),
        ("10-30/10", {10, 20, 30}),
        ("1-9/5,58-59", {1, 6, 58, 59}),
        ("*/99", {0}),
    ],
)
def test_minutes(text: str, numbers: set[int]) -> None:
    assert parse_cron(f"{text} * * * *").minute == numbers


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0", {0}),
        ("7", {0}),
        ("sun", {0}),
        ("MON-fri", {1, 2, 3, 4, 5}),
        ("5-7", {5, 6, 0}),
        ("fri-sun", {5, 6, 0}),
        ("sun-tue", {0, 1, 2}),
        ("sat,sun", {6, 0}),
        ("*/2", {0, 2, 4, 6}),
    ],
)
def test_weekdays(text: str, numbers: set[int]) -> None:
    assert parse_cron(f"* * * * {text}").weekday == numbers


def test_months() -> None:
    assert parse_cron("* * * jan,mar-May,12 *").month == {1, 3, 4, 5, 12}


@pytest.mark.parametrize(
    ("alias", "text"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
    ],
)
def test_aliases(alias: str, text: str) -> None:
    assert parse_cron(alias) == parse_cron(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it has 0 fields"),
        ("* * * *", "it has 4 fields, and cron has 5"),
        ("* * * * * *", "it has 6 fields"),
        ("@reboot", "there is no @reboot; there are @hourly"),
        ("60 * * * *", "the minute has to lie in 0–59: `60`"),
        ("* 24 * * *", "the hour has to lie in 0–23"),
        ("* * 0 * *", "the day of month has to lie in 1–31"),
        ("* * 32 * *", "the day of month has to lie in 1–31"),
        ("* * * 13 *", "the month has to lie in 1–12"),
        ("* * * * 8", "the weekday has to lie in 0–7"),
        ("* * mon * *", "the day of month is no number"),
        ("* * * mon *", "the month is no number"),
        ("20-10 * * * *", "the range in the minute runs backwards: `20-10`"),
        ("* * * * fri-mon", "the range in the weekday runs backwards"),
        ("*/0 * * * *", "the step in the minute has to be a whole number above 0"),
        ("*/x * * * *", "the step in the minute"),
        ("5/10 * * * *", "needs a range before it"),
        ("1,,2 * * * *", "the minute is no number"),
        ("-5 * * * *", "the minute is no number"),
        ("1-2-3 * * * *", "the minute is no number"),
        ("? * * * *", "the minute is no number"),
        ("٣ * * * *", "the minute is no number"),
        ("* * * * L", "the weekday is no number"),
    ],
)
def test_refused(text: str, why: str) -> None:
    with pytest.raises(CronError) as raised:
        parse_cron(text)
    assert why in str(raised.value)


SUNDAY = date(2026, 11, 1)  # the 1st, too


def days(text: str, count: int = 30) -> list[int]:
    cron = parse_cron(text)
    november = [SUNDAY + timedelta(days=n) for n in range(count)]
    return [day.day for day in november if cron.fires_on(day)]


def test_weekday_0_is_sunday() -> None:
    assert days("0 0 * * 0") == [1, 8, 15, 22, 29]
    assert days("0 0 * * 1") == [2, 9, 16, 23, 30]


def test_either_day_or_weekday_where_both_are_restricted() -> None:
    assert days("0 0 13 * fri") == [6, 13, 20, 27]
    assert days("0 0 14 * fri") == [6, 13, 14, 20, 27]


def test_both_where_one_starts_with_a_star() -> None:
    assert days("0 0 */2 * mon") == [9, 23]
    assert days("0 0 2-8 * */6") == [7, 8]


def test_month_always_counts() -> None:
    assert days("0 0 1 dec sun") == []


@pytest.mark.parametrize("text", ["0 0 31 feb *", "0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 31 2 */2"])
def test_never(text: str) -> None:
    assert parse_cron(text).never_fires


@pytest.mark.parametrize("text", ["0 0 29 2 *", "0 0 31 2,3 *", "0 0 31 2 mon", "* * * * *", "0 0 */31 2 *"])
def test_some_time(text: str) -> None:
    assert not parse_cron(text).never_fires


numbers = st.sets(st.integers(1, 31), min_size=1)


@given(
    numbers,
    st.sets(st.integers(1, 12), min_size=1),
    st.one_of(st.none(), st.sets(st.integers(0, 6), min_size=1)),
)
def test_never_fires_as_the_calendar_says(day: set[int], month: set[int], weekday: set[int] | None) -> None:
    def listed(numbers: set[int]) -> str:
        return ",".join(map(str, sorted(numbers)))

    cron = parse_cron(f"0 0 {listed(day)} {listed(month)} {listed(weekday) if weekday else '*'}")
    four_years = (date(2024, 1, 1) + timedelta(days=n) for n in range(1461))
    assert cron.never_fires == (not any(cron.fires_on(it) for it in four_years))


@given(numbers)
def test_lists_say_what_they_name(numbers: set[int]) -> None:
    assert parse_cron(f"0 0 {','.join(map(str, numbers))} * *").day == numbers
