"""Each document of an online archive is held against the receipts, and each receipt against the documents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pymongo.database import Database

from bucketwise.archivers.kinds import archive_of
from bucketwise.archivers.records.online_heads import OnlineHeads
from bucketwise.buckets.fields.times import TimeRange
from bucketwise.config.errors import HaltedError
from bucketwise.config.policies import Retain
from bucketwise.config.tables import Store
from tests.archivers.builders import LATER, RAW, raw_documents, samples_overflow, timeseries
from tests.archivers.harness import Cycle
from tests.archivers.records.test_online_heads import forget, forget_receipts
from tests.archivers.states import States, all_archived

Document = dict[str, Any]


@pytest.fixture
def cycle(prepared: States) -> Cycle:
    return prepared(samples_overflow().online(), all_archived)


def add_field(archive: Any) -> None:
    archive.update_one({"_id": "004"}, {"$set": {"note": 1}})


def swap(archive: Any) -> None:
    one, other = (archive.find_one({"_id": it})["samples"] for it in ("004", "005"))
    archive.update_one({"_id": "004"}, {"$set": {"samples": other}})
    archive.update_one({"_id": "005"}, {"$set": {"samples": one}})


def rename(archive: Any) -> None:
    found = archive.find_one_and_delete({"_id": "004"})
    archive.insert_one({**found, "_id": "other"})


def put_another_in_its_place(archive: Any) -> None:
    archive.delete_one({"_id": "004"})
    archive.insert_one({**archive.find_one({"_id": "005"}), "_id": "new"})


def add(archive: Any) -> None:
    archive.insert_one({**archive.find_one({"_id": "004"}), "_id": "new"})


def take_overflow(archive: Any) -> None:
    archive.database["iot_archive_overflow"].delete_one({"bucket_id": "003"})


def strip_time(archive: Any) -> None:
    archive.update_one({"_id": "004"}, {"$unset": {"first": 1, "last": 1}})


FAULTS: list[tuple[Callable[[Any], None], set[tuple[str, str]]]] = [
    (add_field, {("copy-differs", "004")}),
    (swap, {("copy-differs", "004"), ("copy-differs", "005")}),
    (rename, {("copy-unknown", "other"), ("copy-missing", "004")}),
    (put_another_in_its_place, {("copy-unknown", "new"), ("copy-missing", "004")}),
    (add, {("copy-unknown", "new")}),
    (take_overflow, {("archive-short", ""), ("copy-differs", "003")}),
    (strip_time, {("copy-differs", "004")}),
]


@pytest.mark.in_turn(3)
@pytest.mark.parametrize(("fault", "damage"), FAULTS)
def test_each_change_is_named_and_never_restored(
    cycle: Cycle, fault: Callable[[Any], None], damage: set[tuple[str, str]]
) -> None:
    fault(cycle.database.get_collection("iot_archive", codec_options=RAW))
    found = cycle.verify()
    assert {(it.code, it.place.partition("_id ")[2].strip('"')) for it in found.bad} == damage
    with pytest.raises(HaltedError, match="iot_archive"):
        cycle.restore("back")
    assert raw_documents(cycle.database, "back") == []


@pytest.mark.proof
def test_an_archive_as_it_should_be_verifies(cycle: Cycle) -> None:
    documents = cycle.case.documents
    found = cycle.verify()
    assert (found.parts, found.readings, found.bad) == (len(documents), len(cycle.case.readings), [])
    series = cycle.case.readings[0][0]
    cycle.erase({name: str(it) for name, it in zip(cycle.policy.series_names, series, strict=True)})
    assert cycle.verify().bad == []
    cycle.restore(cycle.policy.collection)
    cycle.database[cycle.policy.collection].update_many({}, {"$set": {"note": "late"}})
    cycle.unpin()
    cycle.run(LATER)
    assert cycle.verify().bad == []
    assert cycle.live() == []


def test_what_is_damaged_is_left_out_where_that_is_asked_for(cycle: Cycle) -> None:
    archive = cycle.database["iot_archive"]
    add_field(archive)
    archive.delete_one({"_id": "005"})
    report = cycle.restore("back", skip_damaged=True)
    assert {it.place for it in report.missing} == {'iot_archive, _id "004"', 'iot_archive, _id "005"'}
    assert len(raw_documents(cycle.database, "back")) == report.buckets == len(cycle.case.documents) - 2


def test_a_range_is_verified_alone(cycle: Cycle) -> None:
    first = min(time for _, time, _ in cycle.case.readings)
    add_field(cycle.database["iot_archive"])
    cycle.database["iot_archive"].delete_one({"_id": "005"})
    archive = archive_of(cycle.context())
    assert {it.code for it in archive.verify(TimeRange(None, first)).bad} == {"archive-short"}
    codes = {it.code for it in archive.verify(TimeRange(first, None)).bad}
    assert codes == {"archive-short", "copy-differs", "copy-missing"}


@pytest.mark.proof
def test_copies_of_what_stays_are_verified_too(database: Database[Document], file_store: Store) -> None:
    for case, field in ((timeseries(), "price"), (samples_overflow().with_archive(delete=False), "note")):
        kept = Cycle(database, case.online(), file_store).load()
        kept.run()
        assert kept.verify().bad == []
        database[f"{kept.policy.collection}_archive"].update_one({}, {"$set": {field: 99.5}})
        assert [it.code for it in kept.verify().bad] == ["copy-differs"]


def erase(cycle: Cycle) -> None:
    cycle.erase({"deviceid": "1000", "sensorid": "3"})


def expire(cycle: Cycle) -> None:
    retain = Retain(archive=timedelta(days=1), archive_grace=timedelta(days=1))
    case = replace(cycle.case, policy=cycle.policy.model_copy(update={"retain": retain}))
    for now in (LATER, LATER + timedelta(days=2)):
        ending = Cycle(cycle.database, case, cycle.settings, fence=9)
        archive_of(ending.context(now, fence=9)).expire()


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize("remove", [erase, expire])
@pytest.mark.parametrize("is_baseline", [False, True])
def test_what_nobody_archived_goes_without_being_counted(
    cycle: Cycle, remove: Callable[[Cycle], None], is_baseline: bool
) -> None:
    """It was never counted, except by a baseline. Else as many others could go without a run noticing."""
    add(cycle.database["iot_archive"])
    if is_baseline:
        forget(cycle)
        forget_receipts(cycle)
        cycle.run()
    before = cycle.database["iot_archive"].count_documents({})
    remove(cycle)
    left = cycle.database["iot_archive"].count_documents({})
    assert left < before
    held = OnlineHeads(cycle.database, cycle.policy).read().heads
    assert held["buckets"].least == left
