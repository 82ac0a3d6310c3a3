"""Coverage of every bucket model, without summaries; and what it asks of the store."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymongo.database import Database

from bucketwise.archivers.coverage import CoverageQuery, Day, Row, coverage_of
from bucketwise.archivers.kinds import archive_of
from bucketwise.archivers.kinds.evidence import Grid
from bucketwise.archivers.stores import open_store
from bucketwise.archivers.summary_counts import SummaryCounter
from bucketwise.buckets.fields.times import DAY_MS, as_date, as_ms
from bucketwise.config.tables import Store
from bucketwise.rollups.context import RunContext
from bucketwise.rollups.progress import note_ended
from tests.archivers.builders import (
    DAY0,
    LATER,
    Case,
    deletable,
    encode,
    insert,
    reading,
    samples,
    timeseries,
)
from tests.archivers.harness import Cycle, in_turn, nothing

Document = dict[str, Any]
GRACE = timedelta(days=3)


def days_of(case: Case) -> Counter[str]:
    return Counter(f"{at:%Y-%m-%d}" for _, at, _ in case.readings)


def covered(cycle: Cycle, **given: Any) -> list[Row]:
    context = cycle.context(**given)
    return coverage_of(context, archive_of(context).evidence, CoverageQuery())


def told(cycle: Cycle, *what: str) -> list[dict[str, int | None]]:
    """For each of these words, what is not 0 of it on which day."""
    rows = covered(cycle)
    return [{name(row): getattr(row, it) for row in rows if getattr(row, it) != 0} for it in what]


def name(row: Row) -> str:
    return f"{as_date(row.start):%Y-%m-%d}"


@pytest.mark.proof
@pytest.mark.parametrize(("case", "to"), in_turn([*deletable(), timeseries()], ["offline", "online"]))
def test_each_model(database: Database[Document], file_store: Store, case: Case, to: str) -> None:
    kept = case.policy.model == "timeseries"
    case = (case if to == "offline" else case.online()).with_archive(grace=timedelta(0) if kept else GRACE)
    cycle = Cycle(database, case, file_store).load()
    kind, whole = ("archived" if to == "offline" else "online"), days_of(case)
    assert told(cycle, "live", "readings") == [whole] * 2
    cycle.run(LATER)
    assert told(cycle, "live", kind, "readings") == [whole] * 3, "copied, and live"
    cycle.run(LATER + GRACE)
    assert told(cycle, "live", kind, "readings") == [whole if kept else {}, whole, whole]
    if not kept:
        cycle.restore(case.policy.collection)
        assert told(cycle, "live", kind, "readings") == [whole] * 3


@pytest.mark.proof
def test_a_part_that_is_live_again_is_not_guessed_without_summaries(
    database: Database[Document], file_store: Store
) -> None:
    case = reading()
    cycle = Cycle(database, case, file_store).load()
    cycle.run()
    cycle.restore(case.policy.collection, until=DAY0 + timedelta(hours=1))
    first = covered(cycle)[0]
    whole = days_of(case)
    assert (first.state, first.archived, first.readings) == ("both", whole[name(first)], None)
    assert first.live == sum(at < DAY0 + timedelta(hours=1) for _, at, _ in case.readings)
    assert first.pinned == first.live_buckets == first.live


def test_copies_whose_originals_somebody_deleted_are_not_taken_for_live(
    database: Database[Document], file_store: Store
) -> None:
    """While others arrive on the same day, so that as many are live as before, or more."""
    times = [DAY0 + timedelta(minutes=it) for it in range(15)]
    documents = [encode({"_id": it, "symbol": "A", "d": at, "p": 1.0}) for it, at in enumerate(times)]
    case = reading().with_archive(grace=GRACE)
    cycle = Cycle(database, case, file_store)
    source = database[case.policy.collection]
    insert(database, case.policy.collection, documents[:10])
    cycle.run(LATER)
    source.delete_many({"_id": {"$in": [0, 1, 2]}})
    insert(database, case.policy.collection, documents[10:])
    assert set(told(cycle, "readings")[0].values()) <= {15, None}


def test_no_part_is_read(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Manifests once each, whatever else is asked for: a listing, and the heads of the chain."""
    case = samples()
    cycle = Cycle(database, case, file_store).load()
    for day in range(4):
        cycle.run(until=DAY0 + timedelta(days=day))
    cycle.run()
    store = open_store(file_store)
    asked: list[str] = []

    def note(what: str) -> None:
        real = getattr(store, what)

        def ask(key: str = "", *given: Any, **named: Any) -> Any:
            asked.append(f"{what} {key}")
            return real(key, *given, **named)

        monkeypatch.setattr(store, what, ask)

    for what in ("get_bytes", "get_sound", "head", "list"):
        note(what)
    rows = covered(cycle, store=store)
    commits = {held.commit for row in rows for held in row.commits}
    assert len(commits) > 1
    assert not [it for it in asked if "/data/" in it or "/meta/buckets/" in it]
    got = [it.removeprefix("get_bytes ").removeprefix("get_sound ") for it in asked if it.startswith("get_")]
    assert len(set(got)) == len(commits)
    assert len(got) <= len(commits) + 1, "the head of the chain is looked at first"
    assert len([it for it in asked if it.startswith("list")]) <= 2


