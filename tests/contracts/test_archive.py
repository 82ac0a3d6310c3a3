"""What every archive owes, whichever kind it is: one suite for all."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from itertools import chain
from typing import Any

import bson
import numpy as np
import pytest
from pymongo.database import Database

from bucketwise.archivers.compact import CompactOptions
from bucketwise.archivers.erasing.erasure import Erasure, ErasureWork
from bucketwise.archivers.erasing.kind import TextSearch
from bucketwise.archivers.format.keys import Keys
from bucketwise.archivers.kinds import archive_of
from bucketwise.archivers.kinds.archive import Archive
from bucketwise.archivers.kinds.evidence import Grid, Located
from bucketwise.archivers.moving.archive import ArchiveOptions
from bucketwise.archivers.reading.readings import at_one_instant
from bucketwise.archivers.restoring.options import RestoreOptions
from bucketwise.buckets.bson.raw import Batch, Docs
from bucketwise.buckets.fields.times import DAY_MS, EVER, TimeRange, as_ms
from bucketwise.config.errors import HaltedError
from bucketwise.config.policies import Retain
from bucketwise.config.tables import Store
from bucketwise.rollups.holds import Hold
from tests.archivers.builders import CODEC, LATER, Case, raw_documents, samples_overflow
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


def held(device: object) -> Hold:
    return Hold("h", {"deviceid": str(device)}, EVER, "", LATER, "me", freeze=False, salt=b"")


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


@pytest.mark.proof
def test_a_tombstone_stays_void_when_the_length_that_placed_it_comes_back(moved: Cycle) -> None:
    grid, said = Grid.around(0, as_ms(LATER), DAY_MS), []
    for days, keep in enumerate((1, 9999, 1, 1, 1)):
        retain = Retain(archive=timedelta(days=keep), archive_grace=timedelta(days=2))
        policy = moved.policy.model_copy(update={"retain": retain})
        ended = Cycle(moved.database, Case("ended", policy, [], []), moved.settings)
        archive = archive_of(ended.context(LATER + timedelta(days=days), fence=10 + days))
        report = archive.expire()
        at_one_instant(moved.database, partial(archive.evidence.rows, grid, {}))
        said.append([bool(it.buckets) for it in (report.tombstoned, report.standing, report.expired)])
    assert said == [[1, 0, 0], [0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]


def test_it_says_where_it_is_and_takes_a_compaction(moved: Cycle) -> None:
    archive = archived(moved)
    assert "iot" in archive.place
    assert archive.plan_compaction(CompactOptions()).commits == archive.compact(CompactOptions()).commits
    assert archive.adopt() == []
    assert archive.verify().bad == []


def test_it_tells_of_its_copies_what_was_live(cycle: Cycle) -> None:
    case, raw = cycle.case, cycle.case.documents[0]
    first = bson.decode(raw, CODEC)
    at, hold = as_ms(first["first"]), held(first["deviceid"])
    before = archived(cycle).evidence
    assert (before.totals().buckets, before.may_cover(hold)) == (0, False)
    assert sum(len(it) for it in before.samples()) == 0
    assert not isinstance(before.find(first["_id"], None), Located)
    archived(cycle).run(ArchiveOptions())
    told = archived(cycle).evidence
    assert (told.totals().buckets, told.may_cover(hold)) == (len(case.documents), True)
    assert not told.may_cover(held(-1))
    assert {it for some in told.samples() for it in some.main} <= set(case.documents)
    found = told.find(first["_id"], None)
    assert isinstance(found, Located)
    assert found.bucket.main[0] == raw
    assert raw in {it.bucket.main[0] for it in told.covering(at, {})}
    ((copy,),) = told.copies(found.bucket, found.policy, []).values()
    assert (copy.version.bucket.main[0], copy.may_be_live) == (raw, False)
    span, raw_id = (at, as_ms(first["last"])), found.bucket.main.raw_id(0)
    assert [it.event for it in told.events(raw_id, [copy], span)][-1] == "deleted"
    expires = told.expires_with(copy, span[1])
    assert expires.last_ms >= span[1]
    assert expires.archived == LATER
    assert expires.record


def test_its_rows_hold_each_reading_once(moved: Cycle) -> None:
    times = [as_ms(at) for _, at, _ in moved.case.readings]
    grid = Grid.around(min(times), max(times) + 1, DAY_MS)
    found = at_one_instant(moved.database, partial(archived(moved).evidence.rows, grid, {}))
    parts = sum((grid.count(np.array([it.span[0]])) * it.part.rows for it in found.parts), grid.zeros())
    assert (parts + found.online.readings).tolist() == grid.count(np.array(times)).tolist()
    assert (found.online.readings == found.gone).all()
    assert found.expires == {}


def test_a_series_goes_and_nothing_else(moved: Cycle) -> None:
    device = bson.decode(moved.case.documents[0], CODEC)["deviceid"]
    series = {"deviceid": str(device)}
    staying = [it for it in moved.case.documents if bson.decode(it, CODEC)["deviceid"] != device]
    erasure = Erasure(moved.policy, series, EVER, "case 17")
    holdings = list(archived(moved).series.holdings(erasure))
    gone = len(moved.case.documents) - len(staying)
    assert sum(it.erased for it in holdings) == gone > 0
    report = moved.erase(series)
    assert (report.counts["buckets"], report.is_found) == (gone, False)
    left = archived(moved).series
    assert [*left.holdings(erasure), *left.leftovers(erasure)] == []
    assert list(left.texts(TextSearch(moved.context(), erasure))) == []
    assert not any(it.found for it in left.unreached(erasure))
    assert archived(moved).verify().bad == []
    archived(moved).restore(RestoreOptions("back"))
    assert raw_documents(moved.database, "back") == sorted(staying)


def test_its_heads_are_what_was_left(moved: Cycle) -> None:
    archive = archived(moved)
    heads = archive.heads()
    archive.check_complete()
    archive.check_own()
    archive.check_adoptable()
    assert not archive.needs_adoption()
    moved.keys = Keys("a key of sixteen letters")
    with pytest.raises(HaltedError, match="bucketwise sign"):
        archived(moved).heads()
    assert moved.sign().manifests == len(heads)
    assert len(archived(moved).heads()) == len(heads)
    lose(moved)
    with pytest.raises(HaltedError):
        archived(moved).heads()


def test_a_policy_without_an_archive_has_nothing_of_it(cycle: Cycle) -> None:
    case = cycle.case.with_archive(to="none", collection=None)
    archive = archived(Cycle(cycle.database, case, cycle.settings))
    erasure = Erasure(case.policy, {"deviceid": "1001"}, EVER, "case 17")
    evidence, series, context = archive.evidence, archive.series, cycle.context()
    assert (evidence.totals(), evidence.may_cover(held(1001))) == ((0, 0, 0), False)
    assert [*evidence.samples(), *evidence.covering(0, {}), *evidence.events(b"", [], (0, 1))] == []
    assert (evidence.find(1, None), evidence.copies(Batch.of(Docs.of([])), case.policy, [])) == (None, {})
    rows = at_one_instant(cycle.database, partial(evidence.rows, Grid(0, DAY_MS, DAY_MS), {}))
    assert (rows.parts, rows.online.all.tolist(), rows.gone.tolist(), rows.expires) == ((), [0], [0], {})
    series.erase(ErasureWork(context, erasure))
    told = series.holdings(erasure), series.leftovers(erasure), series.unreached(erasure)
    assert [*chain(*told), *series.texts(TextSearch(context, erasure))] == []
    assert (archive.heads(), archive.needs_adoption(), archive.sign(Keys())) == ([], False, 0)
    assert (archive.verify().bad, archive.drill(1, 0), archive.drilled(LATER)) == ([], [], {})
    assert cycle.live() == sorted(cycle.case.documents)
