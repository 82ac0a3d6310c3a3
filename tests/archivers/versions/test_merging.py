"""Late upserts under a `_id` that is in the online archive: merged there, the versions kept beside."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import bson
import pytest
from pymongo.database import Database

from bucketwise.archivers.restoring.options import Mode, VersionHandling
from bucketwise.buckets.fields.times import as_ms
from bucketwise.config.errors import HaltedError, UsageError
from bucketwise.config.tables import Store
from tests.archivers.builders import (
    CODEC,
    LATER,
    Case,
    encode,
    insert,
    raw_documents,
    samples_overflow,
    slots,
)
from tests.archivers.faults import Crash, Steps, die_in_transactions
from tests.archivers.harness import Cycle, Standing
from tests.archivers.versions.test_late_versions import archive, hours, original, versioned

Document = dict[str, Any]


@pytest.fixture
def cycle(database: Database[Document], file_store: Store) -> Cycle:
    base = slots("minute")
    return Cycle(database, Case(base.name, base.policy, [], []).online(), file_store)


def kept(cycle: Cycle) -> list[bytes]:
    """What lies beside the archive, in the order of versions, each proven by its SHA-256."""
    found = list(cycle.database["slots_archive_versions"].find().sort("_id", 1))
    for it in found:
        assert it["sha256"] == hashlib.sha256(it["document"]).hexdigest()
    return [it["document"] for it in found]


def test_the_archived_document_becomes_the_merged_one(cycle: Cycle) -> None:
    raw = archive(cycle, hours({3: 1.0, 5: 2.5}, unit="C"), hours({5: 7, 9: 4.0}), hours({0: 0.5}, note="x"))
    wanted = {**hours({3: 1.0, 5: 7, 9: 4.0, 0: 0.5}, unit="C"), "note": "x"}
    assert cycle.archived() == [encode(wanted)]
    assert kept(cycle) == raw
    report = cycle.run()
    assert (report.buckets, report.deleted, report.left, report.quarantined) == (0, 0, 0, [])


def test_a_run_after_one_that_merged_writes_nothing(cycle: Cycle) -> None:
    """The collection of versions was recorded among those of the archive by the run that made it."""
    archive(cycle, hours({3: 1.0}), hours({5: 7}))
    before = cycle.documents()
    cycle.run()
    assert cycle.documents() == before


def test_a_version_without_a_reading_is_in_a_receipt_that_is_found(cycle: Cycle) -> None:
    """Its own last time lies behind all readings of what it was merged into."""
    archive(cycle, hours({3: 1.0}), {**hours({}), "p": {"7": None}})
    (merged,) = cycle.archived()
    assert bson.decode(merged)["p"] == {"3": 1.0, "7": None}
    assert cycle.verify().bad == []
    assert (cycle.restore("back").buckets, raw_documents(cycle.database, "back")) == (1, [merged])


@pytest.mark.proof
def test_restores_of_what_was_merged(cycle: Cycle) -> None:
    raw = archive(cycle, hours({3: 1.0}), hours({1: 1.0}, hour=4), hours({3: 7}))
    merged, other = encode(hours({3: 7})), raw[1]
    told = cycle.preview()
    report = cycle.restore("back")
    assert replace(told, bytes=0) == report
    assert raw_documents(cycle.database, "back") == sorted([merged, other])
    assert (report.buckets, report.readings, report.versions) == (2, 2, 0)
    for mode in (Mode.latest, Mode.merged, Mode.latest):
        report = cycle.restore("back", how=VersionHandling(mode))
        assert raw_documents(cycle.database, "back") == sorted([raw[2], other])
        assert report.buckets == 2
    report = cycle.restore("again", how=VersionHandling(Mode.all, "older"))
    assert (report.buckets, report.versions) == (2, 1)
    assert raw_documents(cycle.database, "again") == sorted([raw[2], other])
    assert [original(it) for it in sorted(raw_documents(cycle.database, "older"), key=versioned)] == raw[:1]
    with pytest.raises(UsageError, match="--versions latest"):
        cycle.restore("slots", how=VersionHandling(Mode.latest))


def test_a_version_changed_with_its_digest_is_named_and_never_restored(cycle: Cycle) -> None:
    archive(cycle, hours({3: 1.0}), hours({3: 7}))
    assert cycle.verify().bad == []
    versions = cycle.database["slots_archive_versions"]
    for number in (1, 2):
        before = versions.find_one({"_id.version": number})
        assert before is not None
        forged = before["document"].replace(b"symbol", b"symbal")
        changed = {"document": forged, "sha256": hashlib.sha256(forged).hexdigest()}
        versions.update_one({"_id": before["_id"]}, {"$set": changed})
        assert [it.code for it in cycle.verify().bad] == ["version-differs"]
        for mode in (Mode.latest, Mode.all):
            with pytest.raises(HaltedError, match=f"version {number} of _id"):
                cycle.restore("back", how=VersionHandling(mode))
        assert raw_documents(cycle.database, "back") == []
        versions.replace_one({"_id": before["_id"]}, before)
    cycle.restore("back")


def test_a_superseded_version_is_proven_as_the_others_are(cycle: Cycle) -> None:
    archive(cycle, hours({3: 1.0}))
    cycle.restore("slots")
    cycle.unpin()
    cycle.database["slots"].update_one({}, {"$set": {"p": {"5": 7}}})
    assert cycle.verify().bad == []
    cycle.run()
    assert cycle.verify().bad == []
    versions = cycle.database["slots_archive_versions"]
    (before,) = versions.find()
    assert before["superseded"]
    forged = before["document"].replace(b"symbol", b"symbal")
    changed = {"document": forged, "sha256": hashlib.sha256(forged).hexdigest()}
    versions.update_one({}, {"$set": changed})
    assert [it.code for it in cycle.verify().bad] == ["version-differs"]
    with pytest.raises(HaltedError, match="version 1 of _id"):
        cycle.restore("back", how=VersionHandling(Mode.all))


def test_a_stranger_in_the_archive_is_never_changed(cycle: Cycle) -> None:
    stranger = encode(hours({3: 1.0}))
    insert(cycle.database, "slots_archive", [stranger])
    insert(cycle.database, "slots", [encode(hours({5: 7}))])
    for _ in range(2):
        report = cycle.run()
        assert [it.id for it in report.quarantined] == [hours({})["_id"]]
        assert "no receipt" in report.quarantined[0].reason
        assert cycle.archived() == [stranger]
        assert len(cycle.live()) == 1
    assert "slots_archive_versions" not in cycle.database.list_collection_names()


@pytest.mark.parametrize("count", [1, 2])
def test_what_was_put_over_an_archived_one_is_never_changed(cycle: Cycle, count: int) -> None:
    """Of the same `_id` and time; whether the archived one was merged before or not."""
    archive(cycle, hours({3: 1.0}), *[hours({4: 2.0})][: count - 1])
    before = kept(cycle)
    stranger = encode(hours({3: 1.0, 4: 2.0}, note="mine"))
    cycle.database["slots_archive"].delete_many({})
    insert(cycle.database, "slots_archive", [stranger])
    insert(cycle.database, "slots", [encode(hours({5: 7}))])
    report = cycle.run()
    assert "no receipt" in report.quarantined[0].reason
    assert cycle.archived() == [stranger]
    assert len(cycle.live()) == 1
    assert kept(cycle) == before


def test_other_series_are_not_merged(cycle: Cycle) -> None:
    (raw,) = archive(cycle, hours({3: 1.0}))
    late = hours({5: 7}) | {"meta": {"symbol": "y"}}
    insert(cycle.database, "slots", [encode(late)])
    report = cycle.run()
    assert "different series" in report.quarantined[0].reason
    assert (cycle.archived(), cycle.live()) == ([raw], [encode(late)])


def test_what_was_restored_and_changed_takes_the_place_of_all_versions(cycle: Cycle) -> None:
    first = encode(hours({3: 1.0}))
    archive(cycle, hours({3: 1.0}), hours({3: 7}))
    cycle.restore("slots")
    cycle.unpin()
    cycle.database["slots"].update_one({}, {"$set": {"p.8": 1.5}})
    mended = cycle.live()
    assert cycle.run().deleted == 1
    assert cycle.archived() == mended
    assert kept(cycle) == [first]  # of which another value stands now
    archive(cycle, hours({9: 2.0}))
    assert kept(cycle) == [first, *mended, encode(hours({9: 2.0}))]
    assert bson.decode(cycle.archived()[0], CODEC)["p"] == {"3": 7, "8": 1.5, "9": 2.0}


def content(cycle: Cycle) -> list[Document]:
    """What live and archive say of the one bucket, the live ones last."""
    raw = [*cycle.archived(), *cycle.live()]
    return [bson.decode(it, CODEC)["p"] for it in raw]


MEDDLES = (None, "changes", "goes")


@pytest.mark.in_turn(1)
@pytest.mark.parametrize("meddle", MEDDLES)
@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.proof)])
def test_a_crash_at_every_step(
    database: Database[Document], file_store: Store, meddle: str | None, every: int
) -> None:
    """The archive is what it was until the late bucket goes, and what the writer does meanwhile is heeded."""
    base = slots("minute")
    cycle = Cycle(database, Case(base.name, base.policy, [], []).online(), file_store)
    archive(cycle, hours({3: 1.0, 4: 1.0}))
    insert(database, "slots", [encode(hours({4: 2.0, 5: 2.0}))])
    standing = Standing(cycle)
    for die_at in range(1 + MEDDLES.index(meddle) % every, 100, every):
        standing.put_back(cycle)
        steps, has_meddled = Steps(die_at), False

        def guard(*_args: object) -> None:
            nonlocal has_meddled
            if has_meddled or not database["bucketwise_receipts"].count_documents({"state": "merging"}):
                return
            has_meddled = True  # now that the late bucket is copied
            if meddle == "changes":
                database["slots"].update_one({}, {"$set": {"p.5": 3.0}})
            if meddle == "goes":
                database["slots"].delete_one({})

        with pytest.MonkeyPatch.context() as patch:
            die_in_transactions(patch, steps)
            with contextlib.suppress(Crash):
                cycle.run(guard=guard, check=partial(steps.step, "check"))
        latest = 3.0 if has_meddled and meddle == "changes" else 2.0
        both, merged = [{"3": 1.0, "4": 1.0}, {"4": 2.0, "5": latest}], {"3": 1.0, "4": 2.0, "5": latest}
        gone = meddle == "goes" and has_meddled
        assert content(cycle) in ([both[:1], [merged]] if gone else [both, [merged]])
        if content(cycle) == [merged]:
            assert len(kept(cycle)) == 2
        cycle.run()
        cycle.run()
        assert content(cycle) == [merged]  # it was copied before it went
        versions = database["slots_archive_versions"]
        assert versions.count_documents({"superseded": None}) == 2
        assert len(kept(cycle)) == 2 or latest == 3.0  # which its copy did not have
        assert cycle.verify().bad == []
        before = cycle.documents()
        third = cycle.run()
        assert (third.buckets, third.deleted, third.left) == (0, 0, 0)
        assert cycle.documents() == before
        if not steps.died:
            break
    assert not steps.died and die_at > 8


def test_the_grace_is_waited_for(database: Database[Document], file_store: Store) -> None:
    base = slots("minute")
    case = Case(base.name, base.policy, [], []).online().with_archive(grace=timedelta(days=2))
    cycle = Cycle(database, case, file_store)
    insert(database, "slots", [encode(hours({3: 1.0}))])
    cycle.run()
    assert cycle.run(LATER + timedelta(days=3)).deleted == 1
    insert(database, "slots", [encode(hours({4: 2.0}))])
    first = cycle.run(LATER + timedelta(days=4))
    assert (first.buckets, first.deleted, first.left) == (1, 0, 1)
    second = cycle.run(LATER + timedelta(days=5))
    assert (second.buckets, second.deleted, second.left) == (0, 0, 1)
    assert content(cycle) == [{"3": 1.0}, {"4": 2.0}]
    cycle.restore("back", how=VersionHandling(Mode.all))  # what waits is no version yet
    assert raw_documents(database, "back") == cycle.archived()
    assert cycle.run(LATER + timedelta(days=7)).deleted == 1
    assert content(cycle) == [{"3": 1.0, "4": 2.0}]


@pytest.mark.parametrize("alone", [True, False])
def test_a_late_bucket_that_somebody_deletes_in_its_grace_is_merged_all_the_same(
    database: Database[Document], file_store: Store, alone: bool
) -> None:
    """As the copy of any other bucket counts that goes in its grace. Its windows are rolled up again."""
    base = slots("minute")
    case = Case(base.name, base.policy, [], []).online().with_archive(grace=timedelta(days=2))
    cycle = Cycle(database, case, file_store)
    others = [] if alone else [{**hours({7: 1.0}, hour=4), "_id": "other"}]
    insert(database, "slots", list(map(encode, [hours({3: 1.0}), *others])))
    cycle.run()
    cycle.run(LATER + timedelta(days=3))
    insert(
        database, "slots", list(map(encode, [hours({4: 2.0}), *({**it, "p": {"8": 1.0}} for it in others)]))
    )
    cycle.run(LATER + timedelta(days=4))
    database["slots"].delete_one({"_id": hours({})["_id"]})
    forced: list[bool] = []

    def rolled_up(
        _start: int, _end: int, *, force: bool = False, leaving: Sequence[tuple[int, int]] = ()
    ) -> bool:
        forced.append(force)
        return not leaving

    report = cycle.run(LATER + timedelta(days=7), through=as_ms(LATER), rolled_up=rolled_up)
    assert (report.deleted, any(forced)) == (len(others), True)
    found = content(cycle)
    assert len(found) == 1 + len(others) and {"3": 1.0, "4": 2.0} in found
    assert alone or {"7": 1.0, "8": 1.0} in found
    assert cycle.verify().bad == []
    insert(database, "slots", [encode(hours({5: 3.0}))])  # what was merged is known as archived from here
    for days in (8, 11):
        assert cycle.run(LATER + timedelta(days=days)).quarantined == []
    assert {"3": 1.0, "4": 2.0, "5": 3.0} in content(cycle)


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize("met_in_grace", [True, False])
@pytest.mark.parametrize("is_contained", [True, False])
def test_a_late_bucket_that_changes_in_its_grace_is_merged_as_it_is_then(
    database: Database[Document], file_store: Store, is_contained: bool, met_in_grace: bool
) -> None:
    """Where it no longer has all of its copy, somebody may have deleted it, and a late upsert made it again:
    the copy stays restorable. It counts no more."""
    base = slots("minute")
    case = Case(base.name, base.policy, [], []).online().with_archive(grace=timedelta(days=2))
    cycle = Cycle(database, case, file_store)
    insert(database, "slots", [encode(hours({3: 1.0}))])
    cycle.run()
    cycle.run(LATER + timedelta(days=3))
    late = encode(hours({4: 2.0}))
    insert(database, "slots", [late])
    cycle.run(LATER + timedelta(days=4))
    readings = {"4": 2.0, "5": 3.0} if is_contained else {"5": 3.0}
    database["slots"].update_one({}, {"$set": {"p": readings}})
    (changed,) = cycle.live()
    for days in (5, 8, 11)[not met_in_grace :]:
        cycle.run(LATER + timedelta(days=days))
        assert cycle.verify().bad == []
    assert content(cycle) == [{"3": 1.0, **readings}]
    cycle.restore("back", how=VersionHandling(Mode.all, "older"))
    assert raw_documents(database, "back") == [changed]
    older = {original(it) for it in raw_documents(database, "older")}
    assert older == {encode(hours({3: 1.0}))} | (set() if is_contained else {late})
    insert(database, "slots", [encode(hours({6: 4.0}))])
    for days in (12, 15):
        assert cycle.run(LATER + timedelta(days=days)).quarantined == []
    assert content(cycle) == [{"3": 1.0, **readings, "6": 4.0}]
    assert cycle.verify().bad == []


def test_summaries_follow_where_a_version_hides_another(cycle: Cycle) -> None:
    """Until they do, the receipt says so: the next run asks again."""
    archive(cycle, hours({3: 1.0, 4: 1.0}))
    asked: list[tuple[bool, bool]] = []

    def rolled_up(
        _start: int, _end: int, *, force: bool = False, leaving: Sequence[tuple[int, int]] = ()
    ) -> bool:
        asked.append((force, can[0]))
        return not leaving and (can[0] or not force)

    can = [False]
    insert(cycle.database, "slots", [encode(hours({5: 2.0}))])
    cycle.run(through=as_ms(LATER), rolled_up=rolled_up)
    assert not any(force for force, _ in asked)  # nothing is hidden
    insert(cycle.database, "slots", [encode(hours({4: 2.0}))])
    cycle.run(through=as_ms(LATER), rolled_up=rolled_up)
    assert asked[-1] == (True, False)
    can[0] = True
    cycle.run(through=as_ms(LATER), rolled_up=rolled_up)
    assert asked[-1] == (True, True)
    asked.clear()
    cycle.run(through=as_ms(LATER), rolled_up=rolled_up)
    assert asked == []


def test_a_damaged_version_is_found_before_anything_is_deleted(cycle: Cycle) -> None:
    archive(cycle, hours({3: 1.0}), hours({4: 2.0}))
    assert cycle.verify().bad == []
    cycle.database["slots_archive_versions"].update_one({}, {"$set": {"document": b"x"}})
    assert [it.code for it in cycle.verify().bad] == ["version-differs"]
    insert(cycle.database, "slots", [encode(hours({5: 2.0}))])
    with pytest.raises(HaltedError, match="SHA-256"):
        cycle.run()
    assert len(cycle.live()) == 1


def test_overflow_of_versions(database: Database[Document], file_store: Store) -> None:
    cycle = Cycle(database, samples_overflow().online(), file_store).load()
    cycle.run()
    first = database["iot_archive"].find_one({"has_extras": True, "nsamples": {"$gt": 1}})
    assert first is not None
    extras = list(database["iot_archive_overflow"].find({"bucket_id": first["_id"]}))
    more = {"_id": "late", "bucket_id": first["_id"], "more": [{"val": 7.0, "time": first["first"]}]}
    late = {**first, "nsamples": 1, "samples": [{"val": 9.0, "time": first["first"]}]}
    insert(database, "iot", [encode(late)])
    insert(database, "iot_extra", [encode(more)])
    assert cycle.run().deleted == 1
    assert cycle.live() == cycle.live_overflow() == []
    merged = database["iot_archive"].find_one({"_id": first["_id"]})
    wanted = [late["samples"][0], *first["samples"][1:]]
    assert merged == {**first, "samples": wanted, "nsamples": len(wanted)}
    archived = list(database["iot_archive_overflow"].find({"bucket_id": first["_id"]}))
    assert sorted(archived, key=str) == sorted([*extras, more], key=str)
    cycle.restore("iot")
    assert len(cycle.live()) == len(cycle.case.documents)
    overflow = cycle.live_overflow()
    assert overflow == sorted([*cycle.case.overflow, encode(more)])
