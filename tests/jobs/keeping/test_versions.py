"""Late upserts under an archived `_id`, through the command line: what summaries and reports say."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.jobs.place import POLICIES, START, Place
from tests.jobs.states import after

SCAN = POLICIES.replace('daily = "ticks_daily"', 'daily = "ticks_daily"\nlate_data = "scan"')


def write(place: Place, **slots: float) -> None:
    """A minute of X; what was there before is archived."""
    place.database.ticks.insert_one({"_id": "x", "symbol": "X", "d": START, "p": slots})
    assert place("run", "-p", "ticks").code == 0


def summary(place: Place) -> dict[str, Any]:
    (found,) = place.database.ticks_hourly.find({"symbol": "X"})
    return {"count": found["count"], "sum": found["p"]["sum"]}


@pytest.mark.in_turn(1)
@pytest.mark.parametrize("policies", [POLICIES, SCAN], ids=["stream", "scan"])
def test_a_merged_bucket_in_the_source_is_rolled_up_again(place: Place, policies: str) -> None:
    """Offline each version counts; the merged one, which hides a reading, counts as it is."""
    place.write_config(policies)
    write(place, **{"0": 1.0, "1": 1.0})
    write(place, **{"0": 4.0})
    assert summary(place) == {"count": 3, "sum": 6.0}
    assert place("restore", "-p", "ticks", "--to", "ticks").code == 0
    assert place("run", "-p", "ticks").code == 0
    assert summary(place) == {"count": 2, "sum": 5.0}
    assert place("unpin", "-p", "ticks").code == place("run", "-p", "ticks").code == 0
    assert place.database.ticks.count_documents({}) == 0
    assert summary(place) == {"count": 2, "sum": 5.0}
    assert place("audit", "-p", "ticks").code == 0


def test_online_the_merged_bucket_counts(place: Place) -> None:
    online = POLICIES.replace('to = "offline"', 'to = "online"\ncollection = "ticks_archive"')
    place.write_config(online)
    write(place, **{"0": 1.0, "1": 1.0})
    write(place, **{"0": 4.0, "2": 1.0})
    assert summary(place) == {"count": 3, "sum": 6.0}
    ran = place("readings", "--json", "-p", "ticks", "--series", "symbol=X", "-o", "out.csv")
    assert ran.policy("ticks")["readings"] == 3
    assert place("audit", "-p", "ticks").code == 0


@pytest.mark.proof
def test_the_reports(place: Place) -> None:
    write(place, **{"0": 1.0})
    write(place, **{"0": 4.0})
    ran = place("restore", "--json", "-p", "ticks", "--series", "symbol=X", "--to", "back")
    body = ran.policy("ticks")
    assert (body["buckets"], body["readings"], body["versions"]) == (1, 1, 1)
    assert place.database.back.find_one()["p"] == {"0": 4.0}  # type: ignore[index]
    ran = place("restore", "-p", "ticks", "--series", "symbol=X", "--to", "back", "--versions", "older")
    assert ran.code == 2 and "merged" in ran.err
    ran = place("restore", "--json", "-p", "ticks", "--to", "back", "--versions-to", "older")
    assert ran.code == 2 and "--versions all" in ran.policy("ticks")["error"]
    place.database.ticks.insert_one({"_id": "x", "symbol": "Y", "d": START, "p": {"0": 1.0}})
    assert place("run", "-p", "ticks").code == 0
    ran = place("restore", "--json", "-p", "ticks", "--to", "new")
    assert ran.code == 1
    assert "different series" in ran.policy("ticks")["error"]
    assert "`--versions all`" in ran.policy("ticks")["error"]
    ran = place(
        "restore", "--json", "-p", "ticks", "--to", "all", "--versions", "all", "--versions-to", "older"
    )
    assert (ran.code, ran.policy("ticks")["versions"]) == (0, 2)
    assert place.database.older.count_documents({}) == 2


def corrected(place: Place) -> None:
    write(place, **{"0": 1.0, "5": 1.0, "20": 1.0})
    write(place, **{"5": 2.0})


@pytest.mark.proof
@pytest.mark.parametrize("to", ["back", "ticks"])
@after(corrected)
def test_a_range_that_one_version_has_no_reading_in_brings_all(place: Place, to: str) -> None:
    """The version that corrects a reading lies outside of the range asked for."""
    since = (START + timedelta(seconds=15)).isoformat()
    until = (START + timedelta(seconds=30)).isoformat()
    span = ("--since", since, "--until", until)
    ran = place("restore", "--json", "-p", "ticks", "--series", "symbol=X", *span, "--to", to)
    body = ran.policy("ticks")
    assert (ran.code, body["buckets"], body["readings"], body["versions"]) == (0, 1, 3, 1)
    (found,) = place.database[to].find({"symbol": "X"})
    assert found["p"] == {"0": 1.0, "5": 2.0, "20": 1.0}
    latest = ("--to", "latest", "--versions", "latest")
    ran = place("restore", "--json", "-p", "ticks", "--series", "symbol=X", *span, *latest)
    (found,) = place.database["latest"].find()
    assert (ran.code, found["p"]) == (0, {"5": 2.0})
