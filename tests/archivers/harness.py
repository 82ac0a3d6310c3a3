"""One policy's archive driven as a run drives it, and looked at without the code under test."""

from __future__ import annotations

import itertools
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import duckdb
import pyarrow.parquet as pq
import pytest
from pymongo.database import Database

from bucketwise.archivers.compact import CompactOptions, CompactReport
from bucketwise.archivers.context import ArchiveContext, ArchiveReport, Connections, LocalExecutor
from bucketwise.archivers.erasing.erasure import Erasure
from bucketwise.archivers.erasing.kind import ErasureReport
from bucketwise.archivers.format import parquet
from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.format.chain import Chain
from bucketwise.archivers.format.keys import UNSIGNED, Keys
from bucketwise.archivers.format.manifest import Manifest
from bucketwise.archivers.format.names import Commit, commits
from bucketwise.archivers.kinds import archive_of, series_of
from bucketwise.archivers.moving.archive import ArchiveOptions
from bucketwise.archivers.restoring.options import RestoreOptions
from bucketwise.archivers.restoring.settle import RestoreReport
from bucketwise.archivers.run import RolledUp, always
from bucketwise.archivers.stores import open_store
from bucketwise.archivers.stores.base import ObjectStore
from bucketwise.archivers.verifying.report import VerifyReport
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.fields.selectors import Selector
from bucketwise.buckets.fields.times import EVER, TimeRange
from bucketwise.config.policies import Policy
from bucketwise.config.tables import USUAL_MEMORY, Store
from bucketwise.jobs.erase.erasing import ErasureFacts, erase_series
from bucketwise.jobs.restore.unpin import release_pins
from bucketwise.jobs.sign import SignReport, sign_archive
from bucketwise.rollups.context import transaction
from tests.archivers.builders import LATER, RAW, Case, raw_documents
from tests.standing import StandingDatabase

Document = dict[str, Any]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
WHATEVER = CompactOptions()


def nothing(*_args: object) -> None:
    """A check, guard or progress that lets everything pass."""


def in_turn(*axes: Sequence[Any], many: int = 2) -> list[Any]:
    """Combinations for `parametrize`: in `make test` one of so `many`, so that each value of an axis meets
    others of each axis, in turn; the others in the proofs."""
    return [
        pytest.param(
            *(value for _, value in some),
            id="-".join(str(getattr(it, "name", getattr(it, "__name__", it))) for _, it in some),
            marks=[pytest.mark.proof] * (sum(at for at, _ in some) % many > 0),
        )
        for some in itertools.product(*map(list, map(enumerate, axes)))
    ]


@cache
def _duckdb() -> duckdb.DuckDBPyConnection:
    """One for all: its threads cost more than what they read here."""
    return duckdb.connect(config={"threads": 1})


@dataclass
class AsListed:
    """A `CommitIndex` of what the store lists, whatever MongoDB knows."""

    store: ObjectStore
    policy: str

    def seal(self, _commit: str) -> None:
        return None

    def was_made(self, _manifest: Manifest, _chain: Chain) -> bool:
        return True

    def versions(self, _manifest: Manifest, _chain: Chain) -> None:
        return None

    def within(self, start_ms: int, end_ms: int) -> list[Commit]:
        return [it for it in commits(self.store, self.policy) if it.may_hold(start_ms, end_ms)]

    def span(self) -> None:
        return None

    def types(self, _fields: Sequence[str]) -> None:
        return None


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
    memory: int = USUAL_MEMORY  # of a compaction: with less, commits have several sections

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

    def as_stored(self) -> OfflineArchive:
        """The archive as the store alone tells it."""
        return OfflineArchive(self.policy, self.store, AsListed(self.store, self.policy.identity))

    def context(self, now: datetime = LATER, **given: Any) -> ArchiveContext:
        """What a run works with, or anything else that is done with the archive."""
        whole: dict[str, Any] = {
            "guard": nothing,
            "check": nothing,
            "progress": nothing,
            "store": self.store,
            "keys": self.keys,
            "known_fences": lambda fences: {fence for fence, _ in self.runs} & set(fences),
        } | given
        whole.setdefault("executor", LocalExecutor(Connections(self.database, whole["store"])))
        return ArchiveContext(self.database, self.policy, now, **whole)

    def run(
        self,
        now: datetime = LATER,
        *,
        fence: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        through: int | None = None,
        rolled_up: RolledUp = always,
        dry_run: bool = False,
        **given: Any,
    ) -> ArchiveReport:
        if fence is None:
            self.fence += 1
            fence = self.fence
        self.runs.add((fence, now))
        options = ArchiveOptions(TimeRange(since, until), through, rolled_up)
        context = self.context(now, fence=fence, **given)
        archive = archive_of(context)
        return archive.plan(options) if dry_run else archive.run(options)

    def adopt(self, now: datetime = LATER, **given: Any) -> list[str]:
        """After a backup of the database was put back: takes over, and registers what it has forgotten."""
        self.fence += 1
        self.runs.add((self.fence, now))
        context = self.context(now, fence=self.fence, **given)
        if context.binding.reason_to_adopt():
            context.binding.adopt("a backup was put back")
            transaction(self.database, nothing, context.binding.settle_adoption)
        return archive_of(context).adopt()

    def compact(
        self, now: datetime = LATER, options: CompactOptions = WHATEVER, **given: Any
    ) -> CompactReport:
        self.fence += 1
        self.runs.add((self.fence, now))
        connections = Connections(self.database, given.get("store", self.store))
        given.setdefault("executor", LocalExecutor(connections, memory=self.memory))
        return archive_of(self.context(now, fence=self.fence, **given)).compact(options)

    def erase(
        self, series: Selector, within: TimeRange = EVER, now: datetime = LATER, **given: Any
    ) -> ErasureReport:
        self.fence += 1
        self.runs.add((self.fence, now))
        context = self.context(now, fence=self.fence, **given)
        archive_of(context).recover()
        return erase_series(
            context, series_of, Erasure(self.policy, series, within, "case 17"), ErasureFacts()
        )

    def preview(self, **asked: Any) -> RestoreReport:
        """What a restore into an empty collection would put there."""
        return archive_of(self.context()).restore(RestoreOptions("nowhere", dry_run=True, **asked))

    def restore(
        self,
        to: str = "back",
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        guard: Callable[..., None] = nothing,
        **asked: Any,
    ) -> RestoreReport:
        """Into the source it pins, so that `unpin` is another step."""
        options = RestoreOptions(to, TimeRange(since, until), **asked)
        return archive_of(self.context(guard=guard)).restore(options)

    def unpin(
        self,
        now: datetime = LATER,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        guard: Callable[..., None] = nothing,
    ) -> int:
        return release_pins(self.context(now, guard=guard), TimeRange(since, until))

    def live(self) -> list[bytes]:
        return raw_documents(self.database, self.policy.collection)

    def documents(self) -> dict[str, list[bytes]]:
        """All documents of the database, by collection."""
        names = self.database.list_collection_names()
        return {name: raw_documents(self.database, name) for name in sorted(names)}

    def live_overflow(self) -> list[bytes]:
        assert self.policy.overflow is not None
        return raw_documents(self.database, self.policy.overflow.collection)

    def verify(self, check: Callable[[], None] = nothing) -> VerifyReport:
        return archive_of(self.context(check=check)).verify()

    def sign(self) -> SignReport:
        return sign_archive(self.context())

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
        """What lies in the store, but for what each run notes of itself."""
        found = (it for it in self.store.list() if "/meta/lineage/" not in it.key)
        return {it.key: (it.size, it.modified) for it in found}

    def rows(self) -> Counter[tuple[Any, ...]]:
        """Every row that a reader of `data/` sees: series, time, first value."""
        files = sorted((self.root / self.policy.name / "data").glob("**/*.parquet"))
        return parquet_rows([*map(self._plain, files)], self.policy)

    def _plain(self, file: Path) -> Path:
        """The part, or a decrypted copy of it beside the store."""
        data, key = file.read_bytes(), str(file.relative_to(self.root))
        if not data.startswith(b"PARE"):
            return file
        plain = self.root.parent / "plain" / key
        plain.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(parquet.opened(data, self.store.file_keys(key)).read(), plain)
        return plain


