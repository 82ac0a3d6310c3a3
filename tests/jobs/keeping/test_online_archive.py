"""An online archive that is not what was left: whatever reads it or would write from it says so."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.jobs.place import POLICIES, Place

READERS = (
    ("plan",),
    ("run",),
    ("verify",),
    ("restore", "--to", "back"),
    ("readings",),
    ("coverage",),
    ("summarize", "--since", "2018-06-30T00:00Z", "--until", "2018-06-30T03:00Z"),
)


def drop(place: Place) -> None:
    place.database.iot_archive.drop()


def rename(place: Place) -> None:
    place.database.iot_archive.rename("elsewhere")


def half_empty(place: Place) -> None:
    for found in list(place.database.iot_archive.find().limit(9)):
        place.database.iot_archive.delete_one(found)


def mistype(place: Place) -> None:
    place.write_config(POLICIES.replace('"iot_archive"', '"iot_archve"'))


@pytest.mark.parametrize("fault", [drop, rename, half_empty, mistype])
def test_nothing_passes_over_what_is_gone(place: Place, fault: Callable[[Place], None]) -> None:
    place.write_config(POLICIES)
    assert place("run", "-p", "iot").code == 0
    summaries = sorted(place.database.iot_hourly.find({}, {"_id": 0, "count": 1, "start": 1}), key=str)
    fault(place)
    place.database.iot.insert_one({"sensor": 7, "at": place.database.iot_hourly.find_one()["start"], "t": 1})  # type: ignore[index]
    for command in READERS:
        ran = place(*command, "-p", "iot")
        assert (ran.code, "iot_arch" in ran.err + ran.out) == (5, True), (command, ran)
    assert place("query", "SELECT count(*) FROM iot").code == 5
    checked = place("check", "-p", "iot", "--json", now=None)
    assert checked.code == 1
    assert "archive-incomplete" in {it["code"] for it in checked.policy("iot")["findings"]}
    audited = place("audit", "-p", "iot", "--json")
    assert audited.code == 5
    assert any(it["code"].startswith("archive-") for it in audited.policy("iot")["findings"])
    after = sorted(place.database.iot_hourly.find({}, {"_id": 0, "count": 1, "start": 1}), key=str)
    assert after == summaries


def add_field(place: Place) -> None:
    place.database.iot_archive.update_one({}, {"$set": {"note": 1}})


def swap_values(place: Place) -> None:
    for found in list(place.database.iot_archive.find().limit(2)):
        place.database.iot_archive.update_one({"_id": found["_id"]}, {"$set": {"t": found["t"] + 1}})


def rename_one(place: Place) -> None:
    found = place.database.iot_archive.find_one_and_delete({})
    assert found
    place.database.iot_archive.insert_one({**found, "_id": "other"})


@pytest.mark.parametrize("fault", [add_field, swap_values, rename_one])
def test_changed_documents_are_named(place: Place, fault: Callable[[Place], None]) -> None:
    place.write_config(f'{POLICIES}\n[drill]\nevery = "1d"\n[policies.iot.audit]\nsample = "50%"\n')
    assert place("run", "-p", "iot").code == 0
    assert place("verify", "-p", "iot").code == 0
    drilled = place("drill", "-p", "iot", "--json").policy("iot")
    assert {key: drilled[key] for key in ("days", "buckets", "equal", "differing")} == {
        "days": 1, "buckets": 18, "equal": 18, "differing": 0
    }  # fmt: skip
    audited = place("audit", "-p", "iot", "--full", "--json")
    assert (audited.code, audited.policy("iot")["parts"], audited.policy("iot")["parts_read"]) == (0, 18, 18)
    fault(place)
    for command in (("verify",), ("drill",), ("restore", "--to", "back")):
        ran = place(*command, "-p", "iot", "--json")
        assert ran.code == 5, (command, ran)
    assert place("drill", "-p", "iot", "--json").policy("iot")["differing"] >= 1
    verified = place("verify", "-p", "iot", "--json").policy("iot")
    assert (verified["parts"], verified["readings"]) == (18, 18)
    assert all("iot_archive, _id" in it["place"] for it in verified["damage"])
    found = place("audit", "-p", "iot", "--full", "--json")
    codes = {it["code"] for it in found.policy("iot")["findings"] if it["severity"] == "error"}
    assert found.code == 4
    assert {it["code"] for it in verified["damage"]} <= codes
    assert place.database.back.estimated_document_count() == 0


def test_a_collection_that_was_restored_is_adopted(place: Place) -> None:
    place.write_config(POLICIES)
    assert place("run", "-p", "iot").code == 0
    held = list(place.database.iot_archive.find())
    place.database.iot_archive.drop()
    place.database.iot_archive.insert_many(held[1:])
    ran = place("run", "-p", "iot")
    assert (ran.code, "another collection" in ran.err, "bucketwise adopt" in ran.err) == (5, True, True)
    assert place("adopt", "-p", "iot", "--reason", "restored from Sunday's dump").code == 0
    assert place("run", "-p", "iot").code == 0
    verified = place("verify", "-p", "iot", "--json")
    assert verified.code == 5
    assert {it["code"] for it in verified.policy("iot")["damage"]} == {"copy-missing"}
