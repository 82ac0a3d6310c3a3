"""The independent checker: what was ever written, held against what lies in MongoDB and in the store.

It knows nothing of how the suite works. What was written is kept as raw BSON; what a document holds is told
by `bson.decode` and plain loops; the archive is read as any reader would, by its manifests and pyarrow.
"""

from __future__ import annotations

import io
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

import bson
import pyarrow as pa
import pyarrow.parquet as pq
from bson.raw_bson import RawBSONDocument
from pymongo.database import Database

from bucketwise.archivers.format import parquet
from bucketwise.archivers.stores.base import ObjectStore
from bucketwise.config.policies import Policy
from bucketwise.config.tables import Store
from tests.buckets import oracle
from tests.clouds import container_of
from tests.conftest import s3_client

Document = dict[str, Any]
Unit = tuple[bytes, ...]  # a bucket's document, then its overflow by `_id`
Key = tuple[str, int]  # a series, and a time in milliseconds
Row = tuple[Key, tuple[float | str | None, ...]]
#: No delay lasts longer.
AT_LAST = datetime.max.replace(tzinfo=UTC)


class Toll(NamedTuple):
    """What the checker found: readings."""

    written: int
    lost: int
    doubled: int


class Files(Protocol):
    """The objects of a store, seen without the store under test."""

    def names(self) -> list[str]: ...

    def read(self, name: str) -> bytes: ...

    def remove(self, name: str) -> None: ...


@dataclass(frozen=True)
class Folder:
    root: Path

    def names(self) -> list[str]:
        return sorted(str(it.relative_to(self.root)) for it in self.root.rglob("*") if it.is_file())

    def read(self, name: str) -> bytes:
        return (self.root / name).read_bytes()

    def remove(self, name: str) -> None:
        (self.root / name).unlink()


@dataclass(frozen=True)
class Bucket:
    endpoint_url: str
    name: str
    prefix: str

    def names(self) -> list[str]:
        pages = s3_client(self.endpoint_url).get_paginator("list_objects_v2")
        found = pages.paginate(Bucket=self.name, Prefix=self.prefix + "/")
        keys = [it["Key"] for page in found for it in page.get("Contents", [])]
        return sorted(key.removeprefix(self.prefix + "/") for key in keys)

    def read(self, name: str) -> bytes:
        found = s3_client(self.endpoint_url).get_object(Bucket=self.name, Key=f"{self.prefix}/{name}")
        data: bytes = found["Body"].read()
        return data

    def remove(self, name: str) -> None:
        s3_client(self.endpoint_url).delete_object(Bucket=self.name, Key=f"{self.prefix}/{name}")


@dataclass(frozen=True)
class Opened:
    """The objects of an encrypted store in the clear: the key is asked of the suite, and all else is as it
    lies there."""

    files: Files
    store: ObjectStore

    def names(self) -> list[str]:
        return self.files.names()

    def remove(self, name: str) -> None:
        self.files.remove(name)

    def read(self, name: str) -> bytes:
        data = self.files.read(name)
        if name.startswith(".tmp/"):
            return data
        if data.startswith(b"PARE"):
            clear = io.BytesIO()
            pq.write_table(parquet.opened(data, self.store.file_keys(name)).read(), clear)
            return clear.getvalue()
        return self.store.get_bytes(name) if data.startswith(b"BWE1") else data


def files_of(store: Store) -> Files:
    url = urlsplit(store.url)
    if url.scheme == "file":
        return Folder(Path(unquote(url.path)))
    if url.scheme != "s3":
        return container_of(store)
    return Bucket(str(store.endpoint_url), url.netloc, url.path.strip("/"))


