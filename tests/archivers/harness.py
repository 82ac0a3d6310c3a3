"""One policy's archive driven as a run drives it, and looked at without the code under test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import duckdb
from pymongo.database import Database

from archivers.context import ArchiveReport
from archivers.format.keys import UNSIGNED, Keys
from archivers.moving.sweep import archive
from archivers.proof.sign import SignReport, sign
from archivers.proof.verify import VerifyReport, verify
from archivers.records.pins import unpin
from archivers.restoring.restore import RestoreReport, restore
from archivers.stores import ObjectStore, open_store
from config.policies import Policy, Store
from tests.archivers.builders import LATER, Case, raw_documents

Document = dict[str, Any]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


def nothing(*_args: object) -> None:
    """A check, guard or progress that lets everything pass."""


def rolled_up(_start_ms: int, _end_ms: int, *, anew: bool = False) -> bool:
    del anew
    return True


@dataclass
class Cycle:
    """Runs of one case in one database and one store; each run has a higher fence."""

    database: Database[Document]
    case: Case
    settings: Store
    fence: int = 0
    store: ObjectStore = field(init=False)
    keys: Keys = UNSIGNED
    runs: set[tuple[int, datetime]] = field(default_factory=set)  # as the ledger knows them

    def __post_init__(self) -> None:
        self.store = open_store(self.settings)

    @property
    def policy(self) -> Policy:
        return self.case.policy

    @property
    def root(self) -> Path:
        return Path(unquote(urlsplit(self.settings.url).path))

    def load(self) -> Cycle:
        self.case.load(self.database)
        return self

    def run(
        self,
        now: datetime = LATER,
        *,
        guard: Callable[..., None] = nothing,
        check: Callable[[], None] = nothing,
        progress: Callable[[str, int], None] = nothing,
        fence: int | None = None,
        store: ObjectStore | None = None,
        **kwargs: Any,
    ) -> ArchiveReport:
        if fence is None:
            self.fence += 1
            fence = self.fence
        self.runs.add((fence, now))
        return archive(
            self.database,
            self.policy,
            now,
            store=store or self.store,
            keys=self.keys,
            fence=fence,
            knows_run=lambda fence, now: (fence, now) in self.runs,
            guard=guard,
            check=check,
            progress=progress,
            **({"through": None, "rolled_up": rolled_up} | kwargs),
        )

    def restore(self, to: str = "back", **kwargs: Any) -> RestoreReport:
        """Into the source it pins, so that `unpin` is another step."""
        asked: dict[str, Any] = {
            "since": None, "until": None, "series": {}, "pinned_until": None, "guard": nothing,
        }  # fmt: skip
        return restore(
            self.database,
            self.policy,
            self.store,
            LATER,
            to=to,
            check=nothing,
            progress=nothing,
            **(asked | kwargs),
        )

    def unpin(self, now: datetime = LATER, **kwargs: Any) -> int:
        asked: dict[str, Any] = {"since": None, "until": None, "guard": nothing} | kwargs
        return unpin(self.database, self.policy, now, check=nothing, progress=nothing, **asked)

    def live(self) -> list[bytes]:
        return raw_documents(self.database, self.policy.collection)

    def live_overflow(self) -> list[bytes]:
        assert self.policy.overflow is not None
        return raw_documents(self.database, self.policy.overflow.collection)

    def verify(self, check: Callable[[], None] = nothing) -> VerifyReport:
        return verify(
            self.database,
            self.policy,
            self.store,
            keys=self.keys,
            since=None,
            until=None,
            check=check,
            progress=nothing,
        )

    def sign(self) -> SignReport:
        return sign(self.database, self.policy, self.store, self.keys, check=nothing, progress=nothing)

    def archived(self) -> list[bytes]:
        """The buckets that the archive holds, without their overflow, by way of a restore."""
        if self.policy.archive is not None and self.policy.archive.to == "online":
            return raw_documents(self.database, f"{self.policy.collection}_archive")
        self.database.drop_collection("scratch")
        self.restore("scratch")
        found = raw_documents(self.database, "scratch")
        self.database.drop_collection("scratch")
        return found

    def listing(self) -> dict[str, tuple[int, datetime]]:
        return {found.key: (found.size, found.modified) for found in self.store.list()}

    def rows(self) -> Counter[tuple[Any, ...]]:
        """Every row that a reader of `data/` sees: series, time, first value."""
        files = sorted((self.root / self.policy.name / "data").glob("**/*.parquet"))
        return parquet_rows(files, self.policy)


def parquet_rows(files: list[Path], policy: Policy) -> Counter[tuple[Any, ...]]:
    if not files:
        return Counter()
    columns = ", ".join(f'"{name.replace(".", "_")}"' for name in policy.series_fields)
    value = policy.value_fields[0].replace(".", "_")
    source = f"read_parquet({[str(f) for f in files]}, hive_partitioning = true)"
    with duckdb.connect() as connection:
        query = f'SELECT {columns}, epoch_ms("time"), "{value}" FROM {source}'
        found = connection.execute(query).fetchall()
    return Counter(plain_row(tuple(row[:-2]), EPOCH + row[-2] * MILLISECOND, row[-1]) for row in found)


def plain_row(series: tuple[Any, ...], time: datetime, value: float | None) -> tuple[Any, ...]:
    """Comparable: NaN equals NaN."""
    return (*series, time.astimezone(UTC), "nan" if value is not None and value != value else value)


def expected_rows(case: Case) -> Counter[tuple[Any, ...]]:
    return Counter(plain_row(*reading) for reading in case.readings)
