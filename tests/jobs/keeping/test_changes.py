"""What a run does after a key of the policy has changed, for each row of docs/policies-changing.md."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.jobs.place import POLICIES, START, Place
from tests.jobs.states import States

FREE = (
    ('schedule = "0 0 1 1 *"', 'schedule = "0 3 * * *"\nmay_be_missing = true'),
    ('daily = "ticks_daily"', 'daily = "ticks_daily"\nsettle = "1h"\nlate_data = "scan"\nrecheck = "3d"'),
    ('after = "30d"', 'after = "20d"\ngrace = "1d"\nmax_delete = "50%"\nbatch = "1d"'),
    ('hourly = "365d"', 'hourly = "400d"\narchive = "4000d"'),
)
REBUILT = {
    "time zone": ('daily = "ticks_daily"', 'daily = "ticks_daily"\ntimezone = "Asia/Tokyo"'),
    "percentiles": ('daily = "ticks_daily"', 'daily = "ticks_daily"\npercentiles = [50]'),
    "collections of summaries": ('"ticks_daily"', '"ticks_by_day"'),
    "series fields": ('["symbol"]', "[]"),
    "value fields": ('["p"]', '["p", "q"]\nnonnumeric_ok = ["q"]'),
}


def come_in(place: Place) -> None:
    place.database.ticks.insert_one({"symbol": "MDB", "d": START + timedelta(days=60), "p": {"0": 1.5}})


@pytest.fixture
def archived(states: States) -> Place:
    """An archived day, and a live reading of another."""
    return states.at("run -p ticks", come_in, "run -p ticks")


def changed(place: Place, *changes: tuple[str, str]) -> None:
    text = POLICIES
    for old, new in changes:
        assert text.count(old)
        text = text.replace(old, new, 1)
    place.write_config(text)


@pytest.mark.proof
def test_what_changes_freely(archived: Place) -> None:
    changed(archived, *FREE)
    ran = archived("run", "-p", "ticks", "--json")
    assert ran.code == 0
    assert ran.policy("ticks")["rollup"]["hourly"]["written"] == 0
    assert archived("verify", "-p", "ticks").code == 0


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("what", REBUILT)
def test_what_is_rolled_up_again_from_live_and_archived_readings(archived: Place, what: str) -> None:
    changed(archived, REBUILT[what])
    ran = archived("run", "-p", "ticks", "--json")
    assert (ran.code, ran.policy("ticks")["rollup"]["readings"]) == (0, 3 * 3600 + 1)
    assert archived("audit", "-p", "ticks").code == 0


@pytest.mark.proof
def test_another_collection_keeps_the_archive(archived: Place) -> None:
    archived.database.ticks.rename("prices")
    changed(archived, ('collection = "ticks"', 'collection = "prices"'))
    ran = archived("run", "-p", "ticks", "--json")
    assert (ran.code, ran.policy("ticks")["rollup"]["readings"]) == (0, 3 * 3600 + 1)
    assert archived("audit", "-p", "ticks").code == archived("verify", "-p", "ticks").code == 0
