"""What a run deletes it does not read again: the server leaves it out of the change stream."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from pymongo.database import Database

from bucketwise.archivers import writes
from bucketwise.archivers.stores import open_store
from bucketwise.config.policies import Policy
from bucketwise.config.tables import Store
from bucketwise.jobs.run.verb import RUN
from bucketwise.rollups.changes import drain
from tests.jobs.counting import Counts, run_counted, ticks_policy
from tests.jobs.place import START

Document = dict[str, Any]
A_TRANSACTION, MANY = 10, 20
NOW = START + timedelta(days=60)


def archived(
    database: Database[Document], uri: str, settings: Store, policy: Policy, count: int
) -> tuple[Counts, Counts]:
    """Of the run that archives so many buckets, and of the one after it."""

    def run(now: datetime) -> Counts:
        (result,), counts = run_counted(uri, database.name, RUN, [policy], open_store(settings), now)
        assert result.exit_code == 0, result.error
        assert result.body["rollup"].get("late", {}).get("events") == 0
        return counts

    database.create_collection("ticks")
    run(NOW)  # a first run leaves the bookmark
    at = [START + timedelta(minutes=number) for number in range(count)]
    database["ticks"].insert_many([{"symbol": "A", "d": it, "p": 1.0} for it in at])
    database["ticks"].create_index("d")
    run(NOW - timedelta(days=40))  # rolls them up, and archives nothing yet
    counted = run(NOW)
    assert database["ticks"].count_documents({}) == 0
    return counted, run(NOW)


@pytest.mark.proof
@pytest.mark.parametrize("to", ["offline", "online"])
def test_events_do_not_grow_with_what_was_deleted_but_by_a_receipt_a_transaction(
    database: Database[Document],
    mongodb_uri: str,
    file_store: Store,
    monkeypatch: pytest.MonkeyPatch,
    to: str,
) -> None:
    monkeypatch.setattr(writes, "MAX_BUCKETS", A_TRANSACTION)
    monkeypatch.setattr(drain, "MANY_DROPPED", MANY)
    monkeypatch.setattr(drain, "REPLY", MANY)
    count, policy = 600, ticks_policy(to=to, collection="kept" if to == "online" else None)
    during, after = archived(database, mongodb_uri, file_store, policy, count)
    receipts, others = count // A_TRANSACTION, 40  # a reply before it is known, and marks
    assert receipts <= after.events <= 2 * receipts + others < count
    assert during.events <= others, "all is one commit, and it was asked before what had changed"
    store, later = open_store(file_store), NOW + timedelta(hours=1)
    assert run_counted(mongodb_uri, database.name, RUN, [policy], store, later)[1].events <= 4
