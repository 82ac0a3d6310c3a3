"""Restored into the source, buckets stay: neither deleted nor archived again, until a time or a release."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import bson
import pytest
from pymongo.database import Database

from bucketwise.archivers import writes
from bucketwise.archivers.records import pins
from bucketwise.buckets.fields.times import LAST_MS, as_date, as_ms
from bucketwise.config.errors import LeaseLostError
from bucketwise.config.tables import Store
from tests.archivers.builders import (
    CODEC,
    DAY0,
    HOUR,
    LATER,
    MINUTE,
    Case,
    encode,
    insert,
    samples_overflow,
    slots,
    timeseries,
)
from tests.archivers.faults import Crash, Steps, die_in_transactions
from tests.archivers.harness import Cycle
from tests.archivers.moving.test_guard import MARKS, read
from tests.archivers.states import States

Document = dict[str, Any]
RELEASED = "restored, and pinned: `bucketwise unpin` releases them"
SOON = LATER + timedelta(days=2)


pytestmark = pytest.mark.usefixtures("quick_disk")


@pytest.fixture(params=["offline", "online"])
def to(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def restored(database: Database[Document], file_store: Store, case: Case, to: str, **how: Any) -> Cycle:
    """Archived, and restored into its source."""
    cycle = Cycle(database, case.online() if to == "online" else case, file_store).load()
    assert cycle.run().deleted == len(case.documents)
    report = cycle.restore(cycle.policy.collection, **how)
    assert report.pinned == report.buckets
    return cycle


def given_back(cycle: Cycle) -> None:
    """Archived, and restored into the source."""
    assert cycle.run().deleted == len(cycle.case.documents)
    report = cycle.restore(cycle.policy.collection)
    assert report.pinned == report.buckets


@pytest.fixture
def cycle(prepared: States, to: str) -> Cycle:
    case = slots("minute")
    return prepared(case.online() if to == "online" else case, given_back)


def everything(cycle: Cycle) -> tuple[Any, ...]:
    """All that a run could change, in the database and in the store."""
    return cycle.listing(), cycle.documents()


def identities(cycle: Cycle) -> set[Any]:
    return {bson.decode(raw, CODEC)["_id"] for raw in cycle.live()}


def pinned(cycle: Cycle) -> set[Any]:
    return {it["_id"]["id"] for it in cycle.database[pins.COLLECTION].find()}


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize("case", [slots("minute"), samples_overflow()], ids=lambda case: case.name)
def test_pinned_until_they_are_released(
    database: Database[Document], file_store: Store, case: Case, to: str
) -> None:
    cycle = restored(database, file_store, case, to)
    count, before = len(case.documents), everything(cycle)
    for dry_run in (True, False, False):
        report = cycle.run(dry_run=dry_run)
        assert (report.buckets, report.deleted, report.left) == (0, 0, count)
        assert (report.changed, report.quarantined_total, report.bytes) == (0, 0, 0)
        assert report.reasons == {RELEASED: count}
        assert everything(cycle) == before
    assert cycle.live() == sorted(case.documents)
    assert read(cycle) == []
    if case.overflow:
        assert cycle.live_overflow() == sorted(case.overflow)

    assert [cycle.unpin(), cycle.unpin()] == [count, 0]
    report = cycle.run()
    assert (report.deleted, report.parts, report.left) == (count, 0, 0)
    assert cycle.live() == []
    assert read(cycle) == sorted(case.documents)
    if case.overflow:
        assert cycle.live_overflow() == []
    assert cycle.listing() == before[0]


@pytest.mark.in_turn(1)
def test_pinned_until_a_time(database: Database[Document], file_store: Store, to: str) -> None:
    cycle = restored(database, file_store, slots("minute"), to, pinned_until=SOON)
    count = len(cycle.case.documents)
    report = cycle.run(SOON - timedelta(milliseconds=1))
    assert (report.deleted, report.left) == (0, count)
    assert report.reasons == {"restored, and pinned until 2018-12-03T00:00:00Z": count}
    planned = cycle.run(SOON, dry_run=True)
    assert (planned.buckets, planned.deleted, planned.left) == (0, count, 0)
    assert cycle.unpin(SOON) == 0
    assert pinned(cycle) != set()
    report = cycle.run(SOON)
    assert (report.deleted, report.left) == (count, 0)
    assert pinned(cycle) == set()


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(
    ("first", "then", "stays_until"),
    [(None, SOON, SOON), (SOON, None, None), (SOON, LATER + HOUR, LATER + HOUR)],
    ids=["for a time", "until released", "shorter"],
)
def test_restored_again_they_take_the_new_time(
    database: Database[Document],
    file_store: Store,
    first: datetime | None,
    then: datetime | None,
    stays_until: datetime | None,
) -> None:
    cycle = restored(database, file_store, slots("minute"), "offline", pinned_until=first)
    assert cycle.restore("slots", pinned_until=then).pinned == len(cycle.case.documents)
    if stays_until is None:
        assert cycle.run(SOON + 365 * timedelta(days=1)).deleted == 0
    else:
        assert cycle.run(stays_until - MINUTE).deleted == 0
        assert cycle.run(stays_until).deleted == len(cycle.case.documents)


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("pages", [3, 1000])
def test_a_range_is_released(cycle: Cycle, pages: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The buckets with a reading in it, whole: the third and the fourth hour's."""
    monkeypatch.setattr(pins, "MAX_BUCKETS", pages)
    since, until = DAY0 + 2 * HOUR + 59 * MINUTE, DAY0 + 4 * HOUR
    held = [bson.decode(raw, CODEC) for raw in cycle.case.documents]
    wanted = {
        it["_id"]
        for it in held
        for slot, value in it["p"].items()
        if value is not None and since <= it["d"] + int(slot) * MINUTE < until
    }
    assert 2 < len(wanted) < 5
    assert cycle.unpin(since=since, until=until) == len(wanted)
    assert cycle.unpin(since=since, until=until) == 0
    report = cycle.run()
    assert (report.deleted, report.left) == (len(wanted), len(held) - len(wanted))
    assert identities(cycle) == {it["_id"] for it in held} - wanted
    assert cycle.unpin(since=until) + cycle.unpin(until=until) == len(held) - len(wanted)


