from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketwise.config.errors import UsageError
from bucketwise.jobs.core import clock

MIDNIGHT = datetime(2018, 6, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2018-06-30", MIDNIGHT),
        ("2018-06-30T00:00:00Z", MIDNIGHT),
        ("2018-06-30T00:00:00", MIDNIGHT),
        ("2018-06-30T02:00:00+02:00", MIDNIGHT),
        ("2018-06-29T18:30:00-05:30", MIDNIGHT),
        (" 2018-06-30 00:00 ", MIDNIGHT),
        ("20180630T000000Z", MIDNIGHT),
        ("2018-06-30T00:00:00.123999Z", MIDNIGHT + timedelta(milliseconds=123)),
    ],
)
def test_instants(text: str, expected: datetime) -> None:
    instant = clock.parse_instant(text, "--now")
    assert instant == expected
    assert instant.utcoffset() == timedelta(0)


@pytest.mark.parametrize("text", ["", "yesterday", "2018-13-01", "1530316800", "0001-01-01T00:00:00+14:00"])
def test_what_is_no_instant_is_refused_by_name(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        clock.parse_instant(text, "--until")
    assert "--until" in str(refused.value)
    assert repr(text) in str(refused.value)


@given(st.integers(0, 200 * 365 * 86_400_000), st.integers(-14 * 60, 14 * 60))
def test_an_instant_survives_being_written_and_read(milliseconds: int, offset: int) -> None:
    kept = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    elsewhere = kept.astimezone(timezone(timedelta(minutes=offset)))
    assert clock.parse_instant(elsewhere.isoformat(), "--now") == kept
    assert clock.iso(elsewhere) == clock.iso(kept)
    assert clock.parse_instant(clock.iso(kept), "--now") == kept


def test_the_present_is_in_whole_milliseconds() -> None:
    present = clock.current()
    assert present.microsecond % 1000 == 0
    assert abs(present - datetime.now(UTC)) < timedelta(hours=1)
