"""What --since and --until name."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketwise.buckets.fields.times import TimeRange
from bucketwise.config.errors import UsageError
from bucketwise.jobs.core.clock import iso
from bucketwise.jobs.core.ranges import parse_range
from tests.config.bad_configs import GOOD
from tests.jobs.command import CommandLine
from tests.jobs.counting import ticks_policy

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "America/Sao_Paulo", "Pacific/Apia")
NOW = datetime(2018, 9, 1, 0, 15, tzinfo=UTC)
INSTANTS = st.integers(25 * 365, 65 * 365).flatmap(
    lambda day: st.integers(0, 86_399_999).map(
        lambda ms: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day, milliseconds=ms)
    )
)


def start(text: str, zone: str = "UTC", now: datetime = NOW) -> datetime:
    found = parse_range(text, None).within(zone, now).since
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "zone", "expected"),
    [
        ("today", "UTC", "2018-09-01T00:00:00Z"),
        ("today", "America/New_York", "2018-08-31T04:00:00Z"),
        ("yesterday", "Europe/Berlin", "2018-08-30T22:00:00Z"),
        (" Yesterday ", "UTC", "2018-08-31T00:00:00Z"),
        ("-7d", "Europe/Berlin", "2018-08-25T00:15:00Z"),
        ("-36h", "UTC", "2018-08-30T12:15:00Z"),
        ("2018-03", "UTC", "2018-03-01T00:00:00Z"),
        ("2018-03", "Europe/Berlin", "2018-02-28T23:00:00Z"),
        ("2018-03-05", "Asia/Kolkata", "2018-03-04T18:30:00Z"),
        ("2018-11-04", "America/Sao_Paulo", "2018-11-04T03:00:00Z"),  # its midnight is skipped
        ("2018-03-05T00:00", "Asia/Kolkata", "2018-03-05T00:00:00Z"),
        ("2018-03-05T00:00:00+02:00", "Asia/Kolkata", "2018-03-04T22:00:00Z"),
    ],
)
def test_words(text: str, zone: str, expected: str) -> None:
    assert iso(start(text, zone)) == expected
    until = parse_range(None, text).within(zone, NOW).until
    assert until is not None
    assert iso(until) == expected


@given(INSTANTS, st.sampled_from(ZONES))
def test_today_holds_now_and_follows_yesterday(now: datetime, zone: str) -> None:
    clock = ZoneInfo(zone)
    today, yesterday = start("today", zone, now), start("yesterday", zone, now)
    assert yesterday <= today <= now
    assert today.astimezone(clock).date() == now.astimezone(clock).date()
    assert (today - timedelta(milliseconds=1)).astimezone(clock).date() < now.astimezone(clock).date()
    assert start(now.astimezone(clock).date().isoformat(), zone, now) == today


@given(st.dates(date(1995, 1, 1), date(2035, 1, 1)), st.sampled_from(ZONES))
def test_a_month_is_its_first_day(day: date, zone: str) -> None:
    assert start(f"{day:%Y-%m}", zone) == start(f"{day:%Y-%m}-01", zone) <= start(day.isoformat(), zone)


@given(INSTANTS, st.integers(1, 5000), st.sampled_from("mhdw"), st.sampled_from(ZONES))
def test_a_time_ago_is_counted_from_now(now: datetime, count: int, unit: str, zone: str) -> None:
    hours = {"m": 1 / 60, "h": 1, "d": 24, "w": 168}[unit]
    assert start(f"-{count}{unit}", zone, now) == now - timedelta(hours=hours * count)


@pytest.mark.parametrize("text", ["", "tomorrow", "-7", "-d", "7d", "-forever", "2018-13", "2018-3", "18-03"])
def test_what_names_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_range(None, text)
    assert str(refused.value).startswith(f"--until: {text!r} is not a valid timestamp.")


def test_an_empty_range_is_refused_with_its_instants() -> None:
    with pytest.raises(UsageError) as refused:
        parse_range("today", "2018-08").within("Europe/Berlin", NOW)
    assert str(refused.value) == (
        "--since today (2018-08-31T22:00:00Z) is not before --until 2018-08 (2018-07-31T22:00:00Z): "
        "the range is empty"
    )
    assert parse_range("yesterday", "today").within("UTC", NOW) == TimeRange(
        NOW.replace(day=31, month=8, minute=0), NOW.replace(minute=0)
    )


def test_days_at_the_ends_of_the_calendar() -> None:
    assert start("0001-01-01") == datetime(1, 1, 1, tzinfo=UTC)
    with pytest.raises(UsageError) as refused:
        start("0001-01-01", "Asia/Kolkata")
    assert "--since 0001-01-01: in Asia/Kolkata" in str(refused.value)


@pytest.mark.proof
@pytest.mark.parametrize("text", ["yesterday", "-7d", "2018-06"])
@pytest.mark.parametrize(
    "verb",
    [
        ("erase", "-p", "ticks", "--series", "symbol=MDB", "--reason", "why"),
        ("hold", "add", "case", "-p", "ticks", "--reason", "why"),
    ],
)
def test_what_destroys_takes_instants_only(
    verb: tuple[str, ...], text: str, tmp_path: Path, bucketwise: CommandLine
) -> None:
    (tmp_path / "bucketwise.toml").write_text(GOOD)
    ran = bucketwise(*verb, "--until", text, "--json", cwd=tmp_path)
    assert (ran.code, ran.connected) == (2, [])
    assert f"--until {text}: `{'erase' if verb[0] == 'erase' else 'hold add'}` takes instants only" in ran.err


def test_a_date_is_an_instant_where_the_zone_is_utc() -> None:
    policy = ticks_policy(to="none")
    asked = parse_range("2018-06-30", None)
    assert asked.exact("erase", [policy]).since == datetime(2018, 6, 30, tzinfo=UTC)
    assert policy.rollup is not None
    berlin = policy.model_copy(
        update={"rollup": policy.rollup.model_copy(update={"timezone": "Europe/Berlin"})}
    )
    with pytest.raises(UsageError, match="its policy's zone is Europe/Berlin"):
        asked.exact("erase", [policy, berlin])
    assert asked.of([policy, berlin], NOW)(berlin).since == datetime(2018, 6, 29, 22, tzinfo=UTC)
    assert asked.of([policy, berlin], NOW)(policy).since == datetime(2018, 6, 30, tzinfo=UTC)
