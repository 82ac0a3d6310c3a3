"""Restore drills: all days have their turn, what is drilled is proven, and nothing is left of it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymongo.database import Database

from bucketwise.archivers.coverage import CoverageQuery, coverage_of
from bucketwise.archivers.kinds import archive_of
from bucketwise.archivers.kinds.drill import sample
from bucketwise.archivers.records.pins import CommitDays
from bucketwise.archivers.restoring.put import existing_in
from bucketwise.config.errors import HaltedError
from bucketwise.config.tables import Store
from tests.archivers.builders import CODEC, DAY0, LATER, Case, deletable, reading, slots, timeseries
from tests.archivers.harness import Cycle
from tests.archivers.states import States, all_archived

Document = dict[str, Any]
BY_NAME = {case.name: case for case in deletable()}
CASES = {**BY_NAME, "timeseries": timeseries()}
NOW = LATER + timedelta(days=1)


pytestmark = pytest.mark.usefixtures("quick_disk")


@pytest.fixture(params=sorted(CASES))
def cycle(request: pytest.FixtureRequest, prepared: States) -> Cycle:
    return prepared(CASES[request.param], all_archived)


@pytest.mark.in_turn(2)
def test_every_bucket_comes_back_as_it_was(cycle: Cycle) -> None:
    before = set(cycle.database.list_collection_names())
    found = archive_of(cycle.context(NOW)).drill(1000, 0)
    held = sum(it["buckets"] for it in cycle.database["bucketwise_receipts"].find({"kind": "offline"}))
    assert sum(it.buckets for it in found) == sum(it.equal for it in found) == held > 0
    assert set(cycle.database.list_collection_names()) == before
    assert archive_of(cycle.context(NOW)).drill(1000, 0)[0].drilled_before == NOW
    context = cycle.context(NOW)
    rows = coverage_of(context, archive_of(context).evidence, CoverageQuery())
    assert {it.drilled for row in rows for it in row.commits} == {NOW}


@pytest.fixture
def one(prepared: States) -> Cycle:
    return prepared(next(iter(BY_NAME.values())), all_archived)


def test_a_damaged_part_halts_and_is_not_noted(one: Cycle) -> None:
    part = next((one.root / one.policy.name / "data").rglob("*.parquet"))
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    with pytest.raises(HaltedError, match="its manifest says"):
        archive_of(one.context(NOW)).drill(1000, 0)
    assert not any(name.startswith("bucketwise_drill") for name in one.database.list_collection_names())
    assert set(CommitDays(one.context().receipts).drilled().values()) == {None}


def test_what_comes_back_otherwise_is_told(one: Cycle, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that gives other bytes than it was given: nothing real does."""
    monkeypatch.setattr(
        "bucketwise.archivers.kinds.drill.existing_in", lambda *them: [b"other", *existing_in(*them)[1:]]
    )
    found = archive_of(one.context(NOW)).drill(1000, 0)
    assert sum(it.equal for it in found) < sum(it.buckets for it in found)
    assert None in CommitDays(one.context().receipts).drilled().values()


def test_a_policy_without_an_offline_archive_has_none(
    database: Database[Document], file_store: Store
) -> None:
    case: Case = next(iter(BY_NAME.values())).online()
    context = Cycle(database, case, file_store).load().context(NOW)
    assert archive_of(context).drill(1, 0) == []


DAYS = st.dictionaries(
    st.integers(0, 40), st.none() | st.integers(0, 5).map(lambda it: datetime(2026, 1, 1 + it, tzinfo=UTC))
)


@given(DAYS, st.integers(1, 9), st.integers(0, 99))
def test_those_that_have_waited_longest_come_first(
    drilled: Mapping[int, datetime | None], count: int, seed: int
) -> None:
    chosen = sample(drilled, count, seed)
    assert chosen == sample(drilled, count, seed)
    assert len({it for it, _ in chosen}) == min(count, len(drilled))
    assert all(drilled[it] == when for it, when in chosen)
    left = [drilled[it] for it in drilled if it not in dict(chosen)]
    if None in left:
        assert {when for _, when in chosen} <= {None}
    known = [it for it in left if it is not None]
    assert all(when is None or when <= min(known) for _, when in chosen if known)


@given(st.integers(1, 30), st.integers(1, 7), st.lists(st.integers(0, 9), min_size=30, max_size=30))
def test_all_days_have_their_turn(days: int, count: int, seeds: list[int]) -> None:
    drilled: dict[int, datetime | None] = dict.fromkeys(range(days))
    for turn in range(-(-days // count)):
        for day, _ in sample(drilled, count, seeds[turn]):
            drilled[day] = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=turn)
    assert None not in drilled.values()


def test_versions_of_a_bucket_in_one_commit_are_no_hindrance(
    database: Database[Document], file_store: Store
) -> None:
    case = slots("minute")
    cycle = Cycle(database, Case(case.name, case.policy, case.documents[:1], []), file_store).load()
    cycle.run()
    document = bson.decode(cycle.case.documents[0], CODEC)
    database[cycle.policy.collection].insert_one({**document, "p": {"41": 2.0}})
    cycle.run(NOW)
    assert cycle.compact(NOW).commits == 2
    assert [(it.commits, it.buckets, it.equal) for it in archive_of(cycle.context(NOW)).drill(9, 0)] == [
        (1, 2, 2)
    ]


@pytest.mark.proof
def test_a_commit_that_is_gone_halts_it(database: Database[Document], file_store: Store) -> None:
    """Though later ones are there."""
    cycle = Cycle(database, reading(), file_store).load()
    cycle.run(until=DAY0 + timedelta(hours=12))
    cycle.run()
    first, _ = sorted((cycle.root / cycle.policy.name / "meta/manifests").iterdir())
    first.unlink()
    with pytest.raises(HaltedError, match=first.name):
        archive_of(cycle.context(NOW)).drill(1000, 0)
