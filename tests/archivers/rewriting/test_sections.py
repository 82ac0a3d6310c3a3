"""Commits of several sections hold more than fits into memory, and are as any other to whoever reads them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import bson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pymongo.database import Database

from bucketwise.archivers.compact import (
    MAX_BUCKETS,
    MAX_SECTIONS,
    CommitInfo,
    Size,
    groups,
    section_limit,
)
from bucketwise.archivers.erasing.erasure import Erasure
from bucketwise.archivers.erasing.offline import commits_of
from bucketwise.archivers.format.manifest import DamagedError
from bucketwise.archivers.format.names import Commit
from bucketwise.archivers.kinds import archive_of
from bucketwise.archivers.moving import sweep
from bucketwise.buckets.fields.times import EVER, as_ms
from bucketwise.config.errors import HaltedError
from bucketwise.config.policies import Compact
from bucketwise.config.tables import USUAL_MEMORY, Store
from tests.archivers.builders import (
    DAY0,
    LATER,
    Case,
    encode,
    raw_documents,
    reading,
    samples_overflow,
    slots,
)
from tests.archivers.faults import Crash, DyingStore, Steps, die_in_transactions
from tests.archivers.harness import Cycle, Standing, expected_rows
from tests.archivers.moving.test_crash import World
from tests.archivers.reading.test_readings import readings, rows_of, wanted
from tests.archivers.reading.test_series import opened
from tests.archivers.rewriting.test_compacting import manifests, often
from tests.archivers.states import State, States
from tests.jobs.counting import ticks_policy

Document = dict[str, Any]
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
HOURS = 9
CASES: dict[str, Callable[[], Case]] = {
    "slots": partial(slots, "minute"),
    "reading": reading,
    "overflow": samples_overflow,
}
#: Memory of a compaction in which a section holds so many cells.
SMALL = {"slots": 400, "reading": 40, "overflow": 60, "hours": 10}


def memory_for(cells: int) -> int:
    return -(-cells * USUAL_MEMORY // sweep.MAX_READINGS)


def of_hours() -> Case:
    """Three readings in each hour, of a series of its own."""
    documents: list[Document] = [
        {"_id": hour * 10 + n, "symbol": f"S{hour}", "d": DAY0 + hour * HOUR + n * MINUTE, "p": n / 4}
        for hour in range(HOURS)
        for n in range(3)
    ]
    rows: list[Any] = [((it["symbol"],), it["d"], it["p"]) for it in documents]
    return Case("ticks", ticks_policy(to="offline"), list(map(encode, documents)), rows)


def merged_into_sections(name: str, cycle: Cycle) -> None:
    """The commits of a day have become one of several sections."""
    cycle.memory = memory_for(SMALL[name])
    often(cycle, step=1 if name == "hours" else 3, hours=HOURS)
    assert cycle.compact().into > 0
    cycle.run(LATER + HOUR)
    assert max(sections_of(cycle)) > 1


STATES: dict[str, State] = {name: partial(merged_into_sections, name) for name in ("hours", *CASES)}


def in_sections(prepared: States, name: str) -> Cycle:
    return prepared(of_hours() if name == "hours" else CASES[name](), STATES[name])


@pytest.mark.proof
def test_a_damaged_section_does_not_keep_the_others_from_being_restored(prepared: States) -> None:
    cycle = in_sections(prepared, "hours")
    paths = list(cycle.root.rglob("meta/buckets/*.2.parquet"))
    paths[0].unlink()
    with pytest.raises(HaltedError, match="Nothing was restored"):
        cycle.restore()
    report = cycle.restore(skip_damaged=True)
    (missing,) = report.missing
    assert missing.buckets and missing.live == 0
    assert len(raw_documents(cycle.database, "back")) == report.buckets == 3 * HOURS - missing.buckets
    held = sum(it["buckets"] for it in missing.receipts)
    assert missing.buckets <= held < 3 * HOURS  # those of the commits that the section was made from


def sections_of(cycle: Cycle) -> list[int]:
    return [len(it["sections"]) for it in manifests(cycle)]


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize("name", CASES)
def test_all_is_there(prepared: States, name: str) -> None:
    cycle = in_sections(prepared, name)
    assert cycle.rows() == expected_rows(cycle.case)
    report = cycle.verify()
    assert (report.bad, report.readings) == ([], len(cycle.case.readings))
    assert sorted(cycle.archived()) == sorted(cycle.case.documents)
    assert cycle.restore("half", until=DAY0 + 4 * HOUR).buckets > 0
    for days in (1, 9):
        assert all(it.equal == it.buckets for it in archive_of(cycle.context()).drill(days, 1))
    before = cycle.listing()
    assert cycle.compact().commits == 0
    cycle.run(LATER + 2 * HOUR)
    assert cycle.listing() == before


@pytest.mark.proof
def test_who_asks_for_one_series_or_hour_reads_its_section(prepared: States) -> None:
    cycle = in_sections(prepared, "hours")
    store = opened(cycle)
    assert rows_of(readings(cycle, series={"symbol": "S4"})) == [
        ("S4", DAY0 + 4 * HOUR + n * MINUTE, n / 4) for n in range(3)
    ]
    assert len(store.parts) == 1
    assert rows_of(readings(cycle)) == sorted(wanted(cycle.case), key=lambda row: row[1])


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("hour", [0, 4, 8])
def test_the_buckets_of_one_hour_are_restored(prepared: States, hour: int) -> None:
    cycle = in_sections(prepared, "hours")
    since = DAY0 + hour * HOUR
    report = cycle.restore(since=since, until=since + HOUR)
    assert (report.buckets, report.readings) == (3, 3)
    assert [it["_id"] for it in cycle.database["back"].find().sort("_id")] == [
        hour * 10 + n for n in range(3)
    ]


def test_who_asks_for_one_hour_or_series_back_reads_its_section(prepared: States) -> None:
    cycle = in_sections(prepared, "hours")
    store = opened(cycle)
    assert cycle.restore(since=DAY0 + 4 * HOUR, until=DAY0 + 5 * HOUR).buckets == 3
    assert len(set(store.parts)) == 1
    store = opened(cycle)
    assert cycle.restore(series={"symbol": "S8"}).buckets == 3
    assert len(set(store.parts)) == 1


def test_late_readings_of_an_hour_read_its_section(prepared: States) -> None:
    cycle = in_sections(prepared, "hours")
    late = {"_id": 45, "symbol": "S4", "d": DAY0 + 4 * HOUR + MINUTE, "p": 1.0}
    cycle.database[cycle.policy.collection].insert_one(late)
    store = opened(cycle)
    cycle.run(LATER + 2 * HOUR)
    assert len({key for key in store.parts if "." in Path(key).stem}) <= 1
    assert len(set(store.parts)) == 2  # and that of the late reading, read back
    assert sorted(cycle.archived()) == sorted([*cycle.case.documents, encode(late)])


def test_a_bucket_that_was_restored_and_moved_is_archived_once(prepared: States) -> None:
    """Where the windows of its old hour are not rolled up when the run begins."""
    cycle = in_sections(prepared, "hours")
    source = cycle.database[cycle.policy.collection]
    cycle.restore(cycle.policy.collection, since=DAY0 + 8 * HOUR, until=DAY0 + 8 * HOUR + MINUTE)
    source.update_one({"_id": 80}, {"$set": {"d": DAY0 + 30 * MINUTE}})
    (moved,) = cycle.live()
    expected = sorted([*cycle.case.documents[:-3], moved, *cycle.case.documents[-2:]])
    cycle.unpin()
    noon = as_ms(DAY0 + 4 * HOUR)
    known = as_ms(LATER)
    cycle.run(LATER + 2 * HOUR, through=known, rolled_up=lambda _start, end, **_given: end < noon)
    cycle.run(LATER + 3 * HOUR)
    assert cycle.live() == []
    assert sum(cycle.rows().values()) == len(expected)
    assert sorted(cycle.archived()) == expected
    assert cycle.verify().bad == []


@pytest.mark.proof
@pytest.mark.parametrize("name", CASES)
def test_what_is_restored_and_changed_takes_the_place_of_its_copy(prepared: States, name: str) -> None:
    cycle = in_sections(prepared, name)
    source = cycle.database[cycle.policy.collection]
    cycle.restore(cycle.policy.collection)
    assert sorted(cycle.live()) == sorted(cycle.case.documents)
    ids = [bson.decode(it)["_id"] for it in cycle.case.documents]
    for identity in (ids[0], ids[len(ids) // 2], ids[-1]):
        source.update_one({"_id": identity}, {"$set": {"note": "changed"}})
    expected = sorted(cycle.live())
    cycle.unpin()
    cycle.run(LATER + 2 * HOUR)
    cycle.run(LATER + 3 * HOUR)
    assert cycle.live() == []
    assert sorted(cycle.archived()) == expected
    assert cycle.rows() == expected_rows(cycle.case)
    assert cycle.verify().bad == []
    assert max(sections_of(cycle)) > 1  # what stays of the old one


@pytest.mark.proof
def test_an_erasure_takes_a_series_out_of_all_sections(prepared: States) -> None:
    cycle = in_sections(prepared, "slots")
    report = cycle.erase({"meta.symbol": "MDB"})
    assert not any(it.found for it in report.remaining)
    staying = [it for it in cycle.case.documents if bson.decode(it)["meta"]["symbol"] != "MDB"]
    assert sorted(cycle.archived()) == sorted(staying)
    assert cycle.verify().bad == []


def test_an_erasure_reads_the_sections_of_its_series(prepared: States) -> None:
    cycle = in_sections(prepared, "hours")
    seen: list[int] = []
    erasure = Erasure(cycle.policy, {"symbol": "S4"}, EVER, "")
    store = opened(cycle)
    archive = cycle.context().offline()
    (held,) = commits_of(archive, erasure, lambda _, found: seen.append(len(found.erased)))
    assert (len(held.found.erased), len(held.names.all), seen) == (3, 3, [3])
    assert len(store.parts) == 1


def of_an_hour_each(cycle: Cycle) -> None:
    """Commits that may become one of several sections."""
    cycle.memory = memory_for(SMALL["hours"])
    often(cycle, step=1, hours=HOURS)


@pytest.mark.proof
def test_the_name_of_a_commit_tells_runs_apart(prepared: States) -> None:
    """Where the count of leases was put back, the same commits may be merged under the same fence."""
    cycle = prepared(of_hours(), of_an_hour_each)
    standing, made = Standing(cycle), list[str]()
    for now in (LATER, LATER + HOUR):
        standing.put_back(cycle)
        cycle.compact(now)
        made += [it["commit"] for it in manifests(cycle) if it["replaces"]]
    assert len(made) == len(set(made)) == 2


@pytest.mark.proof
def test_what_was_half_dropped_does_not_wait_for_a_longer_delay(prepared: States) -> None:
    cycle = prepared(of_hours(), of_an_hour_each)
    cycle.compact(LATER)
    with pytest.raises(Crash):
        cycle.run(LATER + HOUR, store=DyingStore(cycle.store, Steps(1, only="after delete")))
    longer = Compact(delay=timedelta(days=9))
    cycle.case = cycle.case.with_archive(compact=longer)
    cycle.run(LATER + HOUR)
    assert sorted(cycle.archived()) == sorted(cycle.case.documents)
    assert cycle.verify().bad == []


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("which", [0, -1])
@pytest.mark.parametrize("folder", ["data", "meta/buckets"])
def test_damage_of_any_section_is_found(prepared: States, which: int, folder: str) -> None:
    cycle = in_sections(prepared, "slots")
    files = sorted((cycle.root / cycle.policy.name / folder).rglob("*.parquet"), key=_number)
    files[which].write_bytes(files[which].read_bytes()[:-9] + b"flipped!!")
    (bad,) = cycle.verify().bad
    assert bad.place.endswith(files[which].name)
    with pytest.raises(HaltedError, match=files[which].name):
        cycle.restore("back")


def _number(path: Path) -> int:
    return int(path.stem.partition(".")[2] or 0)


def test_files_that_no_manifest_names_are_told(prepared: States) -> None:
    """Whoever reads all of `data/` counts them as well."""
    cycle = in_sections(prepared, "slots")
    part = min((cycle.root / cycle.policy.name / "data").rglob("*.parquet"), key=_number)
    elsewhere = part.parent.with_name("dt=2001-01-01") / part.name
    elsewhere.parent.mkdir()
    strays = [elsewhere, part.with_name(f"{part.stem}.99.parquet"), part.with_name("copy.parquet")]
    assert archive_of(cycle.context()).verify_records().unlisted == []
    for stray in strays:
        stray.write_bytes(part.read_bytes())
    found = archive_of(cycle.context()).verify_records()
    assert [it.code for it in found.report.bad] == ["file-foreign"]  # no run gives such a name
    assert found.report.bad[0].place.endswith("copy.parquet")
    assert {cycle.root / key for key in found.unlisted} == set(strays[:2])


@pytest.mark.proof
@pytest.mark.parametrize("step", [97, pytest.param(7, marks=pytest.mark.proof)])
def test_it_dies_at_each_step(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Files of sections that were written belong to no commit before the manifest is there."""
    memory = memory_for(SMALL["slots"])
    monkeypatch.setattr(sweep, "MAX_READINGS", 5000)
    world = World.make(database, slots("minute"), file_store)
    cycle = often(world.cycle, step=3, hours=12)
    cycle.memory = memory
    standing = Standing(cycle)
    for die_at in range(1, 2000, step):
        standing.put_back(cycle)
        steps = Steps(die_at)
        with pytest.MonkeyPatch.context() as patch:
            die_in_transactions(patch, steps)
            try:
                store = DyingStore(cycle.store, steps)
                cycle.compact(LATER, check=partial(steps.step, "check"), store=store)
                cycle.run(LATER + HOUR, check=partial(steps.step, "check"), store=store)
            except Crash:
                world.check_nothing_is_lost()
                assert sorted(world.archived()) == world.units()
        if not steps.died:
            break
        cycle.run(LATER + HOUR)
        cycle.compact(LATER + HOUR)
        cycle.run(LATER + 2 * HOUR)
        world.check_finished()
        assert max(sections_of(cycle)) > 1
    assert not steps.died and die_at > 100


