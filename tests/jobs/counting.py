"""Runs in this process, counted: the commands that they send, the documents that come back, and what they ask
of the store."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from pymongo import MongoClient
from pymongo.monitoring import (
    CommandFailedEvent,
    CommandListener,
    CommandStartedEvent,
    CommandSucceededEvent,
)

from bucketwise.archivers.stores.base import ObjectStore, StoreObject
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Policy
from bucketwise.jobs.core.runner import Runner
from bucketwise.jobs.core.stopping import Stop
from bucketwise.jobs.core.turn import RunOptions, Step
from bucketwise.jobs.output.progress import ProgressDisplay
from bucketwise.jobs.output.report import Result

Document = dict[str, Any]


def ticks_policy(**archive: Any) -> Policy:
    """Documents of one reading, rolled up, and archived as is said."""
    said: dict[str, Any] = {
        "name": "ticks",
        "collection": "ticks",
        "model": "reading",
        "time_field": "d",
        "series_fields": ("symbol",),
        "value_fields": ("p",),
        "rollup": {"hourly": "hourly", "daily": "daily"},
        "archive": {"after": timedelta(days=30), **archive},
    }
    return make_policy(**said)


class Counts(CommandListener):
    """`documents`: in the replies' batches; `events`: those of change streams among them. Renewals of leases,
    which come by the clock, are not told from other updates: a run here takes no 15 s."""

    def __init__(self) -> None:
        self.commands: Counter[str] = Counter()
        self.documents = 0
        self.events = 0
        self.streams = 0  # those opened
        self._streams: set[int] = set()
        self._requests: set[int] = set()
        self._lock = threading.Lock()

    def started(self, event: CommandStartedEvent) -> None:
        with self._lock:
            self.commands[event.command_name] += 1
            is_stream = any("$changeStream" in stage for stage in event.command.get("pipeline") or ())
            self.streams += is_stream
            if is_stream or event.command.get("getMore") in self._streams:
                self._requests.add(event.request_id)

    def succeeded(self, event: CommandSucceededEvent) -> None:
        cursor = event.reply.get("cursor")
        if cursor is None:
            return
        found = len(cursor.get("firstBatch", cursor.get("nextBatch", ())))
        with self._lock:
            self.documents += found
            if event.request_id in self._requests:
                self._streams.add(cursor["id"])
                self.events += found

    def failed(self, _event: CommandFailedEvent) -> None: ...


class CountingStore:
    """Counts what is asked of the store behind it."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.asked = inner, Counter[str]()

    def __getattr__(self, name: str) -> Any:
        kind = "get_bytes" if name == "get_sound" else name
        self.asked.update([kind] if name not in ("url", "check_there", "file_keys") else [])
        return getattr(self.inner, name)

    def list(self, prefix: str = "", after: str = "") -> Iterator[StoreObject]:
        self.asked["list"] += 1
        for found in self.inner.list(prefix, after):
            self.asked["listed"] += 1
            yield found


def run_counted(
    uri: str,
    database: str,
    steps: Sequence[Step],
    policies: Sequence[Policy],
    store: ObjectStore | None,
    now: datetime,
    **options: Any,
) -> tuple[list[Result], Counts]:
    """Runs the steps for each policy."""
    counts = Counts()
    with MongoClient[Document](uri, tz_aware=True, event_listeners=[counts]) as client:
        runner = Runner(
            "run",
            steps,
            client[database],
            store,
            now,
            Stop(),
            ProgressDisplay(quiet=True),
            options=RunOptions(**options),
            is_now_given=True,
            known=tuple(policies),
        )
        return runner.run_all(policies), counts