@pytest.mark.in_turn(1)
def test_only_what_was_restored_is_pinned(cycle: Cycle) -> None:
    """Whatever else lies beside it goes, the rest of a commit as well."""
    cycle.unpin()
    cycle.run()
    back = cycle.restore("slots", until=DAY0 + 5 * HOUR).pinned
    assert 0 < back < len(cycle.case.documents)
    insert(cycle.database, "slots", [raw for raw in cycle.case.documents if raw not in cycle.live()])
    late = encode({"_id": 999, "p": {"5": MARKS}, "meta": {"symbol": "MDB"}, "d": DAY0})
    insert(cycle.database, "slots", [late])
    report = cycle.run()
    assert (report.deleted, report.left) == (len(cycle.case.documents) - back + 1, back)
    assert identities(cycle) == pinned(cycle)
    assert sorted([*cycle.live(), *read(cycle)]) == sorted([*cycle.case.documents, late])


@pytest.mark.in_turn(1)
def test_what_is_not_deleted_yet_is_pinned_as_well(
    database: Database[Document], file_store: Store, to: str
) -> None:
    case = slots("minute").with_archive(grace=timedelta(days=1))
    cycle = Cycle(database, case.online() if to == "online" else case, file_store).load()
    count = len(case.documents)
    assert cycle.run().left == count
    assert cycle.restore("slots").pinned == count
    assert cycle.run(SOON).reasons == {RELEASED: count}
    cycle.unpin()
    assert cycle.run(SOON).deleted == count


@pytest.mark.in_turn(1)
def test_elsewhere_nothing_is_pinned(cycle: Cycle) -> None:
    cycle.unpin()
    cycle.run()
    assert cycle.restore("back").pinned == 0
    assert pinned(cycle) == set()


def test_measurements_are_kept_anyway(database: Database[Document], file_store: Store) -> None:
    cycle = Cycle(database, timeseries(), file_store).load()
    cycle.run()
    before = cycle.run().reasons
    assert cycle.restore("weather").pinned == 0
    assert cycle.run().reasons == before


