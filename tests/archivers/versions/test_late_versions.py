"""Late upserts under an archived `_id`: versions of a bucket, restored as one, side by side, or the last."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import bson
import pytest
from pymongo.database import Database

from bucketwise.archivers.restoring.options import Mode, VersionHandling
from bucketwise.buckets.fields.times import TimeRange
from bucketwise.config.errors import BucketwiseError, UsageError
from bucketwise.config.tables import Store
from tests.archivers.builders import (
    CODEC,
    DAY0,
    Case,
    encode,
    insert,
    raw_documents,
    samples,
    samples_overflow,
    slots,
)
from tests.archivers.harness import Cycle
from tests.archivers.moving.test_guard import read

Document = dict[str, Any]


def hours(minutes: dict[int, float], hour: int = 3, **more: Any) -> Document:
    """An hour of one series, under an `_id` that follows from both."""
    at = DAY0 + timedelta(hours=hour)
    held = {str(minute): value for minute, value in minutes.items()}
    return {"_id": f"x_{at:%Y%m%d%H}", "d": at, "meta": {"symbol": "x"}, "p": held, **more}


@pytest.fixture
def cycle(database: Database[Document], file_store: Store) -> Cycle:
    base = slots("minute")
    return Cycle(database, Case(base.name, base.policy, [], []), file_store)


def archive(cycle: Cycle, *documents: Document) -> list[bytes]:
    """Each round of documents is archived, and gone, before the next."""
    for document in documents:
        insert(cycle.database, cycle.policy.collection, [encode(document)])
        assert cycle.run().deleted == 1
        assert cycle.live() == []
    return [encode(document) for document in documents]


DAY = timedelta(days=1)


def test_a_day_between_those_of_a_commit(cycle: Cycle) -> None:
    """One commit holds the first and the fifth day: what lies between has nothing, and nothing is wrong."""
    insert(cycle.database, cycle.policy.collection, [encode(hours({3: 1.0}, hour)) for hour in (0, 96)])
    cycle.run()
    span = TimeRange(DAY0 + 2 * DAY, DAY0 + 3 * DAY)
    assert cycle.restore("back", since=span.since, until=span.until).buckets == 0
    assert cycle.preview(within=span).buckets == 0


def test_a_bucket_without_readings_on_such_a_day(cycle: Cycle) -> None:
    """It is found there, as a version of a later one, and by an erasure."""
    empty, late = hours({}, 48), hours({5: 2.0}, 48)
    days = [encode(hours({3: 1.0}, hour)) for hour in (0, 96)]
    insert(cycle.database, cycle.policy.collection, [*days, encode(empty)])
    assert cycle.run().deleted == 3
    span = TimeRange(DAY0 + 2 * DAY, DAY0 + 3 * DAY)
    cycle.restore("back", since=span.since, until=span.until)
    assert raw_documents(cycle.database, "back") == [encode(empty)]
    archive(cycle, late)
    assert cycle.preview().versions == 1
    assert cycle.archived() == sorted([*days, encode(late)])
    assert cycle.erase({"meta.symbol": "x"}, span).counts["archived"] == 2
    assert cycle.archived() == sorted(days)
    assert cycle.verify().bad == []


@pytest.mark.proof
def test_slots_are_merged_one_by_one(cycle: Cycle) -> None:
    first = hours({3: 1.0, 5: 2.5, 7: float("nan")}, unit="C")
    second = hours({5: 7, 9: 4.0}, note="late")
    second["p"]["3"] = None
    third = hours({0: 0.5}, note="later")
    archive(cycle, first, second, third, hours({1: 1.0}, hour=4))
    told = cycle.preview()
    report = cycle.restore("back")
    assert replace(told, bytes=0, commits=0) == report
    assert told.bytes == sum(map(len, raw_documents(cycle.database, "back")))
    wanted = {**hours({3: 1.0, 5: 7, 7: float("nan"), 9: 4.0, 0: 0.5}, unit="C"), "note": "later"}
    back = raw_documents(cycle.database, "back")
    assert back == sorted([encode(wanted), encode(hours({1: 1.0}, hour=4))])
    assert (report.buckets, report.readings, report.versions) == (2, 6, 2)
    again = cycle.restore("back")
    assert again == report
    assert raw_documents(cycle.database, "back") == back


def original(document: bytes) -> bytes:
    """An older version as it was archived: its own `_id` is inside the one that it was given."""
    raw = bson.decode(document, CODEC)
    identity = raw.pop("_id")
    found = encode({"_id": identity["_id"], **raw})
    assert identity["sha256"] == hashlib.sha256(found).hexdigest()
    return found


@pytest.mark.proof
def test_all_versions_come_back_as_they_were(cycle: Cycle) -> None:
    """Beside each other; or the older ones elsewhere."""
    raw = archive(cycle, hours({3: 1.0, 5: 2.0}), hours({5: 7}), hours({0: 0.5}))
    told = cycle.preview(how=VersionHandling(Mode.all))
    report = cycle.restore("back", how=VersionHandling(Mode.all))
    assert (report.buckets, report.readings, report.versions) == (1, 1, 2)
    assert replace(told, bytes=0, commits=0) == report
    assert told.bytes == sum(map(len, raw_documents(cycle.database, "back")))
    back = {len(encode(it)): encode(it) for it in cycle.database["back"].find()}
    assert sorted(back.values(), key=len)[0] == raw[2]
    older = sorted((it for it in raw_documents(cycle.database, "back") if it != raw[2]), key=versioned)
    assert [original(it) for it in older] == raw[:2]
    before = raw_documents(cycle.database, "back")
    assert cycle.restore("back", how=VersionHandling(Mode.all)) == report
    assert raw_documents(cycle.database, "back") == before
    assert cycle.restore("other", how=VersionHandling(Mode.all, "older")).versions == 2
    assert raw_documents(cycle.database, "other") == [raw[2]]
    assert sorted(raw_documents(cycle.database, "older"), key=versioned) == older


def versioned(document: bytes) -> int:
    return int(bson.decode(document, CODEC)["_id"]["version"])


@pytest.mark.proof
def test_one_way_after_the_other(cycle: Cycle) -> None:
    """What an earlier restore put there is no stranger to a later one."""
    raw = archive(cycle, hours({3: 1.0, 5: 2.0}), hours({5: 7}), hours({0: 0.5}))
    merged = encode(hours({3: 1.0, 5: 7, 0: 0.5}))
    for mode, wanted in ((Mode.latest, raw[2]), (Mode.merged, merged)) * 2:
        report = cycle.restore("back", how=VersionHandling(mode))
        assert raw_documents(cycle.database, "back") == [wanted]
        assert (report.buckets, report.versions) == (1, 2)
    insert(cycle.database, "again", raw[1:2])
    cycle.restore("again")
    assert raw_documents(cycle.database, "again") == [merged]


def test_what_the_archive_does_not_hold_is_never_written_over(cycle: Cycle) -> None:
    archive(cycle, hours({3: 1.0}), hours({5: 7}))
    stranger = encode(hours({3: 1.0, 5: 7.0}))  # 7.0 is not 7
    insert(cycle.database, "back", [stranger])
    for mode in Mode:
        with pytest.raises(BucketwiseError, match=r"\d of \d buckets were not restored.*the same _id"):
            cycle.restore("back", how=VersionHandling(mode))
        assert raw_documents(cycle.database, "back") == [stranger]


def test_what_was_written_again_as_it_was_is_the_last_version(cycle: Cycle) -> None:
    archive(cycle, hours({3: 1.0}), hours({3: 2.0, 4: 1.0}), hours({3: 1.0}))
    cycle.restore("back")
    assert raw_documents(cycle.database, "back") == [encode(hours({3: 1.0, 4: 1.0}))]
    rows = sorted(value for *_, value in cycle.rows().elements())
    assert rows == [1.0, 1.0, 2.0]


def test_versions_of_different_series_are_not_merged(cycle: Cycle) -> None:
    raw = archive(cycle, hours({3: 1.0}), hours({5: 7}) | {"meta": {"symbol": "y"}})
    with pytest.raises(BucketwiseError, match=r"different series.*`--versions all`"):
        cycle.restore("back")
    assert raw_documents(cycle.database, "back") == raw[:1]
    cycle.restore("back", how=VersionHandling(Mode.all))
    assert raw[1] in raw_documents(cycle.database, "back")


def days(*moments: float) -> Document:
    """A bucket of samples, its readings so many days after the first."""
    held = [{"val": moment, "time": DAY0 + timedelta(days=moment)} for moment in moments]
    told = {"nsamples": len(held), "sum": sum(moments), "first": held[0]["time"], "last": held[-1]["time"]}
    return {"_id": "x", "deviceid": 1, "sensorid": 2, **told, "samples": held}


@pytest.fixture
def sampled(database: Database[Document], file_store: Store) -> Cycle:
    base = samples("dates")
    return Cycle(database, Case(base.name, base.policy, [], []), file_store)


def _later(days: float | None) -> datetime | None:
    return None if days is None else later(days)


@pytest.mark.proof
def test_a_version_that_lies_apart_from_the_others(sampled: Cycle) -> None:
    """Commits of one reading, and one of two months: all versions are found, whichever was met first."""
    archive(sampled, days(1.5), days(1.25), days(1.5, 40.0), days(40.5))
    wanted = [encode(days(1.25, 1.5, 40.0, 40.5))]
    for since, until in ((None, 1.3), (40.2, None), (None, None), (None, None)):
        report = sampled.restore("back", since=_later(since), until=_later(until))
    assert raw_documents(sampled.database, "back") == wanted
    assert (report.buckets, report.readings, report.versions) == (1, 4, 3)
    for _ in range(2):
        report = sampled.restore("other")
        assert raw_documents(sampled.database, "other") == wanted
        assert (report.buckets, report.readings, report.versions) == (1, 4, 3)


def later(moment: float) -> datetime:
    return DAY0 + timedelta(days=moment)


def test_one_version_leads_to_the_next(sampled: Cycle) -> None:
    """What is asked for is of one day; another version of that day reaches to a third."""
    archive(sampled, days(1.1), days(1.2), days(1.5, 40.0), days(40.5))
    sampled.restore("back", until=later(1.3))
    assert raw_documents(sampled.database, "back") == [encode(days(1.1, 1.2, 1.5, 40.0, 40.5))]


def test_some_versions_were_merged_without_another(sampled: Cycle) -> None:
    archive(sampled, days(1.1), days(20.0), days(1.2))
    counted = sampled.restore("none", dry_run=True)
    assert (counted.buckets, counted.readings, counted.versions) == (1, 3, 2)
    assert counted.bytes == len(encode(days(1.1, 1.2, 20.0)))
    sampled.restore("back", until=later(2))
    assert raw_documents(sampled.database, "back") == [encode(days(1.1, 1.2))]
    report = sampled.restore("back")
    assert raw_documents(sampled.database, "back") == [encode(days(1.1, 1.2, 20.0))]
    assert (report.buckets, report.readings, report.versions) == (1, 3, 2)


def test_a_commit_is_as_old_as_the_one_that_it_replaced(cycle: Cycle) -> None:
    insert(cycle.database, "slots", [encode(hours({3: 1.0})), encode(hours({3: 1.0}, hour=4))])
    cycle.run()
    archive(cycle, hours({3: 2.0}))
    cycle.restore("slots", since=DAY0 + timedelta(hours=4))
    cycle.database["slots"].update_one({}, {"$set": {"p.9": 1.0}})
    cycle.unpin()
    cycle.run()  # which takes the changed one out of the first commit
    cycle.restore("back", until=DAY0 + timedelta(hours=4))
    assert raw_documents(cycle.database, "back") == [encode(hours({3: 2.0}))]


def test_in_the_source_the_last_version_leaves_the_others_archived(cycle: Cycle) -> None:
    raw = archive(cycle, hours({3: 1.0}), hours({3: 2.0}))
    merged = [encode(hours({3: 2.0}))]
    for mode, counting in ((Mode.latest, raw[:1]), (Mode.merged, []), (Mode.latest, raw[:1])):
        cycle.restore("slots", how=VersionHandling(mode))
        assert cycle.live() == merged
        assert read(cycle) == counting
    cycle.unpin()
    cycle.run()
    assert read(cycle) == sorted(raw)


def test_what_can_not_be_asked_for(cycle: Cycle) -> None:
    for how, told in (
        (VersionHandling(Mode.all), "--versions-to"),
        (VersionHandling(Mode.all, "slots"), "would be live"),
        (VersionHandling(Mode.merged, "older"), "--versions all alone"),
        (VersionHandling(Mode.all, "bucketwise_x"), "can't be restored there"),
    ):
        with pytest.raises(UsageError, match=told):
            cycle.restore("slots", how=how)


@pytest.mark.proof
def test_overflow_of_older_versions_joins_no_bucket(database: Database[Document], file_store: Store) -> None:
    """Nor does any join a live bucket whose overflow has changed since."""
    cycle = Cycle(database, samples_overflow(), file_store).load()
    cycle.run()
    cycle.restore("first")
    first = database["first"].find_one({"has_extras": True, "nsamples": {"$gt": 1}})
    assert first is not None
    extras = [encode(it) for it in database["iot_extra"].find({"bucket_id": first["_id"]})]
    database["iot_extra"].drop()
    late = {**first, "nsamples": 1, "samples": [{"val": 9.0, "time": first["first"]}], "has_extras": False}
    archive(cycle, late)
    cycle.restore("last", how=VersionHandling(Mode.all, "older"))
    assert len(cycle.live_overflow()) == len(cycle.case.overflow) - len(extras)
    older = raw_documents(database, "older")
    assert len(older) == 1 + len(extras)
    held = [bson.decode(it, CODEC)["_id"] for it in older]
    digest = hashlib.sha256(encode(first) + b"".join(sorted(extras))).hexdigest()
    assert {it["sha256"] for it in held} == {digest}
    cycle.restore("iot")
    assert len(cycle.live_overflow()) == len(cycle.case.overflow)
    database["iot_extra"].insert_one({"_id": "other", "bucket_id": first["_id"], "more": []})
    changed = cycle.live_overflow()
    with pytest.raises(BucketwiseError, match=r"[12] of \d+ buckets were not restored"):
        cycle.restore("back")
    assert cycle.live_overflow() == changed
    assert database["back"].find_one({"_id": first["_id"]}) is None


@pytest.mark.proof
def test_some_of_more_versions_than_a_few_were_merged(sampled: Cycle) -> None:
    """A restore of a day knew those of that day alone."""
    apart = [days(20.0 + 3 * i) for i in range(4)]
    near = [days(1.125), days(1.25), days(1.25, 1.3125), days(1.0625), days(1.375)]
    archive(sampled, *(it for pair in zip(near, apart, strict=False) for it in pair), near[-1])
    sampled.restore("back", until=later(2))
    some = [encode(days(1.0625, 1.125, 1.25, 1.3125, 1.375))]
    assert raw_documents(sampled.database, "back") == some
    report = sampled.restore("back")
    wanted = [encode(days(1.0625, 1.125, 1.25, 1.3125, 1.375, 20.0, 23.0, 26.0, 29.0))]
    assert raw_documents(sampled.database, "back") == wanted
    assert (report.buckets, report.readings, report.versions) == (1, 9, 8)


def test_commits_are_found_as_they_were_archived(cycle: Cycle) -> None:
    """By now the policy reads another field as time, which the archived buckets don't have."""
    archive(cycle, hours({3: 1.0}), hours({5: 7}))
    policy = cycle.policy.model_copy(update={"time_field": "at"})
    cycle.case = Case("slots", policy, [], [])
    cycle.restore("back")
    assert raw_documents(cycle.database, "back") == [encode(hours({3: 1.0, 5: 7}))]
    again = hours({3: 1.0}) | {"at": DAY0 + timedelta(hours=3)}
    insert(cycle.database, "slots", [encode(again)])
    assert cycle.run().deleted == 1