SECTION = section_limit(USUAL_MEMORY)


def standing(number: int, cells: int, *, is_closed: bool) -> CommitInfo:
    name = f"2026-01-01_2026-01-01_f000001_{number:016x}"
    commit = Commit(name, "2026-01-01", "2026-01-01", 1, number)
    held = Size(cells, cells * 30)
    return CommitInfo(commit, LATER, cells, held, cells, "kin", is_closed, False, False, (0, 1))


commits = st.lists(st.tuples(st.integers(1, 2_000_000), st.booleans()), max_size=120)


@example([(800_000, True)] * 40, None)
@example([(800_000, True)] * 4, 60_000_000)
@given(commits, st.none() | st.integers(1, 10**9))
def test_groups_keep_to_their_limits(drawn: list[tuple[int, bool]], budget: int | None) -> None:
    day = [standing(i, cells, is_closed=closed) for i, (cells, closed) in enumerate(drawn, 1)]
    found = list(groups(day, SECTION, budget))
    names = [it.commit.name for group in found for it in group]
    assert len(set(names)) == len(names)
    for group in found:
        cells = sum(it.held.cells for it in group)
        sections = MAX_SECTIONS if all(it.is_closed for it in group) else 1
        assert len(group) > 1
        assert cells <= sections * SECTION.cells and cells * 30 <= sections * SECTION.bytes
        assert sum(it.buckets for it in group) <= MAX_BUCKETS
        assert budget is None or cells * 30 <= max(budget, SECTION.bytes)
        largest = max(it.held.cells for it in group)
        assert largest <= SECTION.cells or 2 * largest <= cells


