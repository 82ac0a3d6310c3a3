from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from pymongo import MongoClient

from tests.conftest import ACCESS_KEY, REGION, SECRET_KEY, S3Server
from tests.jobs.command import command_line, started
from tests.jobs.place import START, Place
from tests.jobs.service.test_schedule import Watched
from tests.ops.watched import Prometheus, prometheus, served

_HOUR = timedelta(hours=1)


@pytest.fixture(scope="session")
def watched(
    tmp_path_factory: pytest.TempPathFactory,
    client: MongoClient[dict[str, Any]],
    mongodb_uri: str,
    moto_server: S3Server,
) -> Iterator[Prometheus]:
    """Runs from cron on an S3 store, and a service, as a Prometheus has seen them."""
    folder, database = tmp_path_factory.mktemp("watched"), client[f"test_{uuid4().hex[:12]}"]
    environment = {
        "MONGODB_URI": mongodb_uri,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "BUCKETWISE_STORE_URL": f"s3://{moto_server.new_bucket()}/archive",
        "BUCKETWISE_STORE_ENDPOINT_URL": moto_server.endpoint_url,
        "BUCKETWISE_STORE_REGION": REGION,
    }
    file = folder / "bucketwise.prom"
    with ExitStack() as stack:
        stack.callback(client.drop_database, database.name)
        place = Place(folder, database, mongodb_uri, stack.enter_context(command_line()))
        place.write_config()
        place.load()
        young = (datetime.now(UTC) - _HOUR).replace(second=0, microsecond=0)
        place.database.ticks.insert_one({"symbol": "MDB", "d": young, "p": {"0": 1.5}})

        def run(verb: str) -> None:
            options = ("--quiet", "--metrics-file", str(file))
            ran = place.command(verb, *options, cwd=folder, **environment)
            assert ran.code == 0, ran

        service = started("schedule", "--metrics-port", "0", cwd=folder, **environment)
        it = Watched(stack.enter_context(service))
        found = re.search(r"http://127.0.0.1:(\d+)/", it.until("metrics are served"))
        assert found is not None
        it.until("run ended")
        seen = stack.enter_context(prometheus(folder, stack.enter_context(served(file)), int(found[1])))
        for verb in ("run", "audit", "drill", "verify"):
            run(verb)
        seen.until('bucketwise_last_run_timestamp_seconds{job="file", verb="verify"}')
        late = {"symbol": "MDB", "d": START + _HOUR * 5, "p": {"0": 1.5}}
        place.database.ticks.insert_one(late)
        run("run")
        seen.until('increase(bucketwise_archived_buckets_total{job="file"}[1m]) > 0')
        yield seen
        assert it.end() == 0
