"""An online archive that is not what was left: whatever reads it or would write from it says so."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import timedelta

import pytest
from bson import encode
from bson.binary import Binary

from bucketwise.archivers.records.deletions import unpacked_names
from bucketwise.archivers.records.pins import SIZE
from bucketwise.archivers.records.receipt_files import seal_of
from bucketwise.archivers.records.receipts import CODEC
from bucketwise.archivers.writes import same_id
from tests.jobs.keeping.test_authentic import signed
from tests.jobs.place import POLICIES, START, Place
from tests.jobs.states import after

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


#: Whatever is gone, every reader looks for it in the same place: each is tried where half is gone.
GONE = [
    (half_empty, READERS),
    *((it, (("run",),)) for it in (drop, rename, mistype)),
    *(pytest.param(it, READERS, marks=pytest.mark.proof) for it in (drop, rename, mistype)),
]


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(("fault", "readers"), GONE)
@after("run -p iot")
def test_nothing_passes_over_what_is_gone(
    place: Place, fault: Callable[[Place], None], readers: tuple[tuple[str, ...], ...]
) -> None:
    summaries = sorted(place.database.iot_hourly.find({}, {"_id": 0, "count": 1, "start": 1}), key=str)
    fault(place)
    place.database.iot.insert_one({"sensor": 7, "at": place.database.iot_hourly.find_one()["start"], "t": 1})  # type: ignore[index]
    for command in readers:
        ran = place(*command, "-p", "iot")
        assert (ran.code, "iot_arch" in ran.err + ran.out) == (5, True), (command, ran)
    if readers == READERS:
        assert place("query", "SELECT count(*) FROM iot").code == 5
    checked = place("check", "-p", "iot", "--json", now=None)
    assert checked.code == 1
    assert "archive-incomplete" in {it["code"] for it in checked.policy("iot")["findings"]}
    audited = place("audit", "-p", "iot", "--json")
    assert audited.code == 5
    assert any(it["code"].startswith("archive-") for it in audited.policy("iot")["findings"])
    stands = sorted(place.database.iot_hourly.find({}, {"_id": 0, "count": 1, "start": 1}), key=str)
    assert stands == summaries


def add_field(place: Place) -> None:
    place.database.iot_archive.update_one({}, {"$set": {"note": 1}})


def swap_values(place: Place) -> None:
    for found in list(place.database.iot_archive.find().limit(2)):
        place.database.iot_archive.update_one({"_id": found["_id"]}, {"$set": {"t": found["t"] + 1}})


def rename_one(place: Place) -> None:
    found = place.database.iot_archive.find_one_and_delete({})
    assert found
    place.database.iot_archive.insert_one({**found, "_id": "other"})


READS = (
    ("restore", "--to", "back"),
    ("readings",),
    ("coverage",),
    ("explain", "--at", f"{START:%Y-%m-%dT%H:%M:%SZ}"),
)


def audited_by_half(place: Place) -> None:
    place.write_config(f'{POLICIES}\n[drill]\nevery = "1d"\n[policies.iot.audit]\nsample = "50%"\n')


@pytest.mark.proof
@after(audited_by_half, "run -p iot")
def test_all_of_it_is_read(place: Place) -> None:
    assert place("verify", "-p", "iot").code == 0
    drilled = place("drill", "-p", "iot", "--json").policy("iot")
    assert {key: drilled[key] for key in ("days", "buckets", "equal", "differing")} == {
        "days": 1, "buckets": 18, "equal": 18, "differing": 0
    }  # fmt: skip
    audited = place("audit", "-p", "iot", "--full", "--json")
    assert (audited.code, audited.policy("iot")["parts"], audited.policy("iot")["parts_read"]) == (0, 18, 18)


#: Readers compare a document with its receipt in the same way, whatever was done to it.
CHANGED = [
    (swap_values, READS),
    (add_field, READS[:1]),
    (rename_one, READS[:1]),
    *(pytest.param(it, READS, marks=pytest.mark.proof) for it in (add_field, rename_one)),
]


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize(("fault", "reads"), CHANGED)
@after(audited_by_half, "run -p iot")
def test_changed_documents_are_named(
    place: Place, fault: Callable[[Place], None], reads: tuple[tuple[str, ...], ...]
) -> None:
    fault(place)
    for command in reads:
        ran = place(*command, "-p", "iot")
        assert ran.code == 5, (command, ran)
    if reads == READS:
        assert place("query", "SELECT sum(t) FROM iot").code == 5
    drilled = place("drill", "-p", "iot", "--json")
    assert drilled.code == 5 and drilled.policy("iot")["differing"] >= 1
    told = place("verify", "-p", "iot", "--json")
    verified = told.policy("iot")
    assert (told.code, verified["parts"], verified["readings"]) == (5, 18, 18)
    assert all("iot_archive, _id" in it["place"] for it in verified["damage"])
    found = place("audit", "-p", "iot", "--full", "--json")
    codes = {it["code"] for it in found.policy("iot")["findings"] if it["severity"] == "error"}
    assert found.code == 5
    assert {it["code"] for it in verified["damage"]} <= codes
    assert place.database.back.estimated_document_count() == 0


@after("run -p iot")
def test_a_late_reading_is_not_merged_with_a_changed_document(place: Place) -> None:
    before = sorted(map(str, place.database.iot_hourly.find()))
    add_field(place)
    place.database.iot.insert_one({"sensor": 7, "at": START, "t": 1.0})
    ran = place("run", "-p", "iot")
    assert (ran.code, "iot_archive, _id" in ran.err) == (5, True), ran
    assert sorted(map(str, place.database.iot_hourly.find())) == before


def hide(place: Place) -> None:
    """Its series is another one, so that a query does not find it."""
    place.database.iot_archive.update_one({}, {"$set": {"sensor": 8}})


def exchange(place: Place) -> None:
    """One of another series takes its place in the count."""
    found = place.database.iot_archive.find_one_and_delete({})
    assert found
    place.database.iot_archive.insert_one({**found, "_id": "other", "sensor": 8})


@pytest.mark.parametrize("fault", [hide, exchange])
@after("run -p iot")
def test_a_series_is_restored_whole_or_not_at_all(place: Place, fault: Callable[[Place], None]) -> None:
    fault(place)
    ran = place("restore", "-p", "iot", "--to", "back", "--series", "sensor=7")
    assert (ran.code, place.database.back.count_documents({})) == (5, 0)
    ran = place("restore", "-p", "iot", "--to", "back", "--series", "sensor=7", "--skip-damaged")
    assert (ran.code, place.database.back.count_documents({})) == (3, 17)


@pytest.mark.proof
@after(signed, "run -p iot")
def test_a_receipt_that_was_changed_with_its_document_is_not_believed(place: Place) -> None:
    """Not without its seal, and with a key not without its signature."""
    place.database.iot.insert_one({"sensor": 7, "at": START + timedelta(days=1), "t": 1.0})
    assert place("run", "-p", "iot").code == 0
    found = place.database.iot_archive.find_one_and_update({}, {"$set": {"t": 99.5}}, return_document=True)
    assert found
    mark = hashlib.sha256(encode(found)).digest()[:SIZE]
    records = place.database.bucketwise_receipts.with_options(codec_options=CODEC)
    receipt = records.find_one({"kind": "delete", "ids": {"$exists": True}}, sort=[("sequence", 1)])
    assert receipt
    at = list(unpacked_names(receipt["ids"])).index(same_id(b"\x07" + found["_id"].binary)) * SIZE
    marks = receipt["fingerprints"]
    receipt["fingerprints"] = Binary(marks[:at] + mark + marks[at + SIZE :])
    unnumbered = {key: value for key, value in receipt.items() if key != "sequence"}
    for changed in (receipt, {**receipt, "sha256": seal_of(receipt)}, unnumbered):
        records.replace_one({"_id": receipt["_id"]}, changed)
        for command in (("verify",), ("verify", "--since", "2018-06-30T00:00Z"), *READS):
            ran = place(*command, "-p", "iot")
            assert (ran.code, receipt["_id"]["name"] in ran.err + ran.out) == (5, True), (command, ran)


@after("run -p iot")
def test_a_collection_that_was_restored_is_adopted(place: Place) -> None:
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


@after("run -p iot")
def test_what_no_receipt_named_is_rolled_up_once_it_is_adopted(place: Place) -> None:
    """The collection was restored from a newer backup than the rest."""
    held = list(place.database.iot_archive.find())
    at = START + timedelta(days=3)
    place.database.iot_archive.drop()
    place.database.iot_archive.insert_many([*held, {**held[0], "_id": "newer", "at": at}])
    assert place("adopt", "-p", "iot", "--reason", "restored from Sunday's dump").code == 0
    assert place("run", "-p", "iot").code == 0
    (summary,) = place.database.iot_hourly.find({"start": {"$gte": at}})
    assert summary["count"] == 1


@pytest.mark.in_turn(1)
@pytest.mark.parametrize("is_older", [False, True])
@after("run -p iot")
def test_a_run_halts_where_all_receipts_were_dropped(place: Place, is_older: bool) -> None:
    """What the policy said last tells that there were some; also of an archive that is older than that."""
    if is_older:
        place.database.bucketwise_progress.update_one({"_id.policy": "iot"}, {"$unset": {"has_deleted": ""}})
        assert place("run", "-p", "iot").code == 0
    place.database.bucketwise_receipts.drop()
    checked = place("check", "-p", "iot", "--json").policy("iot")["findings"]
    (found,) = [it for it in checked if it["code"] == "archive-incomplete"]
    for verb in ("plan", "run"):
        ran = place(verb, "-p", "iot", "--json")
        assert (ran.code, ran.policy("iot")["error"]) == (5, found["message"])
    assert "`bucketwise adopt`" in found["message"]
    assert place("adopt", "-p", "iot", "--reason", "no backup").code == 0
    assert place("run", "-p", "iot").code == 0
    half_empty(place)
    assert place("run", "-p", "iot").code == 5
