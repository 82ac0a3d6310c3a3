"""A cron line runs every hour, for days and for a year: what it leaves, and what the last runs cost."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import bson
import pytest
from pymongo.database import Database

from bucketwise.archivers.restoring.options import RestoreOptions
from bucketwise.archivers.stores import open_store
from bucketwise.archivers.stores.base import ObjectStore
from bucketwise.config.policies import Compact, Policy
from bucketwise.config.tables import Store
from bucketwise.jobs.audit.verb import AUDIT
from bucketwise.jobs.core.turn import Step
from bucketwise.jobs.output.report import Result
from bucketwise.jobs.restore.verb import restore_step
from bucketwise.jobs.run.verb import RUN
from bucketwise.jobs.verify import VERIFY
from tests.archivers.harness import parquet_rows, plain_row
from tests.jobs.counting import CountingStore, run_counted, ticks_policy
from tests.jobs.place import START
from tests.jobs.running.test_ages_well import UNSTEADY

Document = dict[str, Any]
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
AFTER = timedelta(days=2)
#: Runs between two readings that come late.
LATE = 16
Costs = tuple[Counter[str], Counter[str]]
log = logging.getLogger(__name__)


@dataclass
class Readings:
    """Six an hour, of two series, inserted as time passes; one comes late now and then."""

    database: Database[Document]
    days: int
    written: list[Document] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.database["ticks"].create_index("d")
        self._regular = self._in_order()
        self._next: Document | None = next(self._regular)

    def _in_order(self) -> Iterator[Document]:
        for number in range(self.days * 144):
            at = START + number * timedelta(minutes=10)
            yield {"_id": number, "symbol": "AB"[number % 2], "d": at, "p": number / 4}

    def come_in(self, now: datetime) -> None:
        came = []
        while self._next is not None and self._next["d"] < now:
            came.append(self._next)
            self._next = next(self._regular, None)
        self._insert(came)

    def come_late(self, hour: int) -> None:
        late = {"_id": f"late {hour}", "symbol": "A", "d": START + (hour - 20) * HOUR, "p": -1.0}
        self._insert([late])

    def _insert(self, documents: list[Document]) -> None:
        if documents:
            self.database["ticks"].insert_many(documents)
            self.written += documents


@dataclass
class Cron:
    """Runs every `step` hours until three days after the last reading has expired."""

    uri: str
    readings: Readings
    policy: Policy
    store: ObjectStore
    step: int
    commands: list[Counter[str]] = field(default_factory=list)
    requests: list[Counter[str]] = field(default_factory=list)
    now: datetime = START

    def run_all(self) -> None:
        for hour in range(1, (self.readings.days + 3) * 24, self.step):
            self.now = START + AFTER + hour * HOUR + timedelta(minutes=5)
            self.readings.come_in(self.now)
            if hour % (LATE * self.step) == 9 * self.step + 1:
                self.readings.come_late(hour)
            self.do(RUN)
            if hour % (7 * 24) == 1:
                log.info("day %d: %s %s", hour // 24, self.commands[-1], self.requests[-1])

    def do(self, steps: tuple[Step, ...], **options: Any) -> Result:
        store: Any = CountingStore(self.store)
        name = self.readings.database.name
        (result,), counts = run_counted(self.uri, name, steps, [self.policy], store, self.now, **options)
        assert result.exit_code == 0, result.error
        steady = {it: n for it, n in counts.commands.items() if it not in UNSTEADY}
        self.commands.append(Counter(steady))
        self.requests.append(store.asked)
        return result

    def cost_of(self, first_day: int, days: int) -> Costs:
        runs = slice(first_day * 24, (first_day + days) * 24)
        return sum(self.commands[runs], Counter()), sum(self.requests[runs], Counter())


def parts_of(store: ObjectStore) -> list[str]:
    return [found.key for found in store.list("ticks/data/")]


def fetched(store: ObjectStore, folder: Path) -> list[Path]:
    """The parts, under their own names."""
    files = [folder / key for key in parts_of(store)]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(store.get_bytes(str(file.relative_to(folder))))
    return files


def assert_same(early: Costs, late: Costs) -> None:
    """But for what only some runs do: a checkpoint, a look at the ledger's age."""
    for before, after in zip(early, late, strict=True):
        assert set(before) == set(after)
        assert all(abs(after[name] - count) <= 14 + count // 50 for name, count in before.items()), (
            early,
            late,
        )


@pytest.mark.proof
@pytest.mark.parametrize(
    ("to", "days", "step"),
    [
        ("file", 2, 6),
        *(pytest.param(to, 2, 3, marks=pytest.mark.proof) for to in ("file", "s3")),
        *(pytest.param(to, 365, 1, marks=pytest.mark.soak) for to in ("file", "s3")),
    ],
)
def test_hourly_runs_end_with_few_parts(
    database: Database[Document],
    mongodb_uri: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    to: str,
    days: int,
    step: int,
) -> None:
    settings: Store = request.getfixturevalue("file_store" if to == "file" else "moto_store")
    policy = ticks_policy(to="offline", after=AFTER, compact=Compact())
    store, readings = open_store(settings), Readings(database, days)
    cron = Cron(mongodb_uri, readings, policy, store, step)
    cron.run_all()
    assert database["ticks"].count_documents({}) == 0
    written = readings.written
    assert max(Counter(key.split("/")[2] for key in parts_of(store)).values()) <= 2
    files = fetched(store, tmp_path / "fetched")
    assert parquet_rows(files, policy) == Counter(
        plain_row((it["symbol"],), it["d"], it["p"]) for it in written
    )
    verified = cron.do((VERIFY,), dry_run=True).body
    assert (verified["bad"], verified["readings"]) == (0, len(written))
    assert cron.do((AUDIT,), dry_run=True).body["findings"] == []
    assert cron.do((restore_step(RestoreOptions("back")),)).body["buckets"] == len(written)
    assert sorted(map(bson.encode, database["back"].find())) == sorted(map(bson.encode, written))
    if step == 1:
        assert_same(cron.cost_of(50, 14), cron.cost_of(days - 32, 14))