def parquet_rows(files: list[Path], policy: Policy) -> Counter[tuple[Any, ...]]:
    if not files:
        return Counter()
    columns = ", ".join(f'"{name.replace(".", "_")}"' for name in policy.series_fields)
    value = policy.value_fields[0].replace(".", "_")
    source = f"read_parquet({[str(f) for f in files]}, hive_partitioning = true)"
    query = f'SELECT {columns}, epoch_ms("time"), "{value}" FROM {source}'
    found = _duckdb().execute(query).fetchall()
    return Counter(plain_row(tuple(row[:-2]), EPOCH + row[-2] * MILLISECOND, row[-1]) for row in found)


def plain_row(series: tuple[Any, ...], time: datetime, value: float | None) -> tuple[Any, ...]:
    """Comparable: NaN equals NaN."""
    return (*series, time.astimezone(UTC), "nan" if value is not None and value != value else value)


def expected_rows(case: Case) -> Counter[tuple[Any, ...]]:
    return Counter(plain_row(*reading) for reading in case.readings)


class Backup:
    """All of a database, the count of the lease included."""

    def __init__(self, cycle: Cycle) -> None:
        self.fence, self.runs = cycle.fence, set(cycle.runs)
        self.held = {name: list(self._raw(cycle, name).find()) for name in self.names(cycle)}

    @staticmethod
    def names(cycle: Cycle) -> list[str]:
        """Without what lies below native time-series."""
        return [it for it in cycle.database.list_collection_names() if not it.startswith("system.")]

    @staticmethod
    def _raw(cycle: Cycle, name: str) -> Any:
        return cycle.database.get_collection(name, codec_options=RAW)

    def put_back(self, cycle: Cycle) -> None:
        """Into the same collections: an archive is bound to their UUIDs."""
        cycle.fence, cycle.runs = self.fence, set(self.runs)
        for name in {*self.held, *self.names(cycle)}:
            self._raw(cycle, name).delete_many({})
            if self.held.get(name):
                self._raw(cycle, name).insert_many(self.held[name])


class Standing:
    """All of a database and of a store that is a folder, to begin from again and again."""

    def __init__(self, cycle: Cycle) -> None:
        self.fence, self.runs = cycle.fence, set(cycle.runs)
        self.database = StandingDatabase(cycle.database)
        self.files = {path: path.read_bytes() for path in cycle.root.rglob("*") if path.is_file()}

    def put_back(self, cycle: Cycle) -> None:
        cycle.fence, cycle.runs = self.fence, set(self.runs)
        self.database.put_back()
        shutil.rmtree(cycle.root, ignore_errors=True)  # an online archive has none
        cycle.root.mkdir()
        for path, data in self.files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


def whole(archive: OfflineArchive, manifest: Manifest) -> Batch:
    """Returns all documents of a commit."""
    return Batch.concat([held.batch for held in archive.sections(manifest)])
