"""Copies in an offline archive that make way for newer versions of their buckets, while others write."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bson
import pytest
from pymongo.database import Database

import bucketwise.archivers.moving.offline
from bucketwise.archivers.format.manifest import Manifest
from bucketwise.archivers.recovering.commits import CommitRegistry
from bucketwise.archivers.restoring.options import Mode, Plan, VersionHandling
from bucketwise.archivers.restoring.settle import plan_of
from bucketwise.archivers.stores.file import FileStore
from bucketwise.archivers.versions.history import Fold, History, Version
from bucketwise.archivers.versions.superseded import Superseded, still_live
from bucketwise.buckets.bson.raw import Batch, Docs
from bucketwise.buckets.fields.times import as_ms
from bucketwise.buckets.source import Source
from bucketwise.config.tables import Store
from tests.archivers.builders import LATER, Case, encode, insert, raw_documents, slots
from tests.archivers.faults import Crash
from tests.archivers.harness import Cycle
from tests.archivers.moving.test_guard import read
from tests.archivers.versions.test_late_versions import hours

Document = dict[str, Any]
FIRST = hours({3: 1.0, 5: 2.0})
LATE = hours({9: 4.0})
OTHER = {**FIRST, "_id": "y_2018063003", "meta": {"symbol": "y"}}
DAYS = timedelta(days=1)
THROUGH = as_ms(LATER + 100 * DAYS)


def cycle_of(database: Database[Document], store: Store, **archive: Any) -> Cycle:
    base = slots("minute")
    cycle = Cycle(database, Case(base.name, base.policy, [], []).with_archive(**archive), store)
    insert(database, "slots", [encode(FIRST)])
    return cycle


def run_after(cycle: Cycle, *days: int) -> None:
    for day in days:
        cycle.run(LATER + day * DAYS)
    assert cycle.live() == []


def slots_of(documents: list[bytes]) -> list[dict[str, float]]:
    return [bson.decode(it)["p"] for it in documents]


def all_versions(cycle: Cycle) -> list[dict[str, float]]:
    cycle.restore("all", how=VersionHandling(Mode.all, "older"))
    older, last = (raw_documents(cycle.database, name) for name in ("older", "all"))
    return slots_of([*older, *last])


def test_what_is_gone_before_its_copy_can_leave_counts_once(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    cycle = cycle_of(database, file_store, grace=2 * DAYS)
    cycle.run(LATER)
    cycle.database["slots"].update_one({}, {"$set": {"p.6": 7.0}})

    def deletes(source: Source, copies: Batch) -> list[int]:
        cycle.database["slots"].delete_many({})
        return still_live(source, copies)

    with monkeypatch.context() as patch:
        patch.setattr(bucketwise.archivers.moving.offline, "still_live", deletes)
        cycle.run(LATER + DAYS)
    run_after(cycle, 4, 8)
    assert slots_of(read(cycle)) == [{"3": 1.0, "5": 2.0}]
    assert set(cycle.rows().values()) == {1}


def test_what_a_later_lease_is_about_to_keep_stays(database: Database[Document], file_store: Store) -> None:
    """A run that has stood still beyond its lease looks for what others have left."""
    cycle = cycle_of(database, file_store, grace=2 * DAYS)
    cycle.run(LATER)
    archive = cycle.as_stored()
    (commit,), batch = archive.commits(), Batch.of(Docs.of([encode(FIRST)]))
    kept = f"{Superseded(archive).put(commit.name, batch, [0], fence=9)}.bson"
    assert files(cycle)[0].name.endswith(kept)
    for fence, is_there in ((5, True), (9, True), (10, False)):
        cycle.run(LATER, fence=fence)
        assert bool(files(cycle)) is is_there


@pytest.mark.parametrize("day", [27, 29])
def test_a_bucket_that_moves_to_an_earlier_day_counts_once(
    database: Database[Document], file_store: Store, day: int
) -> None:
    cycle = cycle_of(database, file_store, grace=2 * DAYS)
    cycle.run(LATER)
    cycle.database["slots"].update_one({}, {"$set": {"d": datetime(2018, 6, day, 3, tzinfo=UTC)}})
    run_after(cycle, 1, 4, 8, 12)
    (found,) = read(cycle)
    assert bson.decode(found)["d"].day == day


def test_what_is_replaced_between_reading_and_exchange_stays_restorable(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is live contains the copy, and is replaced by something else before it has a copy itself."""
    cycle = cycle_of(database, file_store, grace=2 * DAYS)
    cycle.run(LATER, through=THROUGH)
    cycle.database["slots"].update_one({}, {"$set": {"p.6": 7.0}})
    amend = CommitRegistry.amend

    def replaces(self: CommitRegistry, *leaving: Any) -> Manifest | None:
        cycle.database["slots"].delete_many({})
        insert(cycle.database, "slots", [encode(LATE)])
        return amend(self, *leaving)

    with monkeypatch.context() as patch:
        patch.setattr(CommitRegistry, "amend", replaces)
        cycle.run(LATER + DAYS, through=THROUGH)
    run_after(cycle, 4, 8)
    assert all_versions(cycle) == [{"3": 1.0, "5": 2.0}, {"9": 4.0}]
    assert slots_of(read(cycle)) == [{"9": 4.0}]