@dataclass
class Truth:
    """One policy's source. What the application wrote is told to it as it is acknowledged."""

    database: Database[Document]
    policy: Policy
    files: Files
    units: dict[Any, Unit] = field(default_factory=dict)  # as last written, by `_id`
    versions: dict[Any, list[Unit]] = field(default_factory=lambda: defaultdict(list))
    ends: bool = False  # all is past its time in the archive: what has gone, receipts tell

    def wrote(self, *unit: bytes) -> None:
        """A bucket, whole: a new one or a new version. `unit` is its document and its overflow, by `_id`."""
        identity = oracle.decoded(unit[0])["_id"]
        self.units[identity] = unit
        self.versions[identity].append(unit)

    def removed(self, identity: Any) -> None:
        """The application deleted a bucket that was live."""
        del self.units[identity]

    # What is there

    def live(self) -> list[Unit]:
        overflow = self.policy.overflow.collection if self.policy.overflow else None
        return self._units_in(self.policy.collection, overflow)

    def copies(self) -> list[Unit]:
        """What the archive collection holds."""
        archive = self.policy.archive
        assert archive is not None
        overflow = f"{archive.collection}_overflow" if self.policy.overflow else None
        return self._units_in(str(archive.collection), overflow)

    def _units_in(self, collection: str, overflow: str | None) -> list[Unit]:
        more: dict[Any, list[tuple[Any, bytes]]] = defaultdict(list)
        if overflow is not None and self.policy.overflow is not None:
            for raw in self.raw(overflow):
                document = oracle.decoded(raw)
                more[document[self.policy.overflow.ref_field]].append((document["_id"], raw))
        return [
            (raw, *(extra for _, extra in sorted(more[oracle.decoded(raw)["_id"]], key=lambda it: it[0])))
            for raw in self.raw(collection)
        ]

    def raw(self, collection: str) -> list[bytes]:
        options = bson.CodecOptions(document_class=RawBSONDocument)
        found: Any = self.database.get_collection(collection, codec_options=options).find()
        return [bytes(document.raw) for document in found]

    def manifests(self) -> list[Document]:
        """Those that count: none that another one has taken over."""
        found = self._all_manifests()
        replaced = {name for manifest in found for name in manifest.get("replaces", [])}
        # One that was committed too late, by a run that had lost its lease, names files that are gone.
        there = set(self.files.names())
        return [
            it
            for it in found
            if it["commit"] not in replaced and any(part["key"] in there for part in it["parts"])
        ]

    def _all_manifests(self) -> list[Document]:
        prefix = f"{self.policy.name}/meta/manifests/"
        names = [name for name in self.files.names() if name.startswith(prefix) and name.endswith(".json")]
        return [json.loads(self.files.read(name)) for name in names]

    def merged_away(self, now: datetime) -> list[Document]:
        """Manifests that a merged commit has taken over, and that may stay for a while."""
        assert self.policy.archive is not None
        found = self._all_manifests()
        since = now - self.policy.archive.compact.delay
        recent = [it["replaces"] for it in found if datetime.fromisoformat(it["created"]) > since]
        merged = {name for names in recent if len(names) > 1 for name in names}
        return [it for it in found if it["commit"] in merged]

    def committed(self) -> Counter[Row]:
        """The rows that a reader of the manifests sees."""
        return self._rows_in(self.manifests())

    def _rows_in(self, manifests: Iterable[Document]) -> Counter[Row]:
        parts = [part["key"] for manifest in manifests for part in manifest["parts"]]
        return Counter(row for key in parts for row in self._rows(key))

    def lying(self) -> Counter[Row]:
        """The rows that a reader of all of `data/` sees."""
        names = [name for name in self.files.names() if name.startswith(f"{self.policy.name}/data/")]
        return Counter(row for name in names for row in self._rows(name))

    def _rows(self, name: str) -> Iterator[Row]:
        table = pq.read_table(pa.BufferReader(io.BytesIO(self.files.read(name)).getvalue()))
        columns = table.to_pydict()
        series = [columns[name.replace(".", "_")] for name in self.policy.series_fields]
        values = [columns[name.replace(".", "_")] for name in self.policy.value_fields]
        times = [it // 1000 for it in table.column("time").cast(pa.int64()).to_pylist()]
        for i, time in enumerate(times):
            key = (str([str(column[i]) for column in series]), time)
            yield key, tuple(_comparable(column[i]) for column in values)

    def archived(self) -> Counter[Row]:
        if self.policy.archive is not None and self.policy.archive.to == "online":
            return Counter(self.rows_of(self.copies()))
        return self.committed()

    def rows_of(self, units: Iterable[Unit]) -> Iterator[Row]:
        for unit in units:
            bucket = oracle.Bucket(unit[0], unit[1:])
            series = str([str(it) for it in oracle.series(self.policy, bucket)])
            for reading in oracle.readings(self.policy, bucket):
                yield (series, reading.time), tuple(_comparable(number) for _, number in reading.values)

    # What must hold

    def toll(self) -> Toll:
        """At any time, whatever has just crashed: a reading that was written and is nowhere is lost, one that
        a reader of the archive sees more often than it was written is double."""
        written = Counter(self.rows_of(self.units.values()))
        there, archived = Counter(self.rows_of(self.live())), self.archived()
        lost = sum((written - (there | archived)).values())
        if self.ends:
            gone = self.database["bucketwise_receipts"].find({"kind": "expire"})
            lost = max(0, lost - sum(it["readings"] for it in gone))
        ever = Counter(key for key, _ in written)
        doubled = sum((Counter(key for key, _ in archived.elements()) - ever).values())
        return Toll(written.total(), lost, doubled)

    def check_finished(self, now: datetime = AT_LAST) -> None:
        """After clean runs, where everything has expired: each reading once, in the archive. What was merged
        away a short while before `now` lies there as well."""
        assert self.live() == [], "buckets are left"
        if self.ends:
            self._check_ended()
            return
        written = Counter(self.rows_of(self.units.values()))
        assert self.archived() == written
        if self.policy.archive is not None and self.policy.archive.to == "online":
            assert sorted(self.copies()) == sorted(self.units.values())
        else:
            assert self.lying() == written + self._rows_in(self.merged_away(now))

    def _check_ended(self) -> None:
        """Nothing is left of it, wherever it lay, but for its manifests; and receipts tell of each reading
        once."""
        assert self.archive_collections() == []
        left = [it for it in self.files.names() if "/data/" in it or "/meta/buckets/" in it]
        assert (left, self.manifests()) == ([], [])
        gone = self.database["bucketwise_receipts"].find({"kind": "expire"})
        assert sum(it["readings"] for it in gone) == sum(1 for _ in self.rows_of(self.units.values()))

    def archive_collections(self) -> list[bytes]:
        """What lies in the collections of an online archive."""
        names = (it for it in self.database.list_collection_names() if it.startswith("it_archive"))
        return [document for name in names for document in self.raw(name)]

    def check_rolled_up(self) -> None:
        """At any time: what is archived is in the summaries of its hour and day (of UTC)."""
        assert self.policy.rollup is not None
        archived = Counter(key for key, _ in self.archived().elements())
        for collection, length in (
            (self.policy.rollup.hourly, 3_600_000),
            (self.policy.rollup.daily, oracle.DAY),
        ):
            if collection is None:
                continue
            counted: Counter[Key] = Counter()
            for (series, time), count in archived.items():
                counted[series, time // length * length] += count
            for it in self.database[collection].find():
                series = str([str(oracle.at(it, field)) for field in self.policy.series_fields])
                counted[series, oracle.milliseconds(it["start"])] -= it["count"]
            assert not +counted, f"archived, and not in {collection}"

    def check_summaries(self) -> None:
        """Count, sum, least and greatest of each hour and day (of UTC), in plain Python."""
        assert self.policy.rollup is not None
        for collection, length in (
            (self.policy.rollup.hourly, 3_600_000),
            (self.policy.rollup.daily, oracle.DAY),
        ):
            if collection is None:
                continue
            expected: dict[Key, list[float | str | None]] = defaultdict(list)
            for (series, time), values in self.rows_of(self.units.values()):
                expected[series, time // length * length].append(values[0])
            name = self.policy.value_fields[0]
            found = {
                (
                    str([str(oracle.at(it, field)) for field in self.policy.series_fields]),
                    oracle.milliseconds(it["start"]),
                ): it
                for it in self.database[collection].find()
            }
            assert found.keys() == expected.keys(), collection
            for key, some in expected.items():
                numbers = [it for it in some if isinstance(it, float)]
                it = found[key]
                assert it["count"] == len(some), (collection, key, it["count"], len(some))
                assert (it[name]["min"], it[name]["max"]) == (min(numbers), max(numbers)), (collection, key)
                assert math.isclose(it[name]["sum"], math.fsum(numbers), rel_tol=1e-12), (collection, key)


def _comparable(value: Any) -> float | str | None:
    """NaN equals NaN; what is no number is nothing."""
    if value is None or isinstance(value, str | bool):
        return None
    number = float(value)
    return number if math.isfinite(number) else str(number)
