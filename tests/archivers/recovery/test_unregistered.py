"""What the store holds and MongoDB does not know, or not any more, and who reads meanwhile."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import bson
import pytest
from pymongo.database import Database

from bucketwise.archivers.context import Connections
from bucketwise.archivers.reading.archived import archived_reader
from bucketwise.archivers.reading.readings import Readings
from bucketwise.archivers.recovering.commits import CommitRegistry
from bucketwise.buckets.fields.times import FIRST_MS, LAST_MS
from bucketwise.config.tables import Store
from tests.archivers.builders import CODEC, LATER, slots
from tests.archivers.faults import Crash
from tests.archivers.harness import Cycle
from tests.archivers.rewriting.test_compacting import often

Document = dict[str, Any]
HOUR = timedelta(hours=1)


def test_a_commit_is_read_once_it_is_registered(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its run died between its manifest and its receipt, and its originals are there until the next one."""
    cycle = Cycle(database, slots("minute"), file_store).load()

    def dies(*_args: object, **_given: object) -> None:
        raise Crash

    monkeypatch.setattr(CommitRegistry, "register", dies)
    with pytest.raises(Crash):
        cycle.run()
    monkeypatch.undo()
    assert cycle.restore("back").buckets == 0
    found = sum(len(rows.time) for rows in Readings(database, cycle.policy, cycle.store))
    assert found == len(cycle.case.readings)
    assert archived_reader(Connections(database, cycle.store), cycle.policy).span() is None
    cycle.run()
    assert cycle.live() == []
    assert sorted(cycle.archived()) == sorted(cycle.case.documents)
    assert cycle.verify().bad == []


@pytest.mark.proof
def test_a_merge_that_is_not_registered_hides_nothing(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a bucket that is archived, a later version is live: the receipt of the old commit alone tells."""
    case = slots("minute")
    cycle = often(Cycle(database, case, file_store).load())
    document = bson.decode(case.documents[0], CODEC)
    database[cycle.policy.collection].insert_one({**document, "p": {"59": 1.0}})
    before = told(cycle)

    def dies(*_args: object) -> None:
        raise Crash

    monkeypatch.setattr(CommitRegistry, "transaction", dies)
    with pytest.raises(Crash):
        cycle.compact(LATER)
    assert told(cycle) == before
    monkeypatch.undo()
    cycle.run(LATER + HOUR)
    assert told(cycle) == before


def told(cycle: Cycle) -> Counter[tuple[Any, ...]]:
    """All readings, live and archived."""
    found = Counter[tuple[Any, ...]]()
    for rows in Readings(cycle.database, cycle.policy, cycle.store):
        found.update(zip(rows.row_series.tolist(), rows.time.tolist(), strict=True))
    return found


@pytest.mark.proof
def test_a_query_outlives_what_it_listed(database: Database[Document], file_store: Store) -> None:
    """What it found at its beginning is merged, dropped, and merged or amended again while it is at work."""
    cycle = often(Cycle(database, slots("minute").with_archive(delete=False), file_store).load(), hours=12)
    reader = archived_reader(Connections(database, cycle.store), cycle.policy)
    source = database[cycle.policy.collection]
    identity = source.find().sort("_id").to_list()[5]["_id"]
    source.delete_many({"_id": {"$ne": identity}})

    def count() -> int:
        with database.client.start_session(snapshot=True) as session:
            return sum(map(len, reader.at(session).batches(FIRST_MS, LAST_MS + 1)))

    expected = len(cycle.case.documents) - 1
    assert count() == expected
    cycle.compact(LATER)
    cycle.run(LATER + HOUR)
    assert count() == expected
    source.update_one({"_id": identity}, {"$set": {"note": "changed"}})
    cycle.run(LATER + 2 * HOUR)
    assert count() == expected
