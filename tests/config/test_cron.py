"""Cron expressions: which are valid, and when they fire. The oracle is the plainest: look at every minute."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import lru_cache

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bucketwise.config.cron import parse_cron
from bucketwise.config.problems import InvalidValueError

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
SUNDAY = datetime(2026, 11, 1, tzinfo=UTC)  # the 1st, too


def firings(text: str, start: datetime, end: datetime) -> list[datetime]:
    cron, found = parse_cron(text), list[datetime]()
    at = cron.first_after(start - timedelta(seconds=1))
    while at is not None and at < end:
        found.append(at)
        at = cron.first_after(at)
    return found


def minutes(text: str) -> set[int]:
    return {at.minute for at in firings(f"{text} * * * *", SUNDAY, SUNDAY + timedelta(hours=1))}


def days(text: str) -> list[int]:
    return [at.day for at in firings(text, SUNDAY, SUNDAY + 30 * DAY)]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("*", set(range(60))),
        ("5", {5}),
        ("005", {5}),
        ("5,7,5", {5, 7}),
        ("10-13", {10, 11, 12, 13}),
        ("*/20", {0, 20, 40}),
        ("10-30/10", {10, 20, 30}),
        ("10-10/20", {10}),
        ("1-9/5,58-59", {1, 6, 58, 59}),
        ("*/99", {0}),
    ],
)
def test_minutes(text: str, numbers: set[int]) -> None:
    assert minutes(text) == numbers


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0", {0}),
        ("7", {0}),
        ("sun", {0}),
        ("MON-fri", {1, 2, 3, 4, 5}),
        ("5-7", {5, 6, 0}),
        ("5-0", {5, 6, 0}),
        ("fri-sun", {5, 6, 0}),
        ("FRI-SUN/2", {5, 0}),
        ("sun-sun", {0}),
        ("sun-tue", {0, 1, 2}),
        ("sat,sun", {6, 0}),
        ("wed-wed/2,sat-sun", {3, 6, 0}),
        ("*/2", {0, 2, 4, 6}),
    ],
)
def test_weekdays(text: str, numbers: set[int]) -> None:
    fired = firings(f"0 0 * * {text}", SUNDAY, SUNDAY + 7 * DAY)
    assert {at.isoweekday() % 7 for at in fired} == numbers


def test_months() -> None:
    fired = firings("0 0 1 jan,mar-May,12 *", SUNDAY, SUNDAY + 365 * DAY)
    assert {at.month for at in fired} == {1, 3, 4, 5, 12}


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
        ("60 * * * *", "the minute cannot be `60`: it takes 0–59"),
        ("1,2,60 * * * *", "the minute cannot be `60`: it takes 0–59"),
        ("* 24 * * *", "the hour cannot be `24`: it takes 0–23"),
        ("* * 0 * *", "the day of month cannot be `0`: it takes 1–31"),
        ("* * 32 * *", "the day of month cannot be `32`: it takes 1–31"),
        ("* * * 13 *", "the month cannot be `13`: it takes 1–12"),
        ("* * * * 8", "the weekday cannot be `8`: it takes 0–7"),
        ("* * mon * *", "the day of month cannot be `mon`"),
        ("* * * mon *", "the month cannot be `mon`"),
        ("20-10 * * * *", "the minute cannot be `20-10`: it takes 0–59, lists (`1,3`), ranges that ascend"),
        ("* * * * fri-mon", "the weekday cannot be `fri-mon`"),
        ("* * * * 8-sun", "the weekday cannot be `8-7`"),
        ("*/0 * * * *", "steps of 1 or more"),
        ("*/x * * * *", "the minute cannot be `*/x`"),
        ("5/10 * * * *", "steps of 1 or more through a range (`*/5`, `1-5/2`)"),
        ("1,,2 * * * *", "the minute cannot be ``"),
        ("-5 * * * *", "the minute cannot be `-5`"),
        ("1-2-3 * * * *", "the minute cannot be `1-2-3`"),
        ("? * * * *", "the minute cannot be `?`"),
        ("٣ * * * *", "the minute cannot be `٣`"),
        ("* * * * ſun", "the weekday cannot be `ſun`"),
        ("* * * * L", "the weekday cannot be `L`"),
        ("* * * * 5L", "the weekday cannot be `5L`"),
        ("* * * * fri#2", "the weekday cannot be `fri#2`"),
        ("* * L * *", "the day of month cannot be `L`"),
        ("* * LW * *", "the day of month cannot be `LW`"),
        (f"{'1' * 5000} * * * *", "the minute cannot be"),
    ],
)
def test_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidValueError) as raised:
        parse_cron(text)
    assert why in str(raised.value)


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
    with pytest.raises(InvalidValueError, match="it never fires"):
        parse_cron(text)


@pytest.mark.parametrize(
    "text", ["0 0 29 2 *", "0 0 31 2,3 *", "0 0 31 2 mon", "0 0 */31 2 *", "0 0 29 2 */7"]
)
def test_some_time(text: str) -> None:
    assert parse_cron(text).first_after(datetime(2072, 2, 29, tzinfo=UTC)) is not None


@st.composite
def terms(draw: st.DrawFn, low: int, high: int) -> str:
    """A number, a range or a step."""
    first, last = sorted(draw(st.tuples(st.integers(low, high), st.integers(low, high))))
    step = draw(st.integers(1, 70))
    return draw(st.sampled_from([f"{first}", f"{first}-{last}", f"{first}-{last}/{step}", f"*/{step}"]))


def fields(low: int, high: int) -> st.SearchStrategy[str]:
    return st.just("*") | st.lists(terms(low, high), min_size=1, max_size=3).map(",".join)


@lru_cache
def values(field: str, low: int, high: int) -> set[int]:
    """What a field names, as cron's manual has it."""
    found = set[int]()
    for term in field.split(","):
        span, _, step = term.partition("/")
        first, _, last = f"{low}-{high}".partition("-") if span == "*" else span.partition("-")
        found.update(range(int(first), int(last or first) + 1, int(step or 1)))
    return found