@st.composite
def _days(draw: st.DrawFn) -> tuple[Day, list[int], list[int]]:
    """A day, with how many readings of each row are archived, and how many there are."""
    rows = draw(st.sampled_from([1, 24]))
    counts = st.lists(st.integers(0, 4), min_size=rows, max_size=rows)
    live_only, closed, copied = (np.array(draw(counts)) for _ in range(3))
    is_part = draw(st.booleans())
    others = draw(st.integers(0, 3)) if is_part else 0
    live, held, every = live_only + copied, closed + copied, live_only + closed + copied
    is_rolled_up, are_apart = draw(st.booleans()), draw(st.booleans())
    day = Day(
        live=live,
        live_all=int(live.sum()),
        by_manifest=held if rows == 1 else np.zeros(rows, dtype=np.int64),
        is_spread=np.full(rows, rows > 1),
        is_part=is_part,
        may_hold=bool(held.any() or draw(st.booleans())),
        held=int(held.sum()) + others,
        closed=int(closed.sum()) + others if are_apart else 0,
        copied=int(copied.sum()) if are_apart else 0,
        summarised=every if is_rolled_up else np.zeros(rows, dtype=np.int64),
        summarised_all=int(every.sum()) + others if is_rolled_up else 0,
        is_summarised=np.full(rows, is_rolled_up),
    )
    return day, held.tolist(), every.tolist()


@given(_days())
def test_what_is_told_is_exact(given: tuple[Day, list[int], list[int]]) -> None:
    """What can't be told is None; nothing else differs from what is."""
    day, held, every = given
    if not day.may_hold:
        assert day.archived == [0] * len(held)
    assert all(mine in (None, wanted) for mine, wanted in zip(day.archived, held, strict=True))
    assert all(mine in (None, wanted) for mine, wanted in zip(day.readings, every, strict=True))
    if len(held) == 1 and not day.is_part:
        assert day.archived == held


def test_without_summaries_what_is_before_the_end_of_the_archive_is_gone(
    database: Database[Document],
) -> None:
    policy = reading().policy
    day = as_ms(DAY0)
    grid = Grid(day, day + 3 * DAY_MS, DAY_MS)

    def gone() -> list[bool]:
        context = RunContext(database, policy, LATER, nothing, nothing)
        counted = SummaryCounter(context, {}).count(grid)
        assert not counted.known.any()
        return [bool(it) for it in counted.gone]

    assert gone() == [False, False, False]
    note_ended(database, policy, day + 2 * DAY_MS, {0}, nothing)
    assert gone() == [True, True, False]
