"""Small commits are merged into few: each bucket as it was, once, whoever reads and whatever dies."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import bson
import pyarrow.parquet as pq
import pytest
from pymongo.database import Database

from bucketwise.archivers.compact import CompactOptions
from bucketwise.archivers.context import ArchiveState, LocalExecutor
from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.kinds import archive_of
from bucketwise.archivers.moving import sweep
from bucketwise.archivers.records.receipts import COLLECTION as RECEIPTS
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.decoding.decode import BucketSet, Decoded, decode
from bucketwise.buckets.fields.times import TimeRange
from bucketwise.config.errors import HaltedError
from bucketwise.config.policies import Compact
from bucketwise.config.tables import USUAL_MEMORY, Store
from tests.archivers.builders import (
    CODEC,
    DAY0,
    LATER,
    Case,
    encode,
    insert,
    reading,
    samples_overflow,
    slots,
    timeseries,
)
from tests.archivers.faults import FEW_STEPS, Crash, DyingStore, Steps, deaths, die_in_transactions
from tests.archivers.harness import Cycle, Standing, expected_rows, parquet_rows
from tests.archivers.moving.test_crash import World
from tests.archivers.states import States, archived_every_few_hours
from tests.jobs.counting import CountingStore, ticks_policy

Document = dict[str, Any]
HOUR, DAYS = timedelta(hours=1), timedelta(days=1)
AFTER = timedelta(days=30)


def often(cycle: Cycle, step: int = 8, hours: int = 60) -> Cycle:
    """Archived by a run every few hours, from the first bucket on."""
    for hour in range(1, hours + 1, step):
        cycle.run(DAY0 + AFTER + hour * HOUR)
    cycle.run(LATER)
    return cycle


def manifests(cycle: Cycle) -> list[Document]:
    found = (cycle.root / cycle.policy.name / "meta/manifests").iterdir()
    return [json.loads(path.read_bytes()) for path in sorted(found)]


def parts_a_day(cycle: Cycle) -> dict[str, int]:
    days = sorted((cycle.root / cycle.policy.name / "data").iterdir())
    return {day.name: len(list(day.iterdir())) for day in days}


CASES: dict[str, Callable[[], Case]] = {
    "slots": partial(slots, "minute"),
    "reading": reading,
    "overflow": samples_overflow,
}


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize("name", CASES)
def test_each_day_becomes_one_commit(prepared: States, name: str) -> None:
    cycle = prepared(CASES[name](), archived_every_few_hours)
    before, was = manifests(cycle), parts_a_day(cycle)
    assert max(was.values()) > 2
    report = cycle.compact(LATER)
    assert report.commits > report.into > 0
    assert report.bytes_after is not None and 0 < report.bytes_after < report.bytes_before
    assert cycle.rows() == expected_rows(cycle.case) + only_there_twice(cycle, before)
    assert cycle.verify().bad == []
    assert sorted(cycle.archived()) == sorted(cycle.case.documents)
    cycle.run(LATER + HOUR)
    assert max(parts_a_day(cycle).values()) <= 2
    assert cycle.rows() == expected_rows(cycle.case)
    assert cycle.verify().bad == []
    assert sorted(cycle.archived()) == sorted(cycle.case.documents)
    replaced = {name for it in manifests(cycle) for name in it["replaces"]}
    assert replaced <= {it["commit"] for it in before}
    assert len(replaced) == report.commits
    again = cycle.compact(LATER + HOUR)
    assert (again.commits, again.into, again.bytes_after) == (0, 0, 0)


def only_there_twice(cycle: Cycle, before: list[Document]) -> Counter[tuple[Any, ...]]:
    """Rows of commits that were replaced, and whose files are there still."""
    replaced = {name for it in manifests(cycle) for name in it["replaces"]}
    keys = [part["key"] for it in before if it["commit"] in replaced for part in it["parts"]]
    return parquet_rows([cycle.root / key for key in keys], cycle.policy)


@pytest.mark.proof
def test_who_goes_by_manifests_counts_each_reading_once(prepared: States) -> None:
    """At each step of a compaction."""
    cycle = prepared(slots("minute"), archived_every_few_hours)
    expected = len(cycle.case.readings)

    class Watching(Steps):
        def step(self, name: str) -> None:  # noqa: ARG002
            assert counted_by_manifests(cycle) == expected

    cycle.compact(LATER, store=DyingStore(cycle.store, Watching(0)))
    cycle.run(LATER + HOUR, store=DyingStore(cycle.store, Watching(0)))
    assert counted_by_manifests(cycle) == expected


def counted_by_manifests(cycle: Cycle) -> int:
    found = manifests(cycle)
    replaced = {name for it in found for name in it["replaces"]}
    parts = [part["key"] for it in found if it["commit"] not in replaced for part in it["parts"]]
    return sum(int(pq.read_metadata(cycle.root / key).num_rows) for key in parts)


@pytest.mark.proof
@pytest.mark.in_turn(1)
@FEW_STEPS
@pytest.mark.parametrize("name", ["slots", "overflow"])
def test_it_dies_at_each_step(
    database: Database[Document],
    file_store: Store,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    few_steps: bool,
) -> None:
    """At each name of a step, in the compaction or in the run that drops what was replaced."""
    monkeypatch.setattr(sweep, "MAX_READINGS", 5000)
    world = World.make(database, CASES[name](), file_store)
    cycle = often(world.cycle, step=6, hours=12)
    standing = Standing(cycle)

    def ran(steps: Steps) -> None:
        with pytest.MonkeyPatch.context() as patch:
            die_in_transactions(patch, steps)
            store = DyingStore(cycle.store, steps)
            check = partial(steps.step, "check")
            cycle.compact(LATER, check=check, store=store)
            cycle.run(LATER + HOUR, check=check, store=store)

    whole = Steps(2000)
    ran(whole)
    assert len(whole.passed) > 50
    for it in deaths(whole.passed, turn=list(CASES).index(name) // 2, of=2, few_steps=few_steps):
        standing.put_back(cycle)
        with pytest.raises(Crash):
            ran(Steps(*it))
        world.check_nothing_is_lost()
        assert sorted(world.archived()) == world.units()
        cycle.run(LATER + HOUR)
        cycle.compact(LATER + HOUR)
        cycle.run(LATER + 2 * HOUR)
        world.check_finished()
        before = cycle.listing()
        assert cycle.compact(LATER + 3 * HOUR).commits == 0
        cycle.run(LATER + 3 * HOUR)
        assert cycle.listing() == before


@pytest.mark.parametrize("delay", [HOUR, DAYS])
def test_what_was_replaced_stays_as_long_as_the_delay(prepared: States, delay: timedelta) -> None:
    """For a query that is under way."""
    cycle = prepared(slots("minute"), archived_every_few_hours)
    cycle.case = cycle.case.with_archive(compact=Compact(delay=delay))
    assert cycle.compact(LATER).commits > 1
    there = manifests(cycle)
    parts = [cycle.root / part["key"] for it in there for part in it["parts"]]
    cycle.run(LATER + delay - timedelta(seconds=1))
    assert manifests(cycle) == there
    assert all(path.exists() for path in parts)
    cycle.run(LATER + delay)
    replaced = {name for it in there for name in it["replaces"]}
    assert [it["commit"] for it in manifests(cycle)] == [
        it["commit"] for it in there if it["commit"] not in replaced
    ]


def test_who_has_to_stop_drops_no_more(prepared: States) -> None:
    """As after the loss of the lease."""
    cycle = prepared(slots("minute"), archived_every_few_hours)
    cycle.compact(LATER)
    there = len(manifests(cycle))

    def check() -> None:
        if len(manifests(cycle)) < there:
            raise Crash

    with pytest.raises(Crash):
        cycle.run(LATER + HOUR, check=check)
    assert len(manifests(cycle)) == there - 1
    cycle.run(LATER + HOUR)
    assert cycle.rows() == expected_rows(cycle.case)


@pytest.mark.proof
def test_live_copies_are_merged_as_well(prepared: States) -> None:
    """With delete = false all commits are open; what is live stays live to who reads, and what changes
    leaves the merged commit."""
    cycle = prepared(slots("minute").with_archive(delete=False), archived_every_few_hours)
    assert cycle.compact(LATER).commits > 1
    cycle.run(LATER + HOUR)
    assert len(cycle.live()) == len(cycle.case.documents)
    assert cycle.rows() == expected_rows(cycle.case)
    changed = cycle.case.documents[5]
    source = cycle.database[cycle.policy.collection]
    identity = source.find().sort("_id").to_list()[5]["_id"]
    source.update_one({"_id": identity}, {"$set": {"note": "changed"}})
    cycle.case = cycle.case.with_archive(delete=True)
    cycle.run(LATER + 2 * HOUR)
    cycle.run(LATER + 2 * HOUR)
    assert cycle.live() == []
    assert len(cycle.archived()) == len(cycle.case.documents)
    assert changed not in cycle.archived()
    assert cycle.verify().bad == []


@pytest.mark.proof
def test_the_order_of_versions_outlives_a_merge(database: Database[Document], file_store: Store) -> None:
    """Of three versions the first and the last are merged, and the one between them is not."""
    case = slots("minute")
    cycle = Cycle(database, Case(case.name, case.policy, case.documents[:1], []), file_store).load()
    cycle.run(LATER)
    source = database[cycle.policy.collection]
    document = bson.decode(cycle.case.documents[0], CODEC)
    for version, slot in enumerate(("41", "42"), start=2):
        source.insert_one({**document, "p": {slot: float(version)}})
        cycle.run(LATER + version * DAYS)
    whole = cycle.archived()
    registered = cycle.database[RECEIPTS].find({"kind": "offline"}).sort("sequence").to_list()
    assert len(registered) == 3
    names = [it["_id"]["name"] for it in registered]
    cycle.database[RECEIPTS].update_one({"_id.name": names[1]}, {"$set": {"kin": "another"}})
    assert cycle.compact(LATER + 5 * DAYS).commits == 2
    assert cycle.archived() == whole
    cycle.run(LATER + 6 * DAYS)
    assert cycle.archived() == whole
    cycle.database[RECEIPTS].update_many({"kind": "offline"}, {"$set": {"kin": "one"}})
    assert cycle.compact(LATER + 7 * DAYS).commits == 2
    assert cycle.archived() == whole
    assert [len(it["origins"]) for it in manifests(cycle)][-1] == 3


def test_native_time_series(database: Database[Document], file_store: Store) -> None:
    cycle = often(Cycle(database, timeseries().with_archive(delete=False), file_store).load())
    assert cycle.compact(LATER).commits > 1
    cycle.run(LATER + HOUR)
    assert cycle.rows() == expected_rows(cycle.case)
    assert cycle.verify().bad == []


def test_a_day_comes_to_rest_first(prepared: States) -> None:
    cycle = prepared(slots("minute"), archived_every_few_hours)
    early = CompactOptions(quiet_since=DAY0 + AFTER + 3 * HOUR)
    assert cycle.compact(LATER, early).commits == 0
    assert cycle.compact(LATER + DAYS, CompactOptions(quiet_since=LATER)).commits > 1


@pytest.mark.proof
def test_a_budget_is_kept(prepared: States) -> None:
    cycle = prepared(reading(), archived_every_few_hours)
    whole = archive_of(cycle.context(LATER)).plan_compaction(CompactOptions())
    assert whole.into > 1 and whole.bytes_after is None
    for _ in range(whole.into):
        assert cycle.compact(LATER, CompactOptions(budget=1)).into == 1
    assert cycle.compact(LATER, CompactOptions(budget=1)).into == 0


def uneven() -> Case:
    """Buckets of which each has fields of its own, so that each is a layout for itself."""
    documents = [
        encode(
            {
                "_id": i,
                "symbol": "A",
                "d": DAY0 + i * HOUR / 8,
                "p": i / 7,
                **{f"x{i}_{j}": j for j in range(i % 9)},
            }
        )
        for i in range(190)
    ]
    return Case("ticks", ticks_policy(to="offline"), documents, [])


@pytest.mark.proof
@pytest.mark.parametrize(("make", "most"), [(partial(slots, "minute"), 2_000), (uneven, 3_000)])
def test_a_day_that_is_larger_than_what_a_run_holds(
    database: Database[Document],
    file_store: Store,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[], Case],
    most: int,
) -> None:
    """It becomes one commit of several sections, and no more of it is decoded at a time."""
    cycle = often(Cycle(database, make(), file_store).load(), step=1, hours=25)
    expected = cycle.rows()
    memory = most * USUAL_MEMORY // sweep.MAX_READINGS
    executor = LocalExecutor(cycle.context().connections, memory=memory)
    decoded: list[int] = []
    copied: list[int] = []
    copy, cells = OfflineArchive.copy, vars(BucketSet)["cells"]

    def seen(bucket_sets: Iterable[BucketSet]) -> Iterator[BucketSet]:
        for buckets in bucket_sets:
            copied.append(buckets.cells)
            assert buckets.batch.size <= sweep.MAX_BYTES * memory / USUAL_MEMORY
            yield buckets

    def copying(archive: OfflineArchive, bucket_sets: Iterable[BucketSet], *given: Any) -> Any:
        return copy(archive, seen(bucket_sets), *given)

    def counting(buckets: BucketSet) -> int:
        decoded.append(cells.fget(buckets))
        return decoded[-1]

    monkeypatch.setattr(OfflineArchive, "copy", copying)
    monkeypatch.setattr(BucketSet, "cells", property(counting))
    report = cycle.compact(LATER, executor=executor)
    merged = [it for it in manifests(cycle) if len(it["replaces"]) > 1]
    assert [len(it["sections"]) for it in merged] == [len(copied)]
    assert report.commits > len(copied) > report.into == 1
    assert max(decoded) <= most
    assert sum(copied) > 3 * most
    assert cycle.compact(LATER, executor=executor).commits == 0
    cycle.run(LATER + HOUR)
    assert cycle.rows() == expected
    assert cycle.verify().bad == []
    assert sorted(cycle.archived()) == sorted(cycle.case.documents)


@pytest.mark.proof
def test_a_range(prepared: States) -> None:
    cycle = prepared(reading(), archived_every_few_hours)
    within = TimeRange(DAY0 + DAYS, DAY0 + 2 * DAYS)
    before = parts_a_day(cycle)
    assert cycle.compact(LATER, CompactOptions(within)).into == 1
    cycle.run(LATER + HOUR)
    after = parts_a_day(cycle)
    assert [day for day in before if after[day] < before[day]] == [f"dt={DAY0 + DAYS:%Y-%m-%d}"]


def test_damage_is_found_and_nothing_is_replaced(prepared: States) -> None:
    cycle = prepared(slots("minute"), archived_every_few_hours)
    part = next((cycle.root / cycle.policy.name / "data").rglob("*.parquet"))
    part.write_bytes(part.read_bytes()[:-9] + b"flipped!!")
    before = cycle.listing()
    with pytest.raises(HaltedError, match=part.name):
        cycle.compact(LATER)
    assert cycle.listing() == before


@pytest.mark.proof
def test_a_database_is_put_back_to_before_a_merge(database: Database[Document], file_store: Store) -> None:
    """Some of the merged commits are registered in it, and the others came later."""
    cycle = Cycle(database, slots("minute"), file_store).load()
    for hour in range(1, 22, 4):
        cycle.run(DAY0 + AFTER + hour * HOUR)
        if hour == 9:
            backup = list(database[RECEIPTS].find()), cycle.live()
    cycle.run(LATER)
    cycle.compact(LATER)
    cycle.run(LATER + HOUR)
    runs = set(cycle.runs)
    database[RECEIPTS].delete_many({})
    database[RECEIPTS].insert_many(backup[0])
    insert(database, cycle.policy.collection, backup[1])
    cycle.runs = {it for it in runs if it[1] <= DAY0 + AFTER + 9 * HOUR}
    cycle.adopt(LATER + 2 * HOUR)
    cycle.run(LATER + 2 * HOUR)
    cycle.run(LATER + 2 * HOUR)
    assert cycle.live() == []
    assert sorted(cycle.archived()) == sorted(cycle.case.documents)
    assert cycle.rows() == expected_rows(cycle.case)
    assert cycle.verify().bad == []


def test_what_is_merged_is_decoded_once(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = [
        encode({"_id": i, "symbol": "AB"[i % 2], "d": DAY0 + i * HOUR / 1000, "p": i / 7})
        for i in range(4000)
    ]
    case = Case("ticks", ticks_policy(to="offline"), documents, [])
    cycle = often(Cycle(database, case, file_store).load(), step=1, hours=4)
    decoded: list[int] = []

    def counting(batch: Batch, *given: Any, **named: Any) -> Decoded:
        decoded.append(len(batch))
        return decode(batch, *given, **named)

    monkeypatch.setattr("bucketwise.buckets.decoding.decode.decode", counting)
    report = cycle.compact(LATER)
    assert (report.commits, report.into) == (4, 1)
    assert report.buckets <= sum(decoded) <= 1.25 * report.buckets


@pytest.mark.proof
def test_what_a_merge_costs_does_not_grow(database: Database[Document], file_store: Store) -> None:
    """Where there is nothing to do."""
    cycle = Cycle(database, reading(), file_store).load()
    asked = []
    for hours in range(1, 50, 4):
        cycle.run(DAY0 + AFTER + hours * HOUR)
        if hours % 16 == 1:
            store: Any = CountingStore(cycle.store)
            cycle.compact(
                DAY0 + AFTER + hours * HOUR,
                CompactOptions(quiet_since=DAY0),
                store=store,
                state=ArchiveState(is_clean=True),
            )
            asked.append(dict(store.asked))
    assert all(it == asked[0] for it in asked)
    assert sum(asked[0].values()) <= 4


@pytest.mark.proof
def test_what_is_amended_while_replaced_commits_are_there_counts_once(prepared: States) -> None:
    """For who goes by manifests: a bucket leaves a merged commit before what it replaced is dropped."""
    cycle = prepared(slots("minute").with_archive(delete=False), archived_every_few_hours)
    assert cycle.compact(LATER).commits > 1
    source = cycle.database[cycle.policy.collection]
    identity = source.find().sort("_id").to_list()[5]["_id"]
    source.update_one({"_id": identity}, {"$set": {"note": "changed"}})
    cycle.run(LATER + HOUR / 2)
    assert counted_by_manifests(cycle) == len(cycle.case.readings)
    cycle.run(LATER + HOUR)
    assert counted_by_manifests(cycle) == len(cycle.case.readings)
    assert cycle.verify().bad == []
