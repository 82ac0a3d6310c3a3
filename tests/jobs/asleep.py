"""For a `remodel` that falls asleep right before it writes, so long that another one takes its lease and does
all; then it wakes up, and writes."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

from pymongo.collection import Collection

from bucketwise.jobs.core import clock
from bucketwise.jobs.core.lease import Lease
from tests.jobs.altered import alter

RENEW = "bucketwise.jobs.core.lease.Lease._renew_once"


def install(at: int, database: str, command: list[str]) -> None:
    """Before the `at`-th insert into `other`. `command`: what the other one is given."""
    write: Any = Collection.insert_many
    steady, renew = clock.steady, Lease._renew_once
    calls = iter(range(at - 1, -1, -1))

    def insert_many(self: Collection[Any], *given: Any, **named: Any) -> Any:
        if self.name == "other" and next(calls, None) == 0:
            alter({RENEW: lambda _: None})  # who sleeps renews nothing
            leases = self.database.client[database]["bucketwise_lease"]
            leases.update_one({"_id": "remodel other"}, {"$set": {"expires_at": datetime.now(UTC)}})
            subprocess.run([sys.executable, "-m", "bucketwise", *command], check=True, capture_output=True)
            alter({RENEW: renew})
            clock.steady = lambda: steady() + 3600
        return write(self, *given, **named)

    setattr(Collection, "insert_many", insert_many)  # noqa: B010
