"""States files: what they hold merges to what the readings amount to, and is refused where it might not."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from bson import encode
from pymongo.database import Database

from bucketwise.archivers.format import states, writing
from bucketwise.archivers.format.parquet import read_states, write_states
from bucketwise.archivers.format.states import FEW_STATES, LEAST_READINGS, SectionStates, states_of
from bucketwise.buckets.bson.raw import Batch, Docs
from bucketwise.buckets.decoding.decode import BucketSet
from bucketwise.buckets.models.series import series_key
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Policy
from bucketwise.config.tables import Store
from bucketwise.rollups.calendar.windows import day_edges, step_edges, to_ms
from bucketwise.rollups.rolling.slices import CellStates
from bucketwise.rollups.statistics import statistics_of
from bucketwise.rollups.summaries.coverage import interval_of
from bucketwise.rollups.summaries.summary import State, aggregate
from tests.archivers.builders import Case, slots
from tests.archivers.harness import Cycle

Document = dict[str, Any]
FIRST = datetime(2021, 3, 26, tzinfo=UTC)  # two days before clocks change in Berlin
HOUR_MS = 3_600_000


def policy_of(rollup: Mapping[str, Any] | None = None, **more: Any) -> Policy:
    said: dict[str, Any] = {
        "name": "ticks",
        "collection": "ticks",
        "model": "reading",
        "time_field": "d",
        "series_fields": ("symbol",),
        "value_fields": ("p",),
        "rollup": {"hourly": "hourly", "daily": "daily"} | dict(rollup or {}),
        "archive": {"after": timedelta(days=1), "to": "offline", "storage_class": "GLACIER"},
    }
    return make_policy(**(said | more))


def buckets_of(policy: Policy, count: int = 2000, days: int = 5) -> BucketSet:
    source = random.Random(count)
    odd = [None, "text", float("nan"), -0.0, 5e-324]
    found = []
    for number in range(count):
        at = FIRST + timedelta(minutes=source.randrange(days * 1440))
        price = odd[number % 50] if number % 50 < len(odd) else source.gauss(0, 100)
        offset = source.choice([-60, 0, 345])
        names = {"symbol": f"S{number % 3}", "timezone": ["local", "UTC", 7.5][number % 3]}
        found.append(encode({"_id": number, **names, "d": at, "p": price, "z": offset}))
    return BucketSet(batch_of(found), policy)


def batch_of(documents: list[bytes]) -> Batch:
    return Batch.of(Docs.of(documents))


def kept(buckets: BucketSet) -> SectionStates:
    """The states, once they were in a file."""
    made = states_of(buckets.policy, buckets)
    assert made is not None
    found = read_states(write_states(made))
    assert found == made
    return found


def merged(policy: Policy, found: SectionStates, edges: Sequence[int], *, local: bool) -> dict[Any, State]:
    """The states of cells by their series and number, as a roll-up merges them."""
    cells = CellStates(edges, statistics_of(policy))
    for it in found.cells(policy, {local: edges}):
        assert it.local is local
        cells.add(*it[1:])
    return cells.states


def direct(buckets: BucketSet, edges: Sequence[int], *, local: bool) -> dict[Any, State]:
    policy, columns = buckets.policy, buckets.decoded.columns
    found = aggregate(
        columns, np.array(edges), statistics_of(policy), interval=interval_of(policy), local=local
    )
    return {(series_key(columns.series[series]), cell): state for series, cell, state in found}


SPAN = to_ms(FIRST), to_ms(FIRST + timedelta(days=5))
SHAPES: dict[str, tuple[Policy, bool, list[Sequence[int]]]] = {
    "hours and days": (
        policy_of(),
        False,
        [step_edges(*SPAN, HOUR_MS), day_edges(*SPAN, ZoneInfo("UTC")).tolist()],
    ),
    "days in Kathmandu": (
        policy_of({"timezone": "Asia/Kathmandu"}),
        False,
        [step_edges(*SPAN, HOUR_MS), day_edges(*SPAN, ZoneInfo("Asia/Kathmandu")).tolist()],
    ),
    "Berlin, and intervals": (
        policy_of({"timezone": "Europe/Berlin"}, expected_interval=timedelta(minutes=7)),
        False,
        [step_edges(*SPAN, HOUR_MS), day_edges(*SPAN, ZoneInfo("Europe/Berlin")).tolist()],
    ),
    "dates of own clocks": (
        policy_of(local_offset_field="z"),
        True,
        [day_edges(*SPAN, ZoneInfo("UTC")).tolist()],
    ),
    "hours alone, of a field called timezone": (
        policy_of({"daily": None}, series_fields=("timezone",)),
        False,
        [step_edges(*SPAN, HOUR_MS)],
    ),
    "hours alone, of values called timezone": (
        policy_of({"daily": None}, value_fields=("p", "timezone")),
        False,
        [step_edges(*SPAN, HOUR_MS)],
    ),
    "some hours": (policy_of(), False, [[SPAN[0] + 30 * HOUR_MS, SPAN[0] + 31 * HOUR_MS]]),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_states_merge_to_what_the_readings_amount_to(shape: str) -> None:
    policy, local, all_edges = SHAPES[shape]
    buckets = buckets_of(policy)
    found = kept(buckets)
    for edges in all_edges:
        expected = direct(buckets, edges, local=local)
        assert expected
        assert merged(policy, found, edges, local=local) == expected


def test_states_are_made_of_some_windows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = policy_of()
    whole = kept(buckets_of(policy))
    monkeypatch.setattr(states, "_AT_ONCE", 10)
    assert kept(buckets_of(policy)) == whole


def test_where_there_would_be_too_many_none_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """To make them takes kilobytes for each."""
    policy = policy_of()

    def aggregated(*_: Any, **__: Any) -> None:
        raise AssertionError("states were made")

    monkeypatch.setattr(states, "aggregate", aggregated)
    assert states_of(policy, buckets_of(policy, 2000, days=40)) is None


def test_states_of_other_readings_are_named(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is what its manifest says, and says something else than the parts: a fault of the program."""
    case = slots("minute").with_archive(storage_class="GLACIER")
    summed = case.policy.model_copy(update={"rollup": policy_of().rollup})
    cycle = Cycle(database, Case(case.name, summed, case.documents, case.readings), file_store)

    def of_the_first(policy: Policy, buckets: BucketSet) -> SectionStates | None:
        return states_of(policy, BucketSet(buckets.batch.take(np.array([0])), policy))

    with monkeypatch.context() as faulty:
        faulty.setattr(writing, "states_of", of_the_first)
        cycle.load().run()
    assert len(list(cycle.root.rglob("*.states.parquet"))) == 1
    assert [it.code for it in cycle.verify().bad] == ["part-differs"]
    monkeypatch.setattr(SectionStates, "are_made_with", lambda *_: False)
    assert cycle.verify().bad == []  # other settings make others