@given(st.lists(st.integers(1, 400_000), min_size=2, max_size=60))
def test_small_closed_commits_become_one(cells: list[int]) -> None:
    day = [standing(i, it, is_closed=True) for i, it in enumerate(cells, 1)]
    (group,) = groups(day, SECTION, None)
    assert group == day


def test_what_was_merged_stays_while_a_section_of_the_merged_commit_is_lost(
    database: Database[Document], file_store: Store
) -> None:
    """An erasure reads the section that holds the series, and would drop the rest of what lies elsewhere."""
    cycle = Cycle(database, of_hours(), file_store, memory=memory_for(SMALL["hours"])).load()
    often(cycle, step=1, hours=HOURS)
    small = {it.name for it in cycle.as_stored().commits()}
    assert cycle.compact().into == 1
    (merged,) = {it.name for it in cycle.as_stored().commits()} - small
    path = max(cycle.root.rglob(f"{merged}.?.parquet"))
    data = path.read_bytes()
    path.unlink()
    before = {it for name in small for it in cycle.root.rglob(f"*{name}*")}
    with pytest.raises(DamagedError, match=path.name):
        cycle.erase({"symbol": "S0"})
    assert {it for name in small for it in cycle.root.rglob(f"*{name}*")} == before
    path.write_bytes(data)
    assert cycle.erase({"symbol": "S0"}).is_found is False
    assert {it.name for it in cycle.as_stored().commits()} & small == set()
