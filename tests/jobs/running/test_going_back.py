"""Runs whose `now` lies before what their archive has recorded."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.jobs.place import NOW, START, Place
from tests.jobs.states import after

LAST = datetime.fromisoformat(NOW)
RECEIPTS = "bucketwise_receipts"


def late(place: Place, day: int) -> None:
    """A bucket of each collection that has expired by any `now` of these tests."""
    at = START + timedelta(days=day)
    place.database.ticks.insert_one({"symbol": "MDB", "d": at, "p": {"0": 1.5}})
    place.database.iot.insert_one({"sensor": 7, "at": at, "t": 20.5})


def archived(place: Place) -> dict[str, Any]:
    """What a run that goes back in time leaves as it is: source, archive and receipts."""
    there = place.everything()
    kept = ("ticks", "iot", "iot_archive", RECEIPTS)
    return {key: it for key, it in there.items() if key in kept or key.startswith("store/")}


def receipts(place: Place, policy: str = "ticks") -> list[Any]:
    return list(place("receipts", "--json", "-p", policy).policy(policy)["deletes"])


@pytest.mark.proof
@after("run")
def test_a_run_that_goes_back_rolls_up_and_archives_nothing(place: Place) -> None:
    late(place, 1)
    before, earlier = archived(place), "2018-08-25T00:00:00Z"
    planned = place("plan", "--json", now=earlier)
    assert planned.code == 1
    ran = place("run", "--json", now=earlier)
    assert ran.code == 1
    for policy in ("ticks", "iot"):
        for text in (ran.policy(policy)["error"], planned.policy(policy)["error"]):
            assert earlier in text and "2018-09-01T00:00:00Z" in text
        assert ran.policy(policy)["rollup"]["hourly"]["written"] == 1
        assert ran.policy(policy).keys() & {"archive", "compact", "archive_expiry", "expiry"} == set()
    assert archived(place) == before
    for verb in ("archive", "compact"):
        assert place(verb, "-p", "ticks", now=earlier).code == 1
    erased = place(
        "erase", "--series", "symbol=MDB", "--reason", "x", "--confirm", "ticks", "-p", "ticks", now=earlier
    )
    assert erased.code == 1
    assert archived(place) == before
    for verb in ("verify", "drill"):
        assert place(verb, "-p", "ticks", now=earlier).code == 0
    # Clocks of machines differ a little; and whatever comes later is as ever.
    assert place("run", now=(LAST - timedelta(minutes=4)).isoformat()).code == 0
    assert place.database.ticks.count_documents({}) == place.database.iot.count_documents({}) == 0
    assert place("verify").code == 0


@pytest.mark.proof
@after("plan --now 2096-01-01", "run --now 2018-08-01")
def test_a_past_in_which_nothing_was_recorded_is_as_good_as_any(place: Place) -> None:
    (deleted, *_) = receipts(place)
    assert deleted["at"] == deleted["now_given"] == "2018-08-01T00:00:00Z"
    assert datetime.fromisoformat(deleted["done_at"]) > datetime(2024, 1, 1, tzinfo=UTC)


def test_what_waits_for_its_grace_is_recorded_by_its_manifest(place: Place) -> None:
    place.config.write_text(place.config.read_text().replace('after = "30d"', 'after = "30d"\ngrace = "7d"'))
    assert place("run", "-p", "ticks").code == 0
    assert receipts(place) == []
    assert (
        "2018-09-01T00:00:00Z"
        in place("run", "--json", "-p", "ticks", now="2018-08-30").policy("ticks")["error"]
    )


@pytest.mark.proof
@pytest.mark.parametrize("grace", ["0s", "7d"])
def test_a_time_in_the_future_is_lifted_by_name(place: Place, grace: str) -> None:
    text = place.config.read_text().replace('hourly = "365d"', "")
    place.config.write_text(text.replace('after = "30d"', f'after = "30d"\ngrace = "{grace}"'))
    place("rollup", now=None)
    assert place("run", now="2096-01-01").code == 0
    late(place, 1)
    refused = place("run", "--json", now=None)
    assert refused.code == 1
    assert "2096-01-01T00:00:00Z" in refused.policy("iot" if grace == "0s" else "ticks")["error"]
    said = ("resume", "--time", "-p", "ticks", "--reason", "2096 for 2026")
    for bad, now in ((said[:4], None), (said, NOW)):
        assert place(*bad, now=now).code == 2
    lifted = place(*said, "--json", now=None)
    assert lifted.code == 0, lifted
    assert lifted.policy("ticks")["lifted"] == "2096-01-01T00:00:00Z"
    *_, last = receipts(place)
    assert (last["kind"], last["reason"], last["recorded"]) == (
        "time",
        "2096 for 2026",
        "2096-01-01T00:00:00Z",
    )
    assert place("run", "-p", "ticks", now=None).code == 0
    assert place("verify", "-p", "ticks", now=None).code == 0
    assert "2096-01-01T00:00:00Z lifted" in place("receipts", "-p", "ticks").out
    (event,) = place("audit", "--json", "--html", "audit.html", "-p", "ticks", now=None).policy("ticks")[
        "proof"
    ]["events"]
    assert (event["kind"], event["reason"], event["done_at"]) == ("time", "2096 for 2026", last["done_at"])
    assert "A later time was lifted" in (place.folder / "audit.html").read_text()
    nothing = place(*said, now=None)
    assert nothing.code == 2
    assert "only a time in the future is lifted" in nothing.err


@pytest.mark.proof
@after("run")
def test_receipts_of_earlier_versions_tell_the_time_as_well(place: Place) -> None:
    place.database[RECEIPTS].update_many({"_id.name": "last"}, {"$unset": {"latest": "", "lifted": ""}})
    late(place, 1)
    assert place("run", now="2018-08-25").code == 1
    assert place("run", now="2018-09-02").code == 0
    assert place("audit", "-p", "ticks", now="2018-09-02").code == 0


@after("run")
def test_another_latest_time_than_that_of_the_receipts_is_found(place: Place) -> None:
    place.database[RECEIPTS].update_many({"_id.name": "last"}, {"$set": {"latest": START}})
    found = place("verify", "--json", "-p", "ticks")
    assert found.code == 5
    assert [it["code"] for it in found.policy("ticks")["damage"]] == ["receipt-differs"]
