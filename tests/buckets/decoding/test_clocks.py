"""Clock times of zones, against `zoneinfo` one at a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketwise.buckets.fields import clocks
from bucketwise.buckets.fields.clocks import clock_of
from bucketwise.buckets.fields.times import NO_TIME

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001
#: Zones with offsets of quarters, half-hour changes, changes at midnight, a skipped day, and none of these.
ZONES = [
    *("Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "America/Sao_Paulo"),
    *("Pacific/Apia", "Africa/Casablanca", "Antarctica/Troll", "America/Havana", "Asia/Kolkata", "UTC"),
]
zones = st.sampled_from(ZONES)
#: Clock changes are on whole quarters of an hour: what lies just beside them is drawn as well.
times = st.datetimes(datetime(1901, 1, 1), datetime(2200, 1, 1)).flatmap(  # noqa: DTZ001
    lambda at: st.sampled_from([at, at.replace(minute=at.minute // 15 * 15, second=0, microsecond=0)])
)
near_changes = st.builds(
    lambda day, quarters: datetime.fromisoformat(day) + timedelta(minutes=15 * quarters),
    st.sampled_from(["2025-03-30", "2025-10-26", "2018-11-04", "2011-12-30"]),
    st.integers(-100, 200),
)


def _ms(clock: datetime) -> int:
    return (clock - _EPOCH) // timedelta(milliseconds=1)


def _shown(instant: datetime, zone: ZoneInfo) -> datetime:
    return instant.replace(tzinfo=UTC).astimezone(zone).replace(tzinfo=None)


@given(st.lists(times | near_changes, min_size=1, max_size=8), zones)
def test_shown(instants: list[datetime], zone: str) -> None:
    found = clock_of(zone).shown(np.array([*map(_ms, instants), NO_TIME]))
    assert found.tolist() == [*(_ms(_shown(it, ZoneInfo(zone))) for it in instants), NO_TIME]


@given(st.lists(times | near_changes, min_size=1, max_size=8), zones)
def test_instants(shown: list[datetime], zone: str) -> None:
    clock = ZoneInfo(zone)
    first = [it - (it.replace(tzinfo=clock).utcoffset() or timedelta(0)) for it in shown]
    wanted = [_ms(it) if _shown(it, clock) == at else NO_TIME for it, at in zip(first, shown, strict=True)]
    assert clock_of(zone).instants(np.array([*map(_ms, shown), NO_TIME])).tolist() == [*wanted, NO_TIME]


@given(near_changes, zones)
def test_since(shown: datetime, zone: str) -> None:
    clock = ZoneInfo(zone)
    minutes = (shown + timedelta(minutes=at) for at in range(-15 * 60, 39 * 60, 15))
    shows = [it for it in minutes if _shown(it, clock) >= shown]
    assert clock_of(zone).since(np.array([_ms(shown)])).tolist() == [_ms(shows[0])]


@pytest.mark.parametrize(
    ("zone", "shown", "instant"),
    [
        ("America/Sao_Paulo", "2018-11-04", "2018-11-04T03:00:00"),  # midnight is skipped
        ("America/Havana", "2025-11-02", "2025-11-02T04:00:00"),  # and is shown twice
        ("Pacific/Apia", "2011-12-30", "2011-12-30T10:00:00"),  # the whole day is skipped
        ("Pacific/Apia", "2011-12-31", "2011-12-30T10:00:00"),
        ("Pacific/Kiritimati", "1994-12-31T20:00", "1994-12-31T10:00:00"),  # in UTC the next year has begun
    ],
)
def test_days_without_a_plain_midnight(zone: str, shown: str, instant: str) -> None:
    (found,) = clock_of(zone).since(np.array([_ms(datetime.fromisoformat(shown))])).tolist()
    assert found == _ms(datetime.fromisoformat(instant))


def test_of_instants_far_apart_no_years_between_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A single broken time must not have thousands of years listed, for each of sixty zones."""
    seen: list[int] = []
    changes = clocks._changes

    def noted(zone: ZoneInfo, year: int) -> list[tuple[int, int]]:
        seen.append(year)
        return changes(zone, year)

    monkeypatch.setattr(clocks, "_changes", noted)
    instants = np.array([_ms(datetime(year, 7, 1)) for year in (1850, 2024, 9999)])  # noqa: DTZ001
    shown = clock_of("Asia/Kathmandu").shown(instants)
    assert ((shown - instants) / 60_000).round(2).tolist() == [341.27, 345, 345]
    assert seen == [1849, 1850, 2023, 2024, 2398, 2399]  # rules repeat every 400 years
