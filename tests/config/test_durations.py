from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketwise.config.problems import InvalidValueError
from bucketwise.config.times import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0s", 0),
        ("90s", 90),
        ("10m", 600),
        ("36h", 129_600),
        ("30d", 2_592_000),
        ("12w", 7_257_600),
        ("7y", 220_752_000),
        ("007d", 604_800),
    ],
)
def test_parsed(text: str, seconds: int) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


def test_forever() -> None:
    assert parse_duration("forever") is None
    assert format_duration(None) == "forever"


@pytest.mark.parametrize(
    "text",
    ["", "10", "d", "1Y", "1M", "30D", "-1d", "+1d", "1.5h", "1h30m", " 1d", "1d\n", "1 d", "Forever", "١d"],
)
def test_refused(text: str) -> None:
    with pytest.raises(InvalidValueError, match="it is not a duration"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["36501d", "999999999999999w", "3153600001s"])
def test_too_long(text: str) -> None:
    with pytest.raises(InvalidValueError, match="longer than 36500 days"):
        parse_duration(text)


@given(st.integers(0, 36_500 * 86_400))
def test_round_trip(seconds: int) -> None:
    span = timedelta(seconds=seconds)
    assert parse_duration(format_duration(span)) == span


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (timedelta(0), "0s"),
        (timedelta(seconds=61), "61s"),
        (timedelta(minutes=90), "90m"),
        (timedelta(hours=36), "36h"),
        (timedelta(days=30), "30d"),
        (timedelta(days=14), "2w"),
        (timedelta(days=730), "2y"),
        (timedelta(seconds=1, microseconds=999_999), "1s"),
    ],
)
def test_formatted(span: timedelta, text: str) -> None:
    assert format_duration(span) == text


def test_negative_is_not_formatted() -> None:
    with pytest.raises(ValueError, match="never negative"):
        format_duration(timedelta(seconds=-1))