def fits_date(text: str, day: date) -> bool:
    _, _, days, months, weekdays = text.split()
    fits_day = day.day in values(days, 1, 31)
    fits_weekday = day.isoweekday() % 7 in {number % 7 for number in values(weekdays, 0, 7)}
    either = not days.startswith("*") and not weekdays.startswith("*")
    return day.month in values(months, 1, 12) and (
        (fits_day or fits_weekday) if either else (fits_day and fits_weekday)
    )


def matches(text: str, at: datetime) -> bool:
    minute, hour, *_ = text.split()
    return (
        at.minute in values(minute, 0, 59) and at.hour in values(hour, 0, 23) and fits_date(text, at.date())
    )


expressions = st.tuples(fields(0, 59), fields(0, 23), fields(1, 31), fields(1, 12), fields(0, 7)).map(
    " ".join
)
instants = st.integers(0, 4 * 366 * 86_400_000).map(
    lambda milliseconds: datetime(2023, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
)


@given(expressions, instants)
def test_no_firing_is_missed_or_made_up(text: str, instant: datetime) -> None:
    try:
        cron = parse_cron(text)
    except InvalidValueError as error:
        assert "it never fires" in str(error)
        assume(False)
    before, after = cron.last_until(instant), cron.first_after(instant)
    assert before is None or (before <= instant and matches(text, before))
    assert after is None or (after > instant and matches(text, after))
    floor = instant.replace(second=0, microsecond=0)
    gap = [floor + count * MINUTE for count in range(-1500, 1500)]
    assert not [
        at
        for at in gap
        if matches(text, at) and (before is None or before < at) and (after is None or at < after)
    ]


@given(expressions)
def test_never_fires_as_the_calendar_says(text: str) -> None:
    days_there = (date(2024, 1, 1) + n * DAY for n in range(28 * 366))
    try:
        parse_cron(text)
    except InvalidValueError:
        assert not any(fits_date(text, day) for day in days_there)
    else:
        assert any(fits_date(text, day) for day in days_there)


@given(expressions, instants)
def test_backwards_and_forwards_meet(text: str, instant: datetime) -> None:
    try:
        cron = parse_cron(text)
    except InvalidValueError:
        assume(False)
    first = cron.first_after(instant)
    assert first is not None
    assert cron.last_until(first) == first
    assert first.tzinfo is UTC


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
        ("*/5 * * * *", "2026-11-21T14:00:01+02:00", "2026-11-21T12:05Z"),
        ("@daily", "2026-11-21T00:00Z", "2026-11-22T00:00Z"),
        ("30 2 * * *", "2026-03-29T03:00+02:00", "2026-03-29T02:30Z"),  # no clock is turned in UTC
    ],
)
def test_next_firings(text: str, after: str, expected: str) -> None:
    assert parse_cron(text).first_after(datetime.fromisoformat(after)) == datetime.fromisoformat(expected)


@pytest.mark.parametrize(
    ("instant", "expected"),
    [
        ("2026-11-21T12:05Z", "2026-11-21T12:05Z"),
        ("2026-11-21T12:05:00.001Z", "2026-11-21T12:05Z"),
        ("2026-11-21T12:04:59.999Z", "2026-11-21T12:00Z"),
    ],
)
def test_the_last_firing_may_be_now(instant: str, expected: str) -> None:
    cron = parse_cron("*/5 * * * *")
    assert cron.last_until(datetime.fromisoformat(instant)) == datetime.fromisoformat(expected)
