"""Slices of many series: written in portions, with the same result, in memory that they do not make grow."""

from __future__ import annotations

import math
import pickle
import tracemalloc
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketwise.config.policies import Policy
from bucketwise.rollups.rolling import slices
from bucketwise.rollups.rolling.plan import RollupReport
from bucketwise.rollups.rolling.portions import ALL_PORTIONS, PORTIONS, SpillFile, portion_of
from bucketwise.rollups.rolling.slices import CellStates, Portion, SliceStates
from bucketwise.rollups.statistics import FieldState
from bucketwise.rollups.summaries.summary import State
from tests.examples import examples
from tests.rollups.conftest import Bench
from tests.rollups.rolling.test_rollup import NOW, policy_of, tick
from tests.rollups.samples import STATISTICS

Document = dict[str, Any]
FIRST = datetime(2021, 3, 20, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
records = st.lists(st.tuples(st.integers(0, PORTIONS - 1), st.binary(max_size=40)), max_size=60)


@given(records, records, st.integers(1, 90))
def test_a_shelf_gives_each_portion_what_was_put_there(
    one: list[tuple[int, bytes]], other: list[tuple[int, bytes]], at_once: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bucketwise.rollups.rolling.portions.BLOCK_BYTES", at_once)
        shelves = SpillFile(), SpillFile()
        for shelf, some in zip(shelves, (one, other), strict=True):
            for portion, record in some:
                shelf.put(portion, record)
        shelf = pickle.loads(pickle.dumps(shelves[0]))
        shelf.take(pickle.loads(pickle.dumps(shelves[1])))
        shelf.put(7, b"later")
        expected = defaultdict[int, list[bytes]](list)
        for portion, record in [*one, *other, (7, b"later")]:
            expected[portion].append(record)
        assert {it: list(shelf.get(it)) for it in ALL_PORTIONS} == {it: expected[it] for it in ALL_PORTIONS}


def state(count: int) -> State:
    first, last = (count, b"a", -0.0), (count + 1, b"b", 2.5)
    full = (count, 1 << 1080, 1 << 2200, -0.0, 2.5), (first, last), {-3: 1, 9000: count}, (1, 2)
    none: FieldState = (0, 0, 0, math.inf, -math.inf), (), {}, (0, 0)
    return State(count, {"p": full, "q.r": none}, (3, 4))


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3), st.integers(1, 5)), max_size=40),
    st.integers(1, 9),
)
def test_found_in_portions_is_what_was_found(given_: list[tuple[int, int, int]], memory: int) -> None:
    """Of two readers, each with some of it, as they come from other processes."""
    edges = [0, 10, 20, 30, 40]
    whole, parts = (
        CellStates(edges, STATISTICS),
        [SliceStates({False: CellStates(edges, STATISTICS)}, memory * 3000) for _ in range(2)],
    )
    for at, (series, cell, count) in enumerate(given_):
        entry = f"S{series}".encode(), (f"S{series}",), cell, state(count)
        whole.add(*entry)
        parts[at % 2].take(False, [entry])
    found, other = (pickle.loads(pickle.dumps(it)) for it in parts)
    found.add(other)
    portions: list[Portion] = list(found.portions())
    assert [at for it in portions for at in it.numbers] == list(ALL_PORTIONS)
    states = {key: it for portion in portions for key, it in portion.cells[False].states.items()}
    assert states == whole.states
    assert sum(len(it.cells[False].states) for it in portions) == len(states)
    for portion in portions:
        assert {portion_of(key) for key, _ in portion.cells[False].states} <= set(portion.numbers)
        if len(portions) > 1:
            assert portion.elsewhere[False] == {edges[cell] for _, cell, _ in given_}


def test_a_state_survives_being_put_aside_to_the_bit() -> None:
    found = SliceStates({False: CellStates([0, 10], STATISTICS)}, memory=1)
    found.take(False, [(b"S", ("S",), 0, state(5))])
    assert found.spilled is not None
    (kept,) = (it for portion in found.portions() for it in portion.cells[False].states.values())
    assert repr(kept) == repr(state(5))


def counts(report: RollupReport) -> Any:
    return report.counts, report.readings, report.finite


@settings(max_examples=examples(5))
@given(st.data())
def test_in_portions_the_same_is_written_reported_and_kept(bench: Bench, data: st.DataObject) -> None:
    """Late readings, deletes and moves, archived readings, what was cleared away, and other series fields."""
    found, zone = [], data.draw(st.sampled_from(["UTC", "Asia/Kolkata"]))
    for number in range(data.draw(st.integers(1, 60))):
        at = FIRST + data.draw(st.integers(0, 2 * 1440)) * timedelta(minutes=1)
        found.append(tick(number, f"S{data.draw(st.integers(0, 20))}", at))
    cut = data.draw(st.integers(0, len(found)))
    seldom = data.draw(st.sampled_from(["nothing", "late", "deleted", "moved", "cleared", "other fields"]))
    levels = [{"name": "15m", "collection": "quarters"}, {"name": "weekly", "collection": "weekly"}]
    told = []
    for memory in (0, 4):
        bench.database.client.drop_database(bench.database.name)
        bench.memory = memory
        ticks = bench.database["ticks"]
        policy = policy_of(zone)
        policy = policy_of(zone, rollup={**policy.rollup.model_dump(exclude_none=True), "levels": levels})  # type: ignore[union-attr]
        bench.database["archive"].insert_many(found[:cut]) if cut else None
        ticks.insert_many([*found[cut:], tick(1000, "S1", FIRST)])
        reports = [bench.roll_up(policy, NOW)]
        policy = change(bench, policy, seldom)
        reports += [bench.roll_up(policy, NOW), bench.roll_up(policy, NOW, since=FIRST, until=FIRST + DAY)]
        names = ("quarters", "hourly", "daily", "weekly")
        told.append(([bench.raw(name) for name in names], list(map(counts, reports))))
    assert told[0] == told[1]
    assert told[0][0][0]


def change(bench: Bench, policy: Policy, what: str) -> Policy:
    ticks = bench.database["ticks"]
    if what == "late":
        ticks.insert_one(tick(2000, "S2", FIRST + HOUR))
    elif what in ("deleted", "cleared"):
        if what == "cleared":
            ticks.create_index("other", expireAfterSeconds=3600)
        ticks.delete_many({"d": {"$lt": FIRST + DAY}})
    elif what == "moved":
        ticks.update_many({}, {"$set": {"symbol": "Z"}})
    elif what == "other fields":
        ticks.update_many({}, {"$set": {"place": 5}})
        bench.database["archive"].update_many({}, {"$set": {"place": 5}})
        return policy.model_copy(update={"series_fields": ("symbol", "place")})
    return policy


def peak(bench: Bench, series: int) -> int:
    """Bytes that a roll-up of 24 hours of so many series takes. It makes and compares them all."""
    bench.database.client.drop_database(bench.database.name)
    ticks = bench.database["ticks"]
    ticks.create_index("d")
    for hour in range(24):
        at = FIRST + hour * HOUR
        ticks.insert_many([{"symbol": f"S{it}", "d": at, "p": it / 7} for it in range(series)])
    policy = policy_of(value_fields=("p",))
    tracemalloc.start()
    try:
        report = bench.roll_up(policy, NOW, dry_run=True)
        found = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert report.hourly.written == 24 * series and report.daily.written == series
    return found


@pytest.mark.proof
def test_memory_does_not_grow_with_the_series(bench: Bench) -> None:
    bench.memory = 4 * 24 * 100 * slices.STATE_BYTES  # of 100 series
    assert peak(bench, 1000) < 1.3 * peak(bench, 500)
