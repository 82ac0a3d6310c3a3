"""Policies with readings, archived in as many commits as are asked for."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from pymongo import MongoClient
from pymongo.database import Database

from bucketwise.archivers.stores import open_store
from bucketwise.config.amounts import Share
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Audit, Compact, Policy
from bucketwise.config.tables import Store
from bucketwise.jobs.core.turn import Step
from bucketwise.jobs.run.verb import RUN
from tests.jobs.counting import CountingStore, run_counted

Document = dict[str, Any]
START = datetime(2018, 6, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)
AFTER = timedelta(days=2)
#: Of the store's interface; the others are the listings.
_REQUESTS = ("get_bytes", "put_bytes", "head", "delete", "list")
_BATCH_SIZE = 10_000


class Cost(NamedTuple):
    """The cost of one command, without start-up."""

    requests: int  # to the store, listings among them
    keys: int  # listed
    commands: int  # to MongoDB
    documents: int  # in its replies
    cpu: float  # seconds of this process


@dataclass
class History:
    """Policies `p0`, `p1`, … with readings of so many series an hour. All is archived by `archive`."""

    database: Database[Document]
    uri: str
    folder: Path
    policies: int = 1
    series: int = 2
    hours: int = field(init=False, default=0)
    filled: list[int] = field(init=False, default_factory=list)  # which hours have readings
    store: Any = field(init=False)

    def __post_init__(self) -> None:
        (self.folder / "store").mkdir(exist_ok=True)
        self.store = open_store(Store(url=(self.folder / "store").as_uri()))
        self.all = [policy_of(number) for number in range(self.policies)]
        for policy in self.all:
            self.database[policy.collection].create_index("d")

    @property
    def now(self) -> datetime:
        """Returns when all that is written has expired."""
        return START + AFTER + self.hours * HOUR + timedelta(minutes=30)

    def write(self, hours: int) -> None:
        """Writes the next hours: a reading of each series."""
        for policy in self.all:
            readings = self._readings(hours)
            while batch := list(itertools.islice(readings, _BATCH_SIZE)):
                self.database[policy.collection].insert_many(batch, ordered=False)
        self.filled += range(self.hours, self.hours + hours)
        self.hours += hours

    def wait(self) -> None:
        """Lets an hour pass without readings."""
        self.hours += 1

    def readings(self, before: datetime | None = None) -> int:
        """Returns how many readings each policy has been given."""
        return self.series * sum(before is None or START + it * HOUR < before for it in self.filled)

    def _readings(self, hours: int) -> Iterator[Document]:
        for hour in range(self.hours, self.hours + hours):
            at = START + hour * HOUR
            for number in range(self.series):
                yield {"symbol": f"S{number}", "d": at, "p": number / 8 + hour}

    def archive(self) -> None:
        """Archives what has expired."""
        self.cost(RUN)

    def cost(self, steps: Sequence[Step], **options: Any) -> Cost:
        """Returns what these steps cost. Raises RuntimeError where a policy's result is an error."""
        store: Any = CountingStore(self.store)
        started = time.process_time()
        results, counts = run_counted(
            self.uri, self.database.name, steps, self.all, store, self.now, **options
        )
        cpu = time.process_time() - started
        if failed := [it.error for it in results if it.error]:
            raise RuntimeError(str(failed[0]))
        requests = sum(store.asked[it] for it in _REQUESTS)
        commands = counts.commands.total()
        return Cost(requests, store.asked["listed"], commands, counts.documents, cpu)

    def commits(self) -> int:
        """Returns how many commits the first policy has."""
        return len(list(self.folder.glob("store/p0/meta/manifests/*.json")))


def policy_of(number: int) -> Policy:
    """Returns the policy of this number."""
    keys: dict[str, Any] = {
        "name": f"p{number}",
        "collection": f"p{number}",
        "model": "reading",
        "time_field": "d",
        "series_fields": ("symbol",),
        "value_fields": ("p",),
        "rollup": {"hourly": f"p{number}_hourly", "daily": f"p{number}_daily"},
        "archive": {"after": AFTER, "to": "offline", "compact": Compact(after=None, delay=timedelta(0))},
        "audit": Audit(sample=Share(0.03)),
    }
    return make_policy(**keys)


@contextmanager
def histories(uri: str, folder: Path, policies: int = 1, series: int = 2) -> Iterator[History]:
    """Yields a history in a database of its own, which is dropped after the block."""
    with MongoClient[Document](uri, tz_aware=True) as client:
        client.drop_database("age")
        try:
            yield History(client["age"], uri, folder, policies, series)
        finally:
            client.drop_database("age")