class RolledUp:
    """Notes which ranges an archive run has rolled up before it goes on."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []
        self.left: list[tuple[int, int]] = []  # those that copies are about to leave

    def __call__(
        self, start_ms: int, end_ms: int, *, force: bool = False, leaving: Sequence[tuple[int, int]] = ()
    ) -> bool:
        assert force == bool(leaving)
        if leaving:
            self.left += leaving
        else:
            self.ranges.append((start_ms, end_ms))
        return True

    def of(self, cycle: Cycle) -> list[tuple[datetime, datetime]]:
        """What one run does."""
        self.ranges, self.left = [], []
        assert cycle.run(through=LAST_MS, rolled_up=self).deleted == 0
        return [(as_date(start), as_date(end - 1)) for start, end in self.ranges]


@pytest.mark.proof
@pytest.mark.in_turn(1)
def test_a_changed_one_stays_and_is_rolled_up(cycle: Cycle) -> None:
    source, rolled_up = cycle.database["slots"], RolledUp()
    before = bson.decode(cycle.case.documents[6], CODEC)
    (hour,) = [[before["d"] + int(slot) * MINUTE for slot, value in before["p"].items() if value is not None]]
    assert rolled_up.of(cycle) == []
    for value in (MARKS, before["p"]["30"]):  # changed, and changed back
        source.update_one({"_id": 6}, {"$set": {"p.30": value}})
        assert cycle.run(through=LAST_MS, rolled_up=rolled_up, dry_run=True).left == 40
        assert rolled_up.ranges == []
        assert rolled_up.of(cycle) == [(hour[0], hour[-1])]
        assert rolled_up.of(cycle) == []
    source.update_one({"_id": 6}, {"$set": {"p.30": MARKS}})
    cycle.run()
    live = cycle.live()
    assert read(cycle) == []
    cycle.unpin()
    report = cycle.run()
    assert (report.buckets, report.deleted, report.left) == (1, 40, 0)
    assert read(cycle) == live != sorted(cycle.case.documents)


@pytest.mark.proof
def test_what_a_changed_one_no_longer_holds_is_rolled_up(
    database: Database[Document], file_store: Store
) -> None:
    """Its last readings are taken out, and put back."""
    cycle = restored(database, file_store, samples_overflow(), "offline")
    source, rolled_up = cycle.database["iot"], RolledUp()
    before = bson.decode(cycle.case.documents[8], CODEC)
    times = [it["time"] for it in before["samples"]]
    assert len(times) > 3
    shorter = {"samples": before["samples"][:2], "nsamples": 2, "last": times[1]}
    for changed in (shorter, {key: before[key] for key in shorter}):
        source.update_one({"_id": before["_id"]}, {"$set": changed})
        assert rolled_up.of(cycle) == [(times[0], times[-1])]
        assert len(rolled_up.left) == (1 if changed is shorter else 0)


@pytest.mark.in_turn(1)
def test_where_its_copy_counted_while_it_was_gone_is_rolled_up(cycle: Cycle) -> None:
    """Moved, deleted, and written anew where it was last."""
    source, rolled_up = cycle.database["slots"], RolledUp()
    before = bson.decode(cycle.case.documents[6], CODEC)
    times = [before["d"] + int(slot) * MINUTE for slot, value in before["p"].items() if value is not None]
    source.update_one({"_id": 6}, {"$set": {"d": before["d"] + 48 * HOUR}})
    rolled_up.of(cycle)
    source.delete_one({"_id": 6})
    assert rolled_up.of(cycle) == []
    source.insert_one({**before, "d": before["d"] + 48 * HOUR, "p": {"30": MARKS}})
    rolled_up.of(cycle)
    assert (as_ms(times[0]), as_ms(times[-1]) + 1) in rolled_up.left


@pytest.mark.in_turn(1)
def test_changed_back_and_restored_again_it_is_rolled_up(cycle: Cycle) -> None:
    source, rolled_up = cycle.database["slots"], RolledUp()
    before = bson.decode(cycle.case.documents[6], CODEC)["p"]["30"]
    source.update_one({"_id": 6}, {"$set": {"p.30": MARKS}})
    assert len(rolled_up.of(cycle)) == 1
    source.update_one({"_id": 6}, {"$set": {"p.30": before}})
    cycle.restore("slots")
    assert len(rolled_up.of(cycle)) == 1


@pytest.mark.in_turn(1)
def test_of_a_deleted_one_the_archived_copy_counts(cycle: Cycle) -> None:
    gone = cycle.case.documents[7]
    cycle.database["slots"].delete_one({"_id": 7})
    for _ in range(2):
        assert read(cycle) == [gone]
        assert cycle.run().left == len(cycle.case.documents) - 1
    assert cycle.unpin(since=DAY0) == len(cycle.case.documents) - 1
    assert cycle.unpin() == 1
    cycle.run()
    assert (cycle.live(), read(cycle)) == ([], sorted(cycle.case.documents))


@pytest.mark.in_turn(1)
def test_a_restore_that_lost_its_lease_writes_nothing(cycle: Cycle) -> None:
    def lost(*_args: object) -> None:
        raise LeaseLostError("another run took it")

    before = everything(cycle)
    with pytest.raises(LeaseLostError):
        cycle.unpin(guard=lost)
    assert everything(cycle) == before
    cycle.unpin()
    cycle.run()
    before = everything(cycle)
    with pytest.raises(LeaseLostError):
        cycle.restore("slots", guard=lost)
    with pytest.raises(LeaseLostError):
        cycle.restore("back", guard=lost)
    assert everything(cycle) == before


@pytest.mark.proof
def test_a_restore_cut_off_leaves_pinned_what_is_there(cycle: Cycle, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four transactions, three steps each: before one, within one, after each, and not at all."""
    monkeypatch.setattr(writes, "MAX_BUCKETS", 10)
    found = set()
    for die_at in (1, 2, 3, 6, 9, 13):
        cycle.unpin()
        cycle.run()
        with pytest.MonkeyPatch.context() as patch:
            steps = Steps(die_at)
            die_in_transactions(patch, steps)
            if die_at < 13:
                with pytest.raises(Crash):
                    cycle.restore("slots")
            else:
                cycle.restore("slots")
        there = identities(cycle)
        found.add(len(there))
        assert pinned(cycle) == there
        assert sorted([*cycle.live(), *read(cycle)]) == sorted(cycle.case.documents)
        report = cycle.run()
        assert (report.deleted, report.left) == (0, len(there))
    assert found == {0, 10, 20, 30, 40}
