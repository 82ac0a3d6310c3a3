"""What a reader of an archive gives of a range, and what that costs."""

from __future__ import annotations

from typing import Any

import pytest
from pymongo.database import Database

from bucketwise.archivers.reading.archived import archived_reader
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.decoding.decode import Decoded, decode
from bucketwise.buckets.fields.times import DAY_MS, as_ms
from bucketwise.config.tables import Store
from tests.archivers.builders import DAY0, HOUR, LATER, Case, encode
from tests.archivers.harness import Cycle
from tests.jobs.counting import ticks_policy

Document = dict[str, Any]


def test_a_day_of_a_commit_of_many_days_decodes_its_own_buckets(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of late readings is."""
    hours = range(25 * 24)
    documents = [encode({"_id": i, "symbol": "AB"[i % 2], "d": DAY0 + i * HOUR, "p": i / 7}) for i in hours]
    cycle = Cycle(database, Case("ticks", ticks_policy(to="offline"), documents, []), file_store).load()
    cycle.run(LATER)
    decoded: list[int] = []

    def counting(batch: Batch, *given: Any) -> Decoded:
        decoded.append(len(batch))
        return decode(batch, *given)

    monkeypatch.setattr("bucketwise.archivers.reading.archived.decode", counting)
    reader, begin, found = archived_reader(cycle.context().connections, cycle.policy), as_ms(DAY0), []
    for start in range(begin, begin + 25 * DAY_MS, DAY_MS):
        (held,) = reader.batches(start, start + DAY_MS)
        assert all(start <= begin + i * 3_600_000 < start + DAY_MS for i in held.main.ids)
        found += held.main.ids
    assert sorted(found) == list(hours)
    assert sum(decoded) <= 2 * len(documents)
