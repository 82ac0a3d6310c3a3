"""What a run had done when it was stopped, or failed, is in its report, the ledger and the metrics."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pymongo.database import Database

from bucketwise.archivers.stores import open_store
from bucketwise.archivers.writes import MAX_BUCKETS
from bucketwise.config.tables import Store
from bucketwise.jobs.core.metrics import Metrics
from bucketwise.jobs.core.runner import Runner
from bucketwise.jobs.core.stopping import Stop
from bucketwise.jobs.output.progress import ProgressDisplay
from bucketwise.jobs.run.verb import RUN
from tests.jobs.counting import ticks_policy
from tests.jobs.place import START

Document = dict[str, Any]
BUCKETS = 3 * MAX_BUCKETS


class StopsAfterDeletes(Stop):
    """Asks for a stop once some of the readings have gone."""

    def __init__(self, database: Database[Document]) -> None:
        self.ticks = database["ticks"]

    def check(self) -> None:
        if self.ticks.estimated_document_count() < BUCKETS:
            self.request()
        super().check()


@pytest.mark.in_turn(1)
@pytest.mark.parametrize("to", ["offline", "online"])
def test_what_it_deleted_before_it_was_stopped(
    database: Database[Document], file_store: Store, to: str
) -> None:
    policy = ticks_policy(to=to, **({"collection": "old"} if to == "online" else {}))
    database["ticks"].insert_many(
        {"symbol": "A", "d": START + number * timedelta(seconds=7), "p": 1.0} for number in range(BUCKETS)
    )
    database["ticks"].create_index("d")
    now, stop = START + timedelta(days=60), StopsAfterDeletes(database)
    store, progress = open_store(file_store), ProgressDisplay(quiet=True)
    runner = Runner("run", RUN, database, store, now, stop, progress, is_now_given=True)
    result = runner.run_one(policy)
    gone = BUCKETS - database["ticks"].count_documents({})
    assert (result.exit_code, 0 < gone < BUCKETS) == (130, True)
    body = result.body["archive"]
    assert body["deleted"] == gone
    assert gone <= body["buckets"] == body["readings"] <= BUCKETS
    (entry,) = database["bucketwise_runs"].find({"policy": "ticks"})
    assert entry["counts"]["archive"] == body
    metrics = Metrics()
    metrics.record("run", result)
    assert f'bucketwise_deleted_buckets_total{{policy="ticks"}} {float(gone)}' in metrics.text().decode()
