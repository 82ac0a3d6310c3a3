"""Summaries that somebody has removed: counted, made again where readings or finer summaries give them, and
named where nothing does."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bucketwise.config.policies import Archive, LevelName, Retain
from bucketwise.rollups.calendar.levels import levels_of
from bucketwise.rollups.calendar.windows import to_ms
from bucketwise.rollups.progress import gone_before, note_gone
from bucketwise.rollups.rolling.expiry import expire_summaries
from bucketwise.rollups.rolling.plan import RollupReport
from bucketwise.rollups.standing import load_standing, removed_summaries
from tests.rollups.conftest import Bench
from tests.rollups.rolling.test_rollup import DAY, FIRST, HOUR, NOW, policy_of, tick

Document = dict[str, Any]
POLICY = policy_of()
MINUTE = timedelta(minutes=1)
MARCH, APRIL, MAY = (datetime(2021, month, 1, tzinfo=UTC) for month in (3, 4, 5))
LEVELS: tuple[LevelName, ...] = ("hourly", "daily")


@pytest.fixture
def rolled_up(bench: Bench) -> Bench:
    """A reading each six hours: five days of March, one of April."""
    start = FIRST.replace(hour=0) + DAY
    bench.database["ticks"].insert_many([tick(n, "A", start + n * 6 * HOUR) for n in range(24)])
    bench.roll_up(POLICY, NOW)
    return bench


def summaries(bench: Bench) -> dict[str, dict[bytes, bytes]]:
    return {name: bench.raw(name) for name in LEVELS}


def remove(bench: Bench, name: str, since: datetime, until: datetime) -> list[Document]:
    query = {"start": {"$gte": since, "$lt": until}}
    found = list(bench.database[name].find(query))
    bench.database[name].delete_many(query)
    return found


def missing(report: RollupReport) -> list[tuple[str, int, int | None]]:
    return [(it.level, it.missing, it.lost) for it in report.missing]


def removed(bench: Bench) -> list[tuple[str, int, bool]]:
    found = removed_summaries(bench.database, POLICY, levels_of(POLICY))
    return [(it.level.name, it.summaries, it.is_lost) for it in found]


def purge(bench: Bench) -> None:
    """Takes the readings out as a TTL index does: the summaries outlive them."""
    bench.database["ticks"].delete_many({})


def roll_up(bench: Bench, **more: Any) -> list[tuple[str, int, int | None]]:
    return missing(bench.roll_up(POLICY, NOW, **more))


def test_what_somebody_removed_is_told_and_made_again(rolled_up: Bench) -> None:
    before = summaries(rolled_up)
    assert (removed(rolled_up), roll_up(rolled_up)) == ([], [])
    remove(rolled_up, "hourly", APRIL - DAY, APRIL + 6 * HOUR)  # four of March, one of April
    remove(rolled_up, "daily", MARCH, MAY)
    told = [("hourly", 4), ("hourly", 1), ("daily", 5), ("daily", 1)]
    assert removed(rolled_up) == [(*it, False) for it in told]
    assert roll_up(rolled_up, dry_run=True) == [(*it, None) for it in told]
    assert roll_up(rolled_up) == [(*it, 0) for it in told]
    assert summaries(rolled_up) == before
    assert (removed(rolled_up), roll_up(rolled_up)) == ([], [])


def test_a_removed_month_is_told_by_its_edges(rolled_up: Bench) -> None:
    remove(rolled_up, "hourly", APRIL, MAY)
    report = rolled_up.roll_up(POLICY, NOW, dry_run=True)
    assert [it.span for it in report.missing] == [(to_ms(APRIL), to_ms(MAY))]


def test_without_readings_days_are_made_of_hours_and_hours_are_lost(rolled_up: Bench) -> None:
    before = summaries(rolled_up)
    purge(rolled_up)
    remove(rolled_up, "daily", APRIL, MAY)
    assert roll_up(rolled_up, is_deleted_early=True) == [("daily", 1, 0)]
    assert summaries(rolled_up) == before
    remove(rolled_up, "hourly", APRIL, MAY)
    remove(rolled_up, "daily", MARCH, MAY)
    told = [("hourly", 4, 4), ("daily", 5, 0), ("daily", 1, 1)]
    assert roll_up(rolled_up, is_deleted_early=True) == told
    left = {name: [it["start"] for it in rolled_up.database[name].find()] for name in LEVELS}
    assert {name: (len(it), max(it) < APRIL) for name, it in left.items()} == {
        "hourly": (20, True),
        "daily": (5, True),
    }
    assert removed(rolled_up) == [("hourly", 4, True), ("daily", 1, True)]
    assert roll_up(rolled_up, is_deleted_early=True) == []


def lost(bench: Bench) -> list[Document]:
    """Has the four hours of April lost for good. Returns them."""
    purge(bench)
    found = remove(bench, "hourly", APRIL, MAY)
    assert roll_up(bench, is_deleted_early=True) == [("hourly", 4, 4)]
    return found


def test_what_is_lost_is_told_until_it_is_past_its_time(rolled_up: Bench) -> None:
    lost(rolled_up)
    for before, told in ((to_ms(MAY) - 1, [("hourly", 4, True)]), (to_ms(MAY), [])):
        note_gone(rolled_up.database, POLICY, {"hourly": before})
        assert removed(rolled_up) == told


def test_what_a_backup_brings_back_is_lost_no_more(rolled_up: Bench) -> None:
    hours = lost(rolled_up)
    rolled_up.database["hourly"].insert_many(hours[:3])
    assert roll_up(rolled_up, is_deleted_early=True) == []
    assert removed(rolled_up) == [("hourly", 1, True)]
    rolled_up.database["hourly"].insert_one(hours[3])
    assert roll_up(rolled_up, is_deleted_early=True) == []
    assert removed(rolled_up) == []


def test_what_readings_bring_back_is_lost_no_more(rolled_up: Bench) -> None:
    """And what is new counts for none that was lost."""
    hours: Sequence[Document] = lost(rolled_up)
    first: datetime = hours[0]["start"]
    rolled_up.database["ticks"].insert_one(tick(99, "A", first))
    assert roll_up(rolled_up, is_deleted_early=True) == []
    assert removed(rolled_up) == [("hourly", 3, True)]
    rolled_up.database["ticks"].insert_one(tick(100, "A", NOW + HOUR))
    assert missing(rolled_up.roll_up(POLICY, NOW + 6 * HOUR, is_deleted_early=True)) == []
    assert rolled_up.database["hourly"].count_documents({"start": {"$gte": NOW}}) == 1
    assert removed(rolled_up) == [("hourly", 3, True)]


SHORT, LONG = (
    policy_of(retain=Retain(hourly=2 * DAY, grace=0 * DAY)),
    policy_of(retain=Retain(hourly=90 * DAY)),
)


def expired(bench: Bench) -> dict[bytes, bytes]:
    """Has what is older than two days expire. Returns what is left."""
    bench.roll_up(SHORT, NOW)
    assert expire_summaries(bench.context(SHORT, NOW)).gone["hourly"] == 17
    return bench.raw("hourly")


@pytest.mark.parametrize("kept", [0, 2])
def test_where_readings_are_deleted_early_a_longer_retention_brings_nothing_back(
    rolled_up: Bench, kept: int
) -> None:
    """Of no day it is known that all of it is still there, whether any reading is live or not."""
    left, before = expired(rolled_up), gone_before(rolled_up.database, SHORT)
    rolled_up.database["ticks"].delete_many({"d": {"$lt": APRIL + (1 - kept) * DAY}})
    report = rolled_up.roll_up(LONG, NOW, is_deleted_early=True)
    assert (report.hourly.written, report.missing, rolled_up.raw("hourly")) == (0, [], left)
    assert gone_before(rolled_up.database, LONG) == before
    assert load_standing(rolled_up.database, LONG).retentions["hourly"] == "90d"


@pytest.mark.parametrize(("minute", "hours"), [(0, 4), (10, 3)])
def test_a_longer_retention_brings_back_whole_windows_alone(
    rolled_up: Bench, minute: int, hours: int
) -> None:
    """The hour of the first live reading may have had others before that."""
    expired(rolled_up)
    first, ticks = APRIL - 42 * HOUR, rolled_up.database["ticks"]
    ticks.delete_many({"d": {"$lt": first}})
    ticks.update_one({"d": first}, {"$set": {"d": first + minute * MINUTE}})
    assert rolled_up.roll_up(LONG, NOW).hourly.written == hours
    whole = first + (HOUR if minute else 0 * HOUR)
    assert min(rolled_up.starts("hourly")) == first + (6 * HOUR if minute else 0 * HOUR)
    assert gone_before(rolled_up.database, LONG)["hourly"] == to_ms(whole) + 1


@pytest.mark.parametrize(("is_early", "hours"), [(False, 17), (True, 0)])
@pytest.mark.parametrize("retain", [Retain(hourly=90 * DAY), None], ids=["longer", "forever"])
def test_a_longer_retention_brings_back_what_is_archived(
    rolled_up: Bench, retain: Retain | None, is_early: bool, hours: int
) -> None:
    """Unless something removed readings before an archive had them."""
    before = rolled_up.raw("hourly")
    expired(rolled_up)
    rolled_up.database["ticks"].rename("archive")
    archived = policy_of(archive=Archive(after=DAY, to="offline"), retain=retain)
    report = rolled_up.roll_up(archived, NOW, is_deleted_early=is_early)
    assert report.hourly.written == hours
    assert (rolled_up.raw("hourly") == before) == (not is_early)
