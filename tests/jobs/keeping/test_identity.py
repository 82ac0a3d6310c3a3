"""A policy that is renamed, and one that leaves the file: whose its archive and its records are."""

from __future__ import annotations

from typing import Any

from tests.jobs.place import MINUTES, POLICIES, START, Place

Document = dict[str, Any]
LATE = {"symbol": "MDB", "d": START, "p": {"7": 1.0}}
RENAMED = POLICIES.replace("policies.ticks", "policies.prices")
WITH_ID = RENAMED.replace("[policies.prices]\n", '[policies.prices]\nid = "ticks"\n')
FULL_HOUR = 3_600


def archived(place: Place, policies: str) -> None:
    """Archives everything, holds it, and has a late reading of an archived hour; the file is then another."""
    assert place("run", "-p", "ticks").code == 0
    held = place("hold", "add", "case-17", "-p", "ticks", "--reason", "case 17", "--until", "2018-07-01")
    assert held.code == 0
    place.write_config(policies)


def first_hour(place: Place) -> int:
    found = place.database.ticks_hourly.find_one({"start": START})
    assert found is not None
    return int(found["count"])


def restored(place: Place, policy: str) -> int:
    ran = place("restore", "-p", policy, "--to", "back", "--json")
    assert ran.code == 0, ran
    return int(ran.policy(policy)["buckets"])


def test_a_renamed_policy_goes_on_under_its_id(place: Place) -> None:
    """Its archive, its holds, its ledger, and the folder in the store."""
    archived(place, WITH_ID)
    place.database.ticks.insert_one(dict(LATE))
    assert place("run", "-p", "prices").code == 0
    assert first_hour(place) == FULL_HOUR + 1
    ran = place("run", "-p", "prices", "--json", now="2020-01-01T00:00:00Z")
    assert (ran.code, ran.policy("prices")["expiry"]["held"]) == (0, {"case-17": 3})
    assert restored(place, "prices") == MINUTES + 1
    assert place("verify", "-p", "prices").code == place("audit", "-p", "prices").code == 0
    status = place("status", "-p", "prices", "--json").policy("prices")
    assert len(status["last_runs"]) >= 3
    assert not (place.folder / "store" / "prices").exists()
    assert place("hold", "release", "case-17", "-p", "prices").code == 0