def test_versions_apart_stay_when_the_restored_bucket_is_edited(
    database: Database[Document], file_store: Store
) -> None:
    cycle = cycle_of(database, file_store)
    run_after(cycle, 0)
    insert(database, "slots", [encode(hours({5: 7.0}))])
    run_after(cycle, 1)
    cycle.restore("slots")
    database["slots"].update_one({}, {"$set": {"p.6": 3.0}})
    cycle.unpin()
    run_after(cycle, 2, 3, 4)
    assert {"3": 1.0, "5": 2.0} in all_versions(cycle)


def test_what_a_later_version_contains_is_left_out(database: Database[Document], file_store: Store) -> None:
    """Whether that one counts, or was superseded itself."""
    cycle = cycle_of(database, file_store, grace=2 * DAYS)
    cycle.run(LATER)
    database["slots"].update_one({}, {"$set": {"p.6": 7.0}})
    cycle.run(LATER + DAYS)
    database["slots"].delete_many({})
    insert(database, "slots", [encode(LATE)])
    run_after(cycle, 2, 5, 8)
    assert all_versions(cycle) == [{"3": 1.0, "5": 2.0, "6": 7.0}, {"9": 4.0}]


def test_a_version_that_counts_again_is_counted_once(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run is killed once it has put a version aside; then the bucket is as it was copied again."""
    cycle = cycle_of(database, file_store, grace=2 * DAYS)
    insert(database, "slots", [encode({**hours({1: 1.0}), "_id": "z"})])
    cycle.run(LATER)
    source = database["slots"]
    source.update_one({"_id": FIRST["_id"]}, {"$unset": {"p.3": ""}})
    put = Superseded.put

    def dies(self: Superseded, commit: str, batch: Batch, positions: Sequence[int], fence: int) -> None:
        put(self, commit, batch, positions, fence)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Superseded, "put", dies)
        cycle.run(LATER + DAYS)
    source.replace_one({"_id": FIRST["_id"]}, bson.decode(encode(FIRST)))
    source.update_one({"_id": "z"}, {"$set": {"p.4": 1.0}})
    run_after(cycle, 4, 8, 12)
    report = cycle.restore("all", how=VersionHandling(Mode.all, "older"))
    assert (report.buckets, report.readings, report.versions) == (2, 4, 0)
    assert len(raw_documents(database, "all")) == 2
    assert raw_documents(database, "older") == []


def test_the_last_version_that_counts_is_the_one_restored() -> None:
    """Though one that counts no more was archived behind it."""
    policy = slots("minute").policy

    def version(document: Document, *, is_superseded: bool) -> Version:
        return Version(Batch.of(Docs.of([encode(document)])), policy, is_superseded=is_superseded)

    history = History([version(FIRST, is_superseded=False), version(LATE, is_superseded=True)])
    plan = plan_of(history, [], Fold([], None), VersionHandling(Mode.all, "older"))
    assert isinstance(plan, Plan)
    assert plan.final.main[0] == encode(FIRST)
    assert slots_of(plan.aside) == [{"9": 4.0}]


@pytest.mark.proof
def test_a_restore_reads_each_file_of_versions_a_bounded_number_of_times(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many pieces it takes."""
    cycle = cycle_of(database, file_store, grace=2 * DAYS)
    insert(database, "slots", [encode({**hours({1: 1.0}), "_id": str(i)}) for i in range(8)])
    cycle.run(LATER)
    database["slots"].update_one({"_id": FIRST["_id"]}, {"$unset": {"p.3": ""}})
    run_after(cycle, 1, 4, 8)
    monkeypatch.setattr("bucketwise.archivers.writes.MAX_BUCKETS", 1)
    listed = counted(monkeypatch, "files")
    read_back = counted(monkeypatch, "read")
    report = cycle.restore("all", how=VersionHandling(Mode.all, "older"))
    assert (report.buckets, report.versions) == (9, 1)
    assert len(listed) <= 3
    assert len(read_back) <= 6


def counted(monkeypatch: pytest.MonkeyPatch, name: str) -> list[int]:
    """Counts the calls of a method of `Superseded`."""
    calls: list[int] = []
    real = getattr(Superseded, name)

    def counts(self: Superseded, *given: Any) -> Any:
        calls.append(1)
        return real(self, *given)

    monkeypatch.setattr(Superseded, name, counts)
    return calls


def test_a_moved_bucket_counts_once_though_its_commit_was_taken_over(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a commit takes over is as old as it was there, and waits no longer. Each day is a commit."""
    monkeypatch.setattr("bucketwise.archivers.moving.sweep.MAX_SPAN_MS", 1)
    cycle = cycle_of(database, file_store, grace=3 * DAYS)
    insert(database, "slots", [encode({**hours({1: 1.0}), "_id": "z"})])
    cycle.run(LATER)
    day = datetime(2018, 6, 29, 3, tzinfo=UTC)
    database["slots"].update_one({"_id": FIRST["_id"]}, {"$set": {"d": day}})
    cycle.run(LATER + DAYS)
    database["slots"].update_one({"_id": "z"}, {"$set": {"p.4": 1.0}})
    cycle.run(LATER + 2 * DAYS)
    run_after(cycle, 4, 7, 10)
    assert sorted(bson.decode(it)["d"].day for it in read(cycle)) == [29, 30]


def test_a_file_of_versions_goes_whose_commit_nothing_has_left(
    database: Database[Document], file_store: Store
) -> None:
    """A run died before the exchange, and by then the bucket is again what it was."""
    cycle = cycle_of(database, file_store, grace=2 * DAYS)
    cycle.run(LATER)
    database["slots"].update_one({}, {"$set": {"p.6": 7.0}})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CommitRegistry, "_rewrite", dies)
        with pytest.raises(Crash):
            cycle.run(LATER + DAYS)
    assert len(files(cycle)) == 1
    database["slots"].replace_one({"_id": FIRST["_id"]}, FIRST)
    run_after(cycle, 2, 5)
    assert files(cycle) == []
    assert cycle.archived() == [encode(FIRST)] and cycle.verify().bad == []


def test_a_file_of_versions_that_nothing_refers_to_is_told(
    database: Database[Document], file_store: Store
) -> None:
    cycle = cycle_of(database, file_store, grace=2 * DAYS)
    cycle.run(LATER)
    database["slots"].replace_one({"_id": FIRST["_id"]}, {**FIRST, "p": LATE["p"]})
    run_after(cycle, 1, 4)
    (kept,) = files(cycle)
    for name in (kept.name.replace("_f000001_", "_f000077_"), "notes.txt"):
        kept.with_name(name).write_bytes(kept.read_bytes())
        (bad,) = cycle.verify().bad
        assert bad.code == "file-foreign" and bad.place.endswith(name)
        kept.with_name(name).unlink()
    assert cycle.verify().bad == []


def dies(*_given: object) -> None:
    raise Crash


def files(cycle: Cycle) -> list[Path]:
    return sorted(cycle.root.glob("slots/meta/versions/*"))


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize("others", [[], [OTHER]], ids=["all of a commit", "a part of it"])
def test_a_file_that_no_run_has_kept_is_named_and_not_given(
    database: Database[Document], file_store: Store, others: list[Document]
) -> None:
    """It may name a commit that others have replaced, and its own SHA-256."""
    cycle = cycle_of(database, file_store, grace=2 * DAYS)
    insert(database, "slots", list(map(encode, others)))
    cycle.run(LATER, through=THROUGH)
    database["slots"].delete_one({"_id": FIRST["_id"]})
    insert(database, "slots", [encode(LATE)])
    cycle.run(LATER + DAYS, through=THROUGH)
    run_after(cycle, 4, 8)
    genuine = all_versions(cycle)
    assert genuine[0] == {"3": 1.0, "5": 2.0}
    (kept,) = (cycle.root / "slots/meta/versions").iterdir()
    commit = kept.name.partition(".")[0]
    for planted in ({**FIRST, "p": {"3": 99.0}}, {**FIRST, "_id": "other", "p": {"3": 99.0}}):
        Superseded(cycle.as_stored()).put(commit, Batch.of(Docs.of([encode(planted)])), [0], fence=999)
        for name in ("all", "older"):
            database.drop_collection(name)
        assert all_versions(cycle) == genuine
    found = {it.code for it in cycle.verify().bad}
    assert (found, len(cycle.verify().bad)) == ({"file-foreign"}, 2)


@pytest.mark.proof
def test_a_version_that_was_erased_does_not_come_back_with_its_file(
    database: Database[Document], file_store: Store
) -> None:
    cycle = cycle_of(database, file_store, grace=2 * DAYS)
    insert(database, "slots", [encode(OTHER)])
    cycle.run(LATER, through=THROUGH)
    database["slots"].delete_many({})
    newer = [encode({**it, "p": {"9": 4.0}}) for it in (FIRST, OTHER)]
    insert(database, "slots", newer)
    cycle.run(LATER + DAYS, through=THROUGH)
    run_after(cycle, 4, 8)
    assert len(all_versions(cycle)) == 4
    (kept,) = (cycle.root / "slots/meta/versions").iterdir()
    data = kept.read_bytes()
    assert not cycle.erase({"meta.symbol": "y"}).is_found
    assert not kept.exists()
    for _ in range(2):
        for name in ("all", "older"):
            database.drop_collection(name)
        assert all_versions(cycle) == [{"3": 1.0, "5": 2.0}, {"9": 4.0}]
        found = [it.code for it in cycle.verify().bad]
        assert found == (["file-foreign"] if kept.exists() else [])
        kept.write_bytes(data)  # a backup was put back
    assert not cycle.erase({"meta.symbol": "y"}).is_found
    assert not kept.exists(), "what stays of it lies in the file that took its place"


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_erasure_that_is_killed_at_a_file_of_versions_is_ended_by_the_next(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    cycle = cycle_of(database, file_store, grace=2 * DAYS)
    insert(database, "slots", [encode(OTHER)])
    cycle.run(LATER, through=THROUGH)
    database["slots"].delete_many({})
    insert(database, "slots", [encode({**it, "p": {"9": 4.0}}) for it in (FIRST, OTHER)])
    cycle.run(LATER + DAYS, through=THROUGH)
    run_after(cycle, 4, 8)
    (kept,) = (cycle.root / "slots/meta/versions").iterdir()
    inner = FileStore.delete

    def delete(store: FileStore, keys: Sequence[str]) -> None:
        is_versions = any("/meta/versions/" in key for key in keys)
        if not is_versions or moment == "after":
            inner(store, keys)
        if is_versions:
            raise Crash

    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(FileStore, "delete", delete)
        cycle.erase({"meta.symbol": "y"})
    assert kept.exists() == (moment == "before")
    assert not cycle.erase({"meta.symbol": "y"}).is_found
    (rest,) = (cycle.root / "slots/meta/versions").iterdir()
    assert rest != kept
    assert all_versions(cycle) == [{"3": 1.0, "5": 2.0}, {"9": 4.0}]
