"""An online archive of sample buckets, read day by day: what is looked at grows with the days alone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pymongo.database import Database

from bucketwise.archivers.context import Connections
from bucketwise.archivers.reading.archived import archived_reader
from bucketwise.buckets.fields.times import as_ms
from bucketwise.config.tables import Store
from tests.archivers.builders import DAY0, Case, encode, samples
from tests.archivers.harness import Cycle

Document = dict[str, Any]
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def bucket(number: int) -> Document:
    first = DAY0 + number * HOUR
    return {
        "_id": number, "deviceid": 1, "sensorid": 3, "nsamples": 2, "sum": 2.0,
        "first": first, "last": first + HOUR / 2,
        "samples": [{"val": 1.0, "time": at} for at in (first, first + HOUR / 2)],
    }  # fmt: skip


def examined(database: Database[Document], store: Store, days: int) -> int:
    """How many archived buckets MongoDB looks at where each day is read."""
    base = samples("dates")
    buckets = [encode(bucket(i)) for i in range(24 * days)]
    case = Case(base.name, base.policy, buckets, []).with_archive(to="online", collection="kept")
    cycle = Cycle(database, case, store).load()
    assert cycle.run().deleted == len(buckets)
    for field in ("first", "last"):
        database["kept"].create_index(field)
    reader = archived_reader(Connections(database, cycle.store), cycle.policy)
    database.create_collection("system.profile", capped=True, size=50_000_000)
    database.command({"profile": 2, "slowms": 0})
    for day in range(days):
        start = as_ms(DAY0 + day * DAY)
        assert sum(len(it) for it in reader.batches(start, start + 86_400_000)) == 24
    database.command({"profile": 0})
    ns = {"ns": f"{database.name}.kept"}
    found = sum(int(it.get("docsExamined", 0)) for it in database["system.profile"].find(ns))
    database.client.drop_database(database.name)
    return found


def test_each_archived_bucket_is_looked_at_a_few_times(
    database: Database[Document], file_store: Store
) -> None:
    of_few = examined(database, file_store, 20)
    assert examined(database, file_store, 40) <= 2.2 * of_few
