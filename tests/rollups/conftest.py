"""A source, an archive beside it, and roll-ups of both."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pytest
from bson.raw_bson import RawBSONDocument
from pymongo.client_session import ClientSession
from pymongo.database import Database

from bucketwise.buckets.bson.raw import LOSSLESS, Batch
from bucketwise.buckets.fields.times import TimeRange
from bucketwise.buckets.layouts.groups import Unions
from bucketwise.buckets.source import Source
from bucketwise.config.errors import InterruptedRun
from bucketwise.config.policies import Policy
from bucketwise.rollups.context import RunContext, run_now
from bucketwise.rollups.rolling.plan import Archived, RollupOptions, RollupReport, none_restored
from bucketwise.rollups.rolling.rollup import roll_up
from bucketwise.rollups.rolling.slices import ArchivedHalf, SliceReader, read

Document = dict[str, Any]


def nothing() -> None:
    """Nothing asks the run to stop."""


def nobody_else(_session: ClientSession) -> None:
    """No other run has the lease."""


@dataclass
class Bench:
    """Rolls up a policy whose archive is the collection `archive`. `memory`: what a run may take; 0: any."""

    database: Database[Document]
    memory: int = 0
    slices: list[int] = field(default_factory=list)  # readings of each slice looked at

    def roll_up(
        self, policy: Policy, now: datetime, *, check: Callable[[], None] = nothing, **more: Any
    ) -> RollupReport:
        self.slices.clear()
        archive = Source(self.database, policy, "archive")
        first, last = archive.earliest(), archive.latest()

        def archived(start_ms: int, end_ms: int) -> Iterator[Batch]:
            yield from archive.batches(start_ms, end_ms)

        guard = more.pop("guard", nobody_else)
        progress = more.pop("progress", lambda _what, count, _share: self.slices.append(count))
        source, unions = Source(self.database, policy), Unions()
        here = SliceReader(
            lambda asked: run_now(read, source, ArchivedHalf(archived, none_restored), policy, asked, unions),
            memory=self.memory,
        )
        reader = more.pop("reader", here)
        span = None if first is None or last is None else (first, last + 86_400_000)
        return roll_up(
            RunContext(self.database, policy, now, guard, check, progress),
            RollupOptions(TimeRange(more.pop("since", None), more.pop("until", None)), **more),
            Archived(reader, "books", span),
        )

    def context(self, policy: Policy, now: datetime) -> RunContext:
        """What a run that nobody disturbs works with."""
        return RunContext(self.database, policy, now, nobody_else, nothing)

    def raw(self, collection: str) -> dict[bytes, bytes]:
        """Every document of a collection, by the bytes of its `_id`."""
        found = self.database.get_collection(collection, codec_options=LOSSLESS).find({})
        documents: list[RawBSONDocument] = list(found)  # type: ignore[arg-type]
        return {bytes(document["_id"].raw): bytes(document.raw) for document in documents}

    def starts(self, collection: str) -> list[datetime]:
        return sorted(document["start"] for document in self.database[collection].find({}, {"start": 1}))


#: Whole modules are tried with all series of a slice at once, and with portions of them as small as can be.
WHOLE_AND_IN_PORTIONS = pytest.mark.parametrize("bench", [0, 4], ids=["whole", "in portions"], indirect=True)


@pytest.fixture
def bench(request: pytest.FixtureRequest, database: Database[Document]) -> Bench:
    return Bench(database, getattr(request, "param", 0))


def stopped_at(count: int) -> Callable[[], None]:
    """Returns a check that asks the run to stop when it is called for that time."""
    calls = itertools.count(1)

    def check() -> None:
        if next(calls) == count:
            raise InterruptedRun("stopped")

    return check
