"""A secondary that hangs: runs wait for it, and go on once it is back."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from bucketwise.archivers.stores import open_store
from bucketwise.config.tables import Store, Throttle
from bucketwise.jobs.core.runner import Runner
from bucketwise.jobs.core.stopping import Stop
from bucketwise.jobs.core.throttle import Members
from bucketwise.jobs.output.progress import ProgressDisplay
from bucketwise.jobs.output.report import Result
from bucketwise.jobs.run.verb import RUN
from tests.faults.mongods import Servers, await_, no_failures_after, servers
from tests.jobs.counting import ticks_policy
from tests.jobs.place import START

pytestmark = pytest.mark.process

Document = dict[str, Any]
COUNT = 50
NOW = START + timedelta(days=60)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with servers(tmp_path_factory.mktemp("lag"), 3) as it:
        yield it


class Told(ProgressDisplay):
    """Keeps why a run waits."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.reasons: list[str | None] = []

    def wait(self, reason: str | None, /) -> None:
        self.reasons.append(reason)


@pytest.mark.proof
def test_a_run_waits_for_a_secondary_that_hangs(three: Servers, tmp_path: Path) -> None:
    with MongoClient[Document](three.uri, tz_aware=True) as client:
        database, told, results = client["lagging"], Told(), list[Result]()
        at = [START + timedelta(minutes=number) for number in range(COUNT)]
        database.ticks.insert_many([{"symbol": "A", "d": it, "p": 1.0} for it in at])
        database.ticks.create_index("d")
        policy = ticks_policy(to="offline").model_copy(
            update={"throttle": Throttle(max_lag=timedelta(seconds=2))}
        )
        (tmp_path / "store").mkdir()
        store = open_store(Store(url=(tmp_path / "store").as_uri()))
        runner = Runner("run", RUN, database, store, NOW, Stop(), told, is_now_given=True)
        hanging = three.secondaries[0]
        hanging.stop()
        try:
            await_(lambda: _is_behind(client, hanging.address) or None)
            run = threading.Thread(target=lambda: results.append(runner.run_one(policy)))
            run.start()
            await_(lambda: any(told.reasons) or None)
            time.sleep(2)
            assert run.is_alive()
            assert told.reasons[-1] is not None
            assert told.reasons[-1].startswith(f"{hanging.address} ")
            assert database.ticks.count_documents({}) == COUNT, "nothing is deleted meanwhile"
        finally:
            hanging.go_on()
        run.join()
        (result,) = results
        assert (result.exit_code, result.body["archive"]["deleted"]) == (0, COUNT), result.error
        assert told.reasons[-1] is None


def _is_behind(client: MongoClient[Document], address: str) -> bool:
    client["lagging"].noise.insert_one({"at": datetime.now().astimezone()})
    lag = Members(client["lagging"]).lag()
    return lag is not None and lag.member == address and lag.exceeds(2)


@pytest.mark.proof
def test_a_run_goes_on_after_a_question_that_was_cut_off(three: Servers) -> None:
    with MongoClient[Document](three.uri, tz_aware=True) as client:
        fault = {"failCommands": ["replSetGetStatus"], "closeConnection": True}
        lags = Members(client["lagging"])
        with no_failures_after(client):
            client.admin.command({"configureFailPoint": "failCommand", "mode": {"times": 1}, "data": fault})
            first = lags.lag()
        assert str(first) == "the primary cannot be reached"
        assert first is not None
        assert first.exceeds(1000)
        assert lags.lag() is not None
