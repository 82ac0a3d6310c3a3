"""Records of commits say which buckets may be live: that is held against receipts, and against the source."""

from __future__ import annotations

import zlib
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from pymongo.database import Database

from bucketwise.config.tables import Store
from bucketwise.jobs.audit.audit import audit_policy
from tests.archivers.builders import LATER, insert, slots
from tests.archivers.harness import Cycle

Document = dict[str, Any]
GRACE = timedelta(days=30)


@pytest.fixture
def cycle(database: Database[Document], file_store: Store) -> Cycle:
    """Copies of all, of which nothing is deleted yet."""
    cycle = Cycle(database, slots("minute").with_archive(grace=GRACE), file_store).load()
    cycle.run()
    return cycle


def clear(cycle: Cycle, position: int) -> None:
    """The record says that this bucket is not live."""
    records = cycle.database["bucketwise_receipts"]
    record = records.find_one({"kind": "offline", "state": "open"})
    assert record is not None
    live = np.unpackbits(np.frombuffer(zlib.decompress(record["live"]), dtype=np.uint8))
    live[position] = 0
    packed = zlib.compress(np.packbits(live).tobytes())
    records.update_one({"_id": record["_id"]}, {"$set": {"live": packed}})


def named(cycle: Cycle) -> set[str]:
    found = {it.code for it in cycle.verify().bad}
    assert found == {it.code for it in audit_policy(cycle.context()).findings if it.code != "overdue"}
    return found


@pytest.mark.proof
def test_a_delete_that_no_receipt_tells_is_named(cycle: Cycle) -> None:
    assert named(cycle) == set()
    clear(cycle, 7)
    assert named(cycle) == {"record-differs"}
    cycle.run(LATER + 2 * GRACE)  # which takes a bucket that is there for one that has come back
    assert (named(cycle), cycle.live()) == (set(), [])


@pytest.mark.proof
def test_in_what_was_merged_too(database: Database[Document], file_store: Store) -> None:
    base = slots("minute")
    cycle = Cycle(database, base.with_archive(grace=GRACE), file_store)
    half = len(base.documents) // 2
    insert(database, "slots", base.documents[:half])
    cycle.run()
    cycle.run(LATER + 2 * GRACE)
    assert cycle.live() == []
    insert(database, "slots", base.documents[half:])
    cycle.run(LATER + 2 * GRACE)
    cycle.compact(LATER + 2 * GRACE)
    assert named(cycle) == set()
    clear(cycle, len(base.documents) - 1)
    assert named(cycle) == {"record-differs"}


def test_what_somebody_has_deleted_or_put_back_is_not(cycle: Cycle) -> None:
    gone, back = cycle.case.documents[:2]
    cycle.database["slots"].delete_one({"_id": 0})
    cycle.run(LATER + 2 * GRACE)
    insert(cycle.database, "slots", [back])
    assert (named(cycle), cycle.live()) == (set(), [back])
    assert gone in cycle.archived()
