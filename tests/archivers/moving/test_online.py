"""The online archive, from source to the other collection and back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import bson
import pytest
from bson.binary import Binary
from pymongo.database import Database

from bucketwise.archivers.context import NOT_ROLLED_UP
from bucketwise.archivers.records.deletions import legible
from bucketwise.buckets.fields.times import LAST_MS
from bucketwise.config.models import SamplesPolicy
from bucketwise.config.tables import Store
from tests.archivers.builders import (
    CODEC,
    LATER,
    Case,
    deletable,
    encode,
    insert,
    raw_documents,
    samples_overflow,
    slots,
    timeseries,
)
from tests.archivers.harness import Cycle
from tests.archivers.states import States, all_archived, nothing_archived

Document = dict[str, Any]
BY_NAME = {case.name: case for case in deletable()}


@pytest.fixture(params=sorted(BY_NAME))
def cycle(request: pytest.FixtureRequest, database: Database[Document], file_store: Store) -> Cycle:
    return Cycle(database, BY_NAME[request.param].online(), file_store).load()


@pytest.fixture(params=sorted(BY_NAME))
def archived(request: pytest.FixtureRequest, prepared: States) -> Cycle:
    return prepared(BY_NAME[request.param].online(), all_archived)


@pytest.mark.in_turn(2)
def test_what_expired_moves_and_comes_back_to_the_bit(cycle: Cycle) -> None:
    report = cycle.run()
    assert (report.buckets, report.deleted, report.left) == (len(cycle.case.documents),) * 2 + (0,)
    assert report.readings == len(cycle.case.readings)
    assert cycle.live() == []
    assert cycle.archived() == sorted(cycle.case.documents)
    if cycle.policy.overflow:
        assert cycle.live_overflow() == []
        held = raw_documents(cycle.database, f"{cycle.policy.collection}_archive_overflow")
        assert held == sorted(cycle.case.overflow)
    cycle.restore("back")
    assert raw_documents(cycle.database, "back") == sorted(cycle.case.documents)
    if cycle.policy.overflow:
        assert cycle.live_overflow() == sorted(cycle.case.overflow)


@pytest.mark.in_turn(2)
def test_a_second_run_does_nothing(archived: Cycle) -> None:
    before = archived.documents()
    report = archived.run()
    assert (report.buckets, report.deleted, report.left, report.bytes) == (0, 0, 0, 0)
    assert archived.documents() == before


@pytest.mark.in_turn(2)
def test_the_archive_is_packed_and_indexed(archived: Cycle) -> None:
    database, policy = archived.database, archived.policy
    name = f"{policy.collection}_archive"
    options = next(iter(database.list_collections(filter={"name": name})))["options"]
    assert options["storageEngine"]["wiredTiger"]["configString"] == "block_compressor=zstd"
    keys = [list(index["key"]) for index in database[name].list_indexes()]
    time = (policy.end_field if isinstance(policy, SamplesPolicy) else None) or policy.time_field
    assert any(key[: len(policy.series_fields) + 1] == [*policy.series_fields, time] for key in keys)
    assert any(key[0] == time for key in keys)


@pytest.mark.in_turn(2)
def test_a_dry_run_changes_nothing(cycle: Cycle) -> None:
    before = cycle.documents()
    assert cycle.run(dry_run=True, fence=0).buckets == len(cycle.case.documents)
    assert cycle.documents() == before


@pytest.mark.proof
def test_copies_are_kept_when_the_policy_says_so(database: Database[Document], file_store: Store) -> None:
    case = samples_overflow().online()
    kept = Cycle(database, case.with_archive(delete=False), file_store).load()
    assert kept.run().deleted == 0
    assert kept.live() == kept.archived() == sorted(case.documents)
    before = kept.documents()
    again = kept.run()
    assert (again.buckets, again.deleted, again.left) == (0, 0, len(case.documents))
    assert kept.documents() == before

    database["iot"].update_one({"_id": "004"}, {"$set": {"note": "late"}})
    extra = {"_id": "x", "bucket_id": "003", "more": [{"val": 1.5, "time": LATER.replace(year=2000)}]}
    database["iot_extra"].insert_one(extra)
    database["iot"].update_one({"_id": "003"}, {"$set": {"first": LATER.replace(year=2000)}})
    assert kept.run().buckets == 2
    assert kept.archived() == kept.live()
    overflow = raw_documents(database, "iot_archive_overflow")
    assert overflow == kept.live_overflow()

    moving = Cycle(database, case, file_store, fence=kept.fence)
    live = moving.live()
    assert moving.run().deleted == len(live)
    assert (moving.live(), moving.live_overflow()) == ([], [])
    assert (moving.archived(), raw_documents(database, "iot_archive_overflow")) == (live, overflow)


def test_time_series_are_copied_and_kept(database: Database[Document], file_store: Store) -> None:
    """Each measurement as an ordinary document, with its `_id` first."""
    cycle = Cycle(database, timeseries().online(), file_store).load()
    report = cycle.run()
    assert (report.buckets, report.deleted, report.left) == (200, 0, 200)
    wanted = {document["_id"]: document for document in database["weather"].find()}
    assert {document["_id"]: document for document in database["weather_archive"].find()} == wanted
    before = raw_documents(database, "weather_archive")
    assert (cycle.run().buckets, cycle.run().left) == (0, 200)
    assert raw_documents(database, "weather_archive") == before


def test_another_document_with_the_same_id_is_in_the_way(prepared: States) -> None:
    """Archived, then written anew under the same `_id`, also as another type of number: reported, left."""
    cycle = prepared(BY_NAME["slots-minute"].online(), all_archived)
    held = cycle.archived()
    base = {"p": {"3": 1.5}, "meta": {"symbol": "MDB"}, "d": LATER.replace(month=6)}
    late = [encode({"_id": 0, **base}), encode({"_id": 1.0, **base}), encode({"_id": 1000, **base})]
    insert(cycle.database, "slots", late)
    report = cycle.run()
    assert sorted(it.id for it in report.quarantined) == [0, 1.0]
    assert (report.buckets, report.deleted) == (1, 1)
    assert cycle.live() == sorted(late[:2])
    assert cycle.archived() == sorted([*held, late[2]])
    assert cycle.run().buckets == 0


@pytest.mark.parametrize(
    "identity", [Binary(b"short", 4), {"a": Binary(b"short", 4)}], ids=["plain", "compound"]
)
def test_an_id_that_says_it_is_a_uuid_and_is_none(
    database: Database[Document], file_store: Store, identity: Any
) -> None:
    base = slots("minute")
    document = {**bson.decode(base.documents[0], CODEC), "_id": identity}
    case = Case(base.name, base.policy, [bson.encode(document, codec_options=CODEC)], [])
    cycle = Cycle(database, case.online().with_archive(delete=False), file_store)
    cycle.load()
    cycle.run()
    cycle.run()
    cycle.case = cycle.case.with_archive(delete=True)
    assert cycle.run().deleted == 1
    assert cycle.verify().bad == []
    told = list(legible(cycle.context().receipts, cycle.context().receipt_files, None, None))
    assert [it["ids"] for it in told if it["kind"] == "delete"] == [[identity]]


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("change", ["none", "changed", "removed", "new", "copy lost"])
def test_a_dry_run_after_a_grace_counts_what_the_run_does(prepared: States, change: str) -> None:
    cycle = prepared(slots("minute").online().with_archive(grace=timedelta(days=1)), all_archived)
    database = cycle.database
    source = database[cycle.policy.collection]
    last = next(iter(source.find().sort("_id", -1)))
    if change == "changed":
        source.update_one({"_id": last["_id"]}, {"$set": {"note": "late"}})
    elif change == "removed":
        source.delete_one({"_id": last["_id"]})
    elif change == "new":
        source.insert_one({**last, "_id": "new"})
    elif change == "copy lost":
        database[f"{cycle.policy.collection}_archive"].delete_one({"_id": last["_id"]})
    planned, done = (cycle.run(LATER + timedelta(days=2), dry_run=dry_run) for dry_run in (True, False))
    assert planned.deleted == done.deleted >= len(cycle.case.documents) - 1
    assert (planned.buckets, planned.left, planned.reasons) == (done.buckets, done.left, done.reasons)


def never(
    _start_ms: int, _end_ms: int, *, force: bool = False, leaving: Sequence[tuple[int, int]] = ()
) -> bool:
    """A roll-up that can't bring windows up to date."""
    del force, leaving
    return False


@pytest.mark.parametrize("to", ["offline", "online"])
def test_nothing_moves_while_its_windows_are_not_rolled_up_again(prepared: States, to: str) -> None:
    case = slots("minute") if to == "offline" else slots("minute").online()
    cycle = prepared(case, nothing_archived)
    report = cycle.run(through=LAST_MS, rolled_up=never)
    assert (report.buckets, report.deleted, report.left) == (0, 0, len(case.documents))
    assert [it for it in report.reasons if it == NOT_ROLLED_UP]
    assert (cycle.live(), cycle.archived()) == (sorted(case.documents), [])
    assert cycle.run(through=LAST_MS).deleted == len(case.documents)
