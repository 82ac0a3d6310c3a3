"""Copies in an offline archive that make way for newer versions of their buckets, while others write."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import bson
import pytest
from pymongo.database import Database

import archivers.moving.offline
from archivers.restoring.target import How, Mode
from archivers.versions.superseded import Overtaken, overtaken
from buckets.bson.raw import Batch
from buckets.source import Source
from config.policies import Store
from tests.archivers.builders import LATER, Case, encode, insert, raw_documents, slots
from tests.archivers.harness import Cycle
from tests.archivers.test_guard import read
from tests.archivers.test_late_versions import hours

Document = dict[str, Any]
FIRST = hours({3: 1.0, 5: 2.0})
LATE = hours({9: 4.0})
DAYS = timedelta(days=1)


def cycle_of(database: Database[Document], store: Store, **archive: Any) -> Cycle:
    base = slots("minute")
    cycle = Cycle(database, Case(base.name, base.policy, [], []).with_archive(**archive), store)
    insert(database, "slots", [encode(FIRST)])
    return cycle


def run_after(cycle: Cycle, *days: int) -> None:
    for day in days:
        cycle.run(LATER + day * DAYS)
    assert cycle.live() == []


def slots_of(documents: list[bytes]) -> list[dict[str, float]]:
    return [bson.decode(it)["p"] for it in documents]


def all_versions(cycle: Cycle) -> list[dict[str, float]]:
    cycle.restore("all", how=How(Mode.all, "older"))
    older, last = (raw_documents(cycle.database, name) for name in ("older", "all"))
    return slots_of([*older, *last])


def test_what_is_gone_before_its_copy_can_leave_counts_once(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    cycle = cycle_of(database, file_store, grace=2 * DAYS)
    cycle.run(LATER)
    cycle.database["slots"].update_one({}, {"$set": {"p.6": 7.0}})

    def deletes(source: Source, copies: Batch) -> Overtaken:
        cycle.database["slots"].delete_many({})
        return overtaken(source, copies)

    with monkeypatch.context() as patch:
        patch.setattr(archivers.moving.offline, "overtaken", deletes)
        cycle.run(LATER + DAYS)
    run_after(cycle, 4, 8)
    assert slots_of(read(cycle)) == [{"3": 1.0, "5": 2.0}]
    assert set(cycle.rows().values()) == {1}


@pytest.mark.parametrize("day", [27, 29])
def test_a_bucket_that_moves_to_an_earlier_day_counts_once(
    database: Database[Document], file_store: Store, day: int
) -> None:
    cycle = cycle_of(database, file_store, grace=2 * DAYS)
    cycle.run(LATER)
    cycle.database["slots"].update_one({}, {"$set": {"d": datetime(2018, 6, day, 3, tzinfo=UTC)}})
    run_after(cycle, 1, 4, 8, 12)
    (found,) = read(cycle)
    assert bson.decode(found)["d"].day == day
