"""A policy that is renamed, and one that leaves the file: whose its archive and its records are."""

from __future__ import annotations

from typing import Any

import pytest

from tests.jobs.place import MINUTES, POLICIES, START, Place
from tests.jobs.states import after

Document = dict[str, Any]
LATE = {"symbol": "MDB", "d": START, "p": {"7": 1.0}}
RENAMED = POLICIES.replace("policies.ticks", "policies.prices")
WITH_ID = RENAMED.replace("[policies.prices]\n", '[policies.prices]\nid = "ticks"\n')
FULL_HOUR = 3_600


def held(place: Place) -> None:
    """Archives everything, and holds it."""
    assert place("run", "-p", "ticks").code == 0
    added = place("hold", "add", "case-17", "-p", "ticks", "--reason", "case 17", "--until", "2018-07-01")
    assert added.code == 0


#: As the file may go on: with a policy that is another one, of the same collection.
ANOTHER = RENAMED.replace("[policies.prices]\n", '[policies.prices]\nid = "prices"\n')


def first_hour(place: Place) -> int:
    found = place.database.ticks_hourly.find_one({"start": START})
    assert found is not None
    return int(found["count"])


def restored(place: Place, policy: str) -> int:
    ran = place("restore", "-p", policy, "--to", "back", "--json")
    assert ran.code == 0, ran
    return int(ran.policy(policy)["buckets"])


@after(held)
def test_a_renamed_policy_goes_on_under_its_id(place: Place) -> None:
    """Its archive, its holds, its ledger, and the folder in the store."""
    place.write_config(WITH_ID)
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


@pytest.mark.proof
@after(held)
def test_a_policy_renamed_without_its_id_halts_before_anything_is_touched(place: Place) -> None:
    """A late reading does not replace the only summary of an archived hour, nothing is read as if there were
    nothing else, and no hold is placed on nothing. Both ways out are told, and each works."""
    place.write_config(RENAMED)
    place.database.ticks.insert_one(dict(LATE))
    halting = (
        ["run"], ["plan"], ["rollup"], ["archive"], ["compact"], ["restore", "--to", "back"], ["verify"],
        ["audit"], ["summarize", "--since", "2018-06-30", "--until", "2018-07-01"], ["coverage"], ["drill"],
        ["readings", "-o", "out.csv"], ["hold", "add", "case-18", "--reason", "case 18"],
        ["erase", "--series", "symbol=MDB", "--reason", "case 19"],
    )  # fmt: skip
    for verb in halting:
        ran = place(*verb, "-p", "prices", "--json")
        assert (verb, ran.code) == (verb, 5)
        for way in ('write id = "ticks"', "`bucketwise retire ticks --reason TEXT`"):
            assert way in ran.policy("prices")["error"]
    assert place("query", "FROM prices", "-p", "prices").code == 5
    assert first_hour(place) == FULL_HOUR
    assert restored(place, "ticks") == MINUTES  # by what it said last
    place.write_config(WITH_ID)
    assert place("run", "-p", "prices").code == 0
    assert first_hour(place) == FULL_HOUR + 1


@pytest.mark.proof
@after(held)
def test_a_retired_policy_is_read_by_what_it_said_last(place: Place) -> None:
    place.write_config(RENAMED)
    for refused, why in (
        (("retire", "prices", "--reason", "over"), "policy prices is in"),
        (("retire", "tocks", "--reason", "over"), "no records of such a policy"),
        (("retire", "ticks"), "say why"),
        (("retire", "ticks", "--reason", "over", "-p", "prices"), "without --policy"),
    ):
        ran = place(*refused)
        assert (ran.code, why in ran.err) == (2, True), ran
    ended = place("retire", "ticks", "--reason", "The feed is over", "--json")
    assert (ended.code, ended.policy("ticks")["retired"]) == (0, True)
    assert place("retire", "ticks", "--reason", "again", "--json").policy("ticks")["retired"] is False
    receipt = place("receipts", "-p", "ticks", "--json").policy("ticks")["deletes"][-1]
    assert (receipt["kind"], receipt["reason"]) == ("retire", "The feed is over")
    place.database.ticks.insert_one(dict(LATE))
    place.database.ticks_hourly.rename("old_hourly")
    assert place("run", "-p", "prices").code == 0  # it is another one, and halts no more
    for verb in (["verify"], ["coverage"], ["status"], ["hold", "list"]):
        assert (verb, place(*verb, "-p", "ticks").code) == (verb, 0)
    assert restored(place, "ticks") == MINUTES
    for refusing in ("run", "plan", "archive", "pause", "publish"):
        assert place(refusing, "-p", "ticks").code == 2


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize("is_retired", [True, False])
@after(held)
def test_a_late_reading_replaces_no_summary_of_a_policy_that_left_the_file(
    place: Place, is_retired: bool
) -> None:
    """What that one has archived is gone from the collection, and no other policy reads its archive."""
    place.write_config(ANOTHER)
    if is_retired:
        assert place("retire", "ticks", "--reason", "The feed is over").code == 0
    place.database.ticks.insert_one(dict(LATE))
    for _ in range(2):
        assert place("run", "-p", "prices").code == 0
        assert first_hour(place) == FULL_HOUR
    assert "readings-gone" not in place("audit", "-p", "prices", "--json").out


@after(held)
def test_a_policy_of_another_file_goes_on_beside_others_of_its_collection(place: Place) -> None:
    """Once it has records; a new one says that it is one of its own."""
    place.write_config(ANOTHER)
    assert place("plan", "-p", "prices").code == 0
    place.database.bucketwise_progress.insert_one({"_id": "prices"})
    place.write_config(RENAMED)
    assert place("plan", "-p", "prices").code == 0


@after(held)
def test_what_was_archived_before_texts_were_recorded_is_known_by_its_receipts(place: Place) -> None:
    place.write_config(RENAMED)
    place.database.bucketwise_progress.delete_one({"_id": {"policy": "ticks"}})
    assert place("run", "-p", "prices").code == 5
    assert restored(place, "ticks") == MINUTES
    place.database.bucketwise_receipts.delete_many({"kind": {"$in": ["policy", "delete"]}})
    assert place("run", "-p", "prices").code == 5  # by the last manifest


@after(held)
def test_a_text_that_somebody_changed_counts_as_none(place: Place) -> None:
    place.write_config(RENAMED)
    text = {"text": '[policies.ticks]\ncollection = "iot"\n'}
    place.database.bucketwise_progress.update_one({"_id": {"policy": "ticks"}}, {"$set": text})
    assert restored(place, "ticks") == MINUTES


@pytest.mark.proof
@after("run -p ticks")
def test_records_that_lost_their_form_are_named(place: Place) -> None:
    assert place("restore", "--to", "ticks", "-p", "ticks").code == 0
    for name, field in (("bucketwise_pins", "span"), ("bucketwise_progress", "retired")):
        records = place.database[name]
        found = records.find_one({field: {"$exists": True}})
        assert found is not None
        records.update_one({"_id": found["_id"]}, {"$set": {field: 7}})
        ran = place("run", "-p", "ticks")
        assert ran.code == 5 and f"Restore {name} from a backup" in ran.out + ran.err
        records.replace_one({"_id": found["_id"]}, found)
    place.database.bucketwise_lease.update_many({}, {"$set": {"taken_over_at": "x"}})
    assert place("run", "-p", "ticks").code == 0
