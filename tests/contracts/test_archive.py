"""What every archive owes, whichever kind it is: one suite for all."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pymongo.database import Database

from bucketwise.archivers.compacting.compact import CompactOptions
from bucketwise.archivers.kinds import archive_of
from bucketwise.archivers.kinds.archive import Archive
from bucketwise.archivers.moving.archive import ArchiveOptions
from bucketwise.archivers.restoring.options import RestoreOptions
from bucketwise.buckets.fields.times import TimeRange
from bucketwise.config.errors import HaltedError
from bucketwise.config.policies import Retain
from bucketwise.config.tables import Store
from tests.archivers.builders import LATER, Case, raw_documents, samples_overflow
from tests.archivers.harness import Cycle

Document = dict[str, Any]


@pytest.fixture(params=["offline", "online"])
def cycle(request: pytest.FixtureRequest, database: Database[Document], file_store: Store) -> Cycle:
    case = samples_overflow()
    return Cycle(database, case.online() if request.param == "online" else case, file_store).load()


@pytest.fixture
def moved(cycle: Cycle) -> Cycle:
    assert archived(cycle).run(ArchiveOptions()).deleted == len(cycle.case.documents)
    return cycle


def archived(cycle: Cycle, **given: Any) -> Archive:
    cycle.fence += 1
    return archive_of(cycle.context(fence=cycle.fence, **given))


def spoil(cycle: Cycle) -> None:
    """Changes something of what is archived."""
    if cycle.policy.archive_collections is not None:
        cycle.database["iot_archive"].update_one({}, {"$set": {"note": 1}})
        return
    part = next((cycle.root / "iot" / "data").glob("**/*.parquet"))
    part.write_bytes(part.read_bytes() + b"x")


def lose(cycle: Cycle) -> None:
    """Removes all that is archived."""
    cycle.database["iot_archive"].drop()
    for file in (cycle.root / "iot").glob("**/*.*"):
        file.unlink()


def test_a_plan_is_the_run_without_its_writing(cycle: Cycle) -> None:
    planned = archived(cycle).plan(ArchiveOptions())
    assert cycle.live() == sorted(cycle.case.documents)
    done = archived(cycle).run(ArchiveOptions())
    assert (planned.buckets, planned.readings, planned.deleted) == (done.buckets, done.readings, done.deleted)
    assert (done.deleted, cycle.live()) == (len(cycle.case.documents), [])
    again = archived(cycle).run(ArchiveOptions())
    assert (again.buckets, again.deleted, again.left) == (0, 0, 0)


def test_what_was_archived_is_proven_and_comes_back(moved: Cycle) -> None:
    archive, case = archived(moved), moved.case
    verified = archive.verify()
    assert (verified.readings, verified.bad) == (len(case.readings), [])
    records = archive.verify_records()
    assert (records.report.bad, records.unlisted, records.is_gone) == ([], [], False)
    report, intact = archive.verify_pieces([it.piece for it in records.intact])
    assert (report.bad, report.parts, report.readings) == ([], verified.parts, verified.readings)
    assert sum(it.parts for it in intact) == sum(it.parts for it in records.intact) == verified.parts
    drilled = archive.drill(1000, 0)
    assert sum(it.buckets for it in drilled) == sum(it.equal for it in drilled) == len(case.documents)
    assert archive.drilled(LATER) == {}
    assert set(archive.drilled(LATER + timedelta(days=1))) == {it.day for it in drilled}
    assert archive.restore(RestoreOptions("back")).buckets == len(case.documents)
    assert raw_documents(moved.database, "back") == sorted(case.documents)


def test_what_was_changed_is_named_and_not_given(moved: Cycle) -> None:
    spoil(moved)
    archive = archived(moved)
    (damage,) = archive.verify().bad
    assert damage.code.endswith("-differs")
    assert archive.verify(TimeRange(LATER, None)).bad == []
    with pytest.raises(HaltedError, match=damage.place.rpartition("/")[2].replace('"', ".")):
        archive.restore(RestoreOptions("back"))
    assert raw_documents(moved.database, "back") == []
    report = archive.restore(RestoreOptions("back", skip_damaged=True))
    assert report.missing
    assert set(raw_documents(moved.database, "back")) < set(moved.case.documents)


def test_what_is_gone_halts_a_run(moved: Cycle) -> None:
    lose(moved)
    archive = archived(moved)
    assert archive.verify().bad
    for attempt in (
        archive.recover,
        lambda: archive.run(ArchiveOptions()),
        lambda: archive.drill(1, 0),
        lambda: archive.restore(RestoreOptions("back")),
    ):
        with pytest.raises(HaltedError):
            attempt()


def test_what_is_past_its_time_goes_after_a_tombstone(moved: Cycle) -> None:
    retain = Retain(archive=timedelta(days=1), archive_grace=timedelta(days=1))
    policy = moved.policy.model_copy(update={"retain": retain})
    ended = Cycle(moved.database, Case("ended", policy, [], []), moved.settings, fence=moved.fence)
    planned, placed = archived(ended).plan_expiry(), archived(ended).expire()
    assert planned.tombstoned.buckets == placed.tombstoned.buckets == len(moved.case.documents)
    ended.fence += 1
    later = ended.context(LATER + timedelta(days=2), fence=ended.fence)
    assert archive_of(later).expire().expired.buckets == len(moved.case.documents)
    found = archive_of(later).verify()
    assert (found.readings, found.bad) == (0, [])


def test_it_says_where_it_is_and_takes_a_compaction(moved: Cycle) -> None:
    archive = archived(moved)
    assert "iot" in archive.place
    assert archive.plan_compaction(CompactOptions()).commits == archive.compact(CompactOptions()).commits
    assert archive.adopt() == []
    assert archive.verify().bad == []