def test_states_of_other_windows_or_settings_are_refused() -> None:
    policy = policy_of()
    found = kept(buckets_of(policy))
    with pytest.raises(ValueError, match="other windows"):
        list(found.cells(policy, {False: [SPAN[0], SPAN[0] + HOUR_MS // 2, SPAN[1]]}))
    for other in (
        policy_of({"percentiles": (50,)}),
        policy_of({"timezone": "Europe/Berlin"}),
        policy_of(values={"p": {"text": True}}),
        policy_of(series_defaults={"symbol": "none"}),
    ):
        with pytest.raises(ValueError, match="other settings"):
            list(found.cells(other, {False: SPAN}))


def test_there_are_none_where_they_would_be_about_as_many_as_readings() -> None:
    policy = policy_of()
    assert states_of(policy, buckets_of(policy, FEW_STATES)) is not None  # a few
    assert states_of(policy, buckets_of(policy, 2000, days=40)) is None
    assert states_of(policy, buckets_of(policy, 3 * 24 * 10 * LEAST_READINGS, days=10)) is not None


@pytest.mark.parametrize(
    "policy",
    [
        policy_of(archive={"after": timedelta(days=1), "to": "offline", "storage_class": "STANDARD_IA"}),
        policy_of(duplicates="last"),
        policy_of(values={"p": {"kind": "counter"}}),
        policy_of(rollup={"hourly": None, "daily": None}),
    ],
    ids=["never cold", "one of a time counts", "steps", "no summaries"],
)
def test_there_are_none_where_they_would_not_serve(policy: Policy) -> None:
    assert states_of(policy, buckets_of(policy)) is None


def test_there_are_none_of_buckets_that_break_the_policy() -> None:
    policy = policy_of()
    broken = [encode({"_id": 1, "symbol": "S", "d": "today", "p": 1.0})]
    assert states_of(policy, BucketSet(batch_of(broken), policy)) is None
