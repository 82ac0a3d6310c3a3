"""Days that hold nothing are skipped, and no other: the earliest archived reading at or after an instant."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pymongo.database import Database

from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.reading.readings import Readings
from bucketwise.archivers.records.registry import Registry
from bucketwise.buckets.fields.times import as_ms
from bucketwise.config.tables import Store
from tests.archivers.builders import DAY0, Case, reading
from tests.archivers.harness import Cycle
from tests.jobs.counting import CountingStore

Document = dict[str, Any]
HOUR, DAYS = timedelta(hours=1), timedelta(days=1)


def put(cycle: Cycle, whole: Case, *spans: tuple[int, int]) -> None:
    """The readings of these hours."""
    pairs = zip(whole.documents, whole.readings, strict=True)
    found = [raw for raw, it in pairs if any(DAY0 + a * HOUR <= it[1] < DAY0 + b * HOUR for a, b in spans)]
    Case(whole.name, whole.policy, found, []).load(cycle.database)


@pytest.fixture
def cycle(database: Database[Document], file_store: Store) -> Cycle:
    return Cycle(database, reading(), file_store)


@pytest.mark.proof
def test_a_commit_that_goes_on_later_hides_none_between(cycle: Cycle) -> None:
    """One holds the first and the third day, and another the second."""
    put(cycle, cycle.case, (0, 6), (48, 60))
    cycle.run()
    put(cycle, cycle.case, (24, 48))
    cycle.run()
    noon = DAY0 + 12 * HOUR
    expected = sum(it[1] >= noon and not 6 * HOUR <= it[1] - DAY0 < 24 * HOUR for it in cycle.case.readings)
    found = Readings(cycle.database, cycle.policy, cycle.store, since=noon)
    assert sum(len(rows.time) for rows in found) == expected


@pytest.mark.proof
def test_behind_a_gap_one_manifest_is_read(cycle: Cycle) -> None:
    for hour in range(36, 60, 2):
        put(cycle, cycle.case, (hour, hour + 2))
        cycle.run()
    held = [it for it in cycle.case.readings if it[1] >= DAY0 + 36 * HOUR]
    store: Any = CountingStore(cycle.store)
    archive = OfflineArchive(cycle.policy, store, Registry(cycle.context().receipts))
    assert archive.earliest(as_ms(DAY0 - 1000 * DAYS)) == as_ms(min(it[1] for it in held))
    assert store.asked["get_bytes"] == 6
