"""The offline archive: buckets as Parquet in an object store.

The order, here and nowhere else: parts and buckets file are written; all are read back from where they
lie, and the documents rebuilt from them are compared byte for byte with what was read from MongoDB; then
the manifest is written. A crash before that leaves files that no manifest names: they are not part of
the archive, and the next run removes them.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np
import pyarrow as pa

from archivers import parquet
from archivers.chain import Chain, Place, unknown
from archivers.keys import Keys
from archivers.manifest import (
    LAYOUT_KEYS,
    Commit,
    DamagedError,
    Manifest,
    Part,
    StoredFile,
    buckets_key,
    commit_name,
    commit_of_file,
    commits,
    day,
    manifest_key,
    owner_key,
    part_key,
    superseded_key,
)
from archivers.stores.base import AlreadyExists, Corrupt, NotFound, ObjectStore
from buckets.columns import Series
from buckets.pack import Packed, pack, unpack
from buckets.raw import Batch
from buckets.times import DAY_MS, as_date, as_ms
from config.errors import HaltedError
from config.policies import Policy


class Origin(NamedTuple):
    """Who archives: goes into names and manifests."""

    database: str
    fence: int
    now: datetime
    timeseries: dict[str, str] | None = None  # of a native time-series collection: what it is made with


class OfflineArchive:
    """The commits of one policy in a store. Knows nothing of what is live."""

    def __init__(
        self,
        policy: Policy,
        store: ObjectStore,
        seal_of: Callable[[str], str | None] = unknown,
        keys: Keys | None = None,
    ) -> None:
        """`seal_of` tells the seal that a commit's manifest has to have, where that is known. Without
        `keys` signatures are not looked at."""
        self.policy = policy
        self.store = store
        self.chain = Chain(store, policy.name, seal_of, keys)
        self._types: dict[str, str] | None = None
        self._loaded: tuple[str, Batch] | None = None  # the last one: callers go by days, commits span some

    def commits(self, start_ms: int | None = None, end_ms: int | None = None) -> list[Commit]:
        """Those that may hold something of [start, end), by their first day."""
        found = commits(self.store, self.policy.name)
        if start_ms is None or end_ms is None:
            return list(found)
        return [commit for commit in found if commit.may_hold(start_ms, end_ms)]

    def manifest(self, commit: str) -> Manifest:
        """Raises NotFound, and DamagedError where it is not the one that was committed."""
        return self.chain.manifest(commit)

    def manifests(self, start_ms: int, end_ms: int) -> list[Manifest]:
        """What holds something of [start, end), without what another commit has taken over (a crash may
        leave both)."""
        named = [self.manifest(commit.name) for commit in self.commits(start_ms, end_ms)]
        found = [it for it in named if as_ms(it.first) < end_ms and as_ms(it.last) >= start_ms]
        replaced = {manifest.replaces for manifest in named}
        return [manifest for manifest in found if manifest.commit not in replaced]

    def claim(self, owner: str, database: str) -> None:
        """One database owns an archive: the runs of another would clear what this one's have not committed
        yet. `owner` is random, and kept in the database. Raises HaltedError where it is another's."""
        key = owner_key(self.policy.name)
        try:
            found = self.store.get_bytes(key)
        except NotFound:
            data = json.dumps({"owner": owner, "database": database}).encode()
            with contextlib.suppress(AlreadyExists):
                self.store.put_bytes(key, data, if_absent=True)
                if self.store.get_bytes(key) != data:
                    self.store.delete([key])  # ours, and damaged: it would stop every later run
                    raise HaltedError(
                        f"{self.store.url}/{key}: read back, it is not what was written. "
                        "Nothing was changed. Look at the store, then run again"
                    ) from None
            found = self.store.get_bytes(key)
        if owner.encode() not in found:
            raise HaltedError(
                f"{self.store.url}/{key} says that this archive belongs to another database: "
                f"{found.decode(errors='replace')[:200]}. Give the policy another name or store; or, if this "
                "database alone archives here from now on, remove that file. Nothing was changed"
            )

    def missing(self, names: Callable[[], Iterable[str]]) -> set[str]:
        """Of these commits: those that have no manifest. Names are asked for again where some are missing: a
        run at work may have dropped them since."""
        missing = set(names()) - self._names()
        return missing & set(names()) - self._names() if missing else missing

    def _names(self) -> set[str]:
        return {commit.name for commit in self.commits()}

    def misfit(self, series: Series) -> tuple[str, object] | None:
        """A series field, and its value, that the columns of this archive can't hold."""
        types = self.known_types()
        return parquet.misfit(series, types) if types else None

    def known_types(self) -> dict[str, str]:
        """The types of the series columns, as the commits with these series fields have them: one archive
        is one table."""
        if self._types is None:
            fields, self._types = self.policy.series_fields, {}
            for commit in reversed(self.commits()):
                known = self.manifest(commit.name).series_types
                if set(known) == set(fields):
                    self._types = {name: known[name] for name in fields}
                    break
        return self._types

    def export(
        self,
        batch: Batch,
        origin: Origin,
        place: Place,
        check: Callable[[], None],
        replaces: Manifest | None = None,
    ) -> Manifest:
        """Write, verify and commit some sound buckets. Raises HaltedError where the copy isn't equal.

        Of what `replaces` an older commit the layout stays that of the policy by which it was archived.

        `check` raises where the run must stop: asked before the commit, since a run that has lost its
        lease has to leave no manifest behind.
        """
        policy = self.policy if replaces is None else replaces.archived_policy
        types = self.known_types() if replaces is None else replaces.series_types
        packed = pack(batch, policy)
        expected = batch.take(packed.order)
        name = commit_name(packed.first, packed.last, origin.fence, expected.digest())
        with tempfile.TemporaryDirectory(prefix="bucketwise-") as spool:
            manifest = self._write(
                packed, expected, name, origin, place, policy, types, replaces, Path(spool)
            )
            for file in manifest.files:
                self.store.put_file(file.key, Path(spool) / _local(file.key))
        self._loaded = None  # what is compared is what the store gives now
        copied = self.load(manifest)
        if (copied.main.data, copied.extra.data) != (expected.main.data, expected.extra.data):
            raise HaltedError(
                f"policy {self.policy.name}: commit {name}, read back from {self.store.url}, does not give "
                "the documents that were exported. Nothing was deleted. Look at the store, then run again"
            )
        check()
        self.chain.commit(manifest)
        if replaces is None:
            self._types = manifest.series_types
        return manifest

    def _write(
        self,
        packed: Packed,
        expected: Batch,
        name: str,
        origin: Origin,
        place: Place,
        policy: Policy,
        types: dict[str, str],
        replaces: Manifest | None,
        spool: Path,
    ) -> Manifest:
        types = types or parquet.series_types(packed.rows.series, policy.series_fields)
        parts = []
        days = packed.rows.time // DAY_MS
        edges = np.flatnonzero(np.diff(days, prepend=-(2**62), append=2**62)).tolist()
        for start, end in itertools.pairwise(edges):
            dt = day(int(packed.rows.time[start]))
            key = part_key(policy.name, dt, name)
            parquet.write_part(spool / _local(key), packed.rows, slice(start, end), types)
            times = packed.rows.time[start:end]
            parts.append(
                Part(
                    **_stored(key, spool / _local(key)).model_dump(),
                    dt=date.fromisoformat(dt),
                    rows=end - start,
                    first=as_date(int(times.min())),
                    last=as_date(int(times.max())),
                )
            )
        key = buckets_key(policy.name, name)
        parquet.write_buckets(spool / _local(key), packed.groups)
        return self.chain.sealed(
            Manifest(
                policy=policy.name,
                commit=name,
                fence=origin.fence,
                database=origin.database,
                collection=policy.collection,
                layout=policy.model_dump(mode="json", include=LAYOUT_KEYS, exclude_none=True),
                series_types=types,
                timeseries=origin.timeseries,
                buckets=len(expected),
                overflow_documents=len(expected.extra),
                readings=len(packed.rows.time),
                first=as_date(packed.first),
                last=as_date(packed.last),
                documents_sha256=expected.digest(),
                parts=tuple(parts),
                buckets_file=_stored(key, spool / _local(key)),
                created=origin.now,
                replaces=replaces.commit if replaces else None,
                **place._asdict(),
            )
        )

    def load(self, manifest: Manifest) -> Batch:
        """The documents of a commit, rebuilt from its files as they lie in the store.

        Raises DamagedError where a file is missing, differs from the manifest or does not give the documents.
        """
        if self._loaded is not None and self._loaded[0] == manifest.documents_sha256 + manifest.commit:
            return self._loaded[1]
        with tempfile.TemporaryDirectory(prefix="bucketwise-") as spool:
            for file in manifest.files:
                self._fetch(file, Path(spool) / _local(file.key))
            fields = manifest.archived_policy.value_fields
            try:
                read = [parquet.read_part(Path(spool) / _local(part.key), fields) for part in manifest.parts]
                groups = parquet.read_buckets(Path(spool) / _local(manifest.buckets_file.key))
            except (pa.ArrowException, OSError) as error:
                if isinstance(error, MemoryError) or getattr(error, "errno", None):
                    raise  # this machine's fault, and no damage
                place = f"{self.store.url}/{manifest.buckets_file.key}"
                raise DamagedError("part-differs", place, f"this or a part of its commit: {error}") from None
        time = np.concatenate([np.zeros(0, dtype=np.int64), *(times for times, _ in read)])
        values = [
            np.concatenate([np.zeros(0), *(columns[field] for _, columns in read)])
            for field in range(len(fields))
        ]
        batch = unpack(time, values, groups)
        if batch.digest() != manifest.documents_sha256:
            place = f"{self.store.url}/{manifest.buckets_file.key}"
            raise DamagedError("part-differs", place, "its commit does not give the documents archived")
        self._loaded = (manifest.documents_sha256 + manifest.commit, batch)
        return batch

    def _fetch(self, file: StoredFile, path: Path) -> None:
        try:
            self.store.get_file(file.key, path)
        except NotFound:
            place = f"{self.store.url}/{file.key}"
            raise DamagedError(
                "part-missing", place, "the file is missing, though a manifest names it"
            ) from None
        except Corrupt as error:
            raise DamagedError("part-differs", f"{self.store.url}/{file.key}", error.reason) from None
        found = _stored(file.key, path)
        if (found.bytes, found.sha256) != (file.bytes, file.sha256):
            raise DamagedError(
                "part-differs",
                f"{self.store.url}/{file.key}",
                f"the file has {found.bytes} bytes with SHA-256 {found.sha256[:16]}…, its manifest says "
                f"{file.bytes} bytes with {file.sha256[:16]}…",
            )

    def has_files(self, manifest: Manifest) -> bool:
        """Whether any of a commit's files is there."""
        return any(self.store.head(file.key) is not None for file in manifest.files)

    def see(self, manifest: Manifest) -> None:
        """Raise DamagedError where the commit is gone: somebody else cleared the store since it was read."""
        if self.store.head(manifest_key(self.policy.name, manifest.commit)) is None:
            self.miss(manifest.commit)

    def drop(self, manifest: Manifest) -> None:
        """Take a commit out. The manifest goes before its files: a crash leaves files of no commit."""
        self.chain.drop(manifest)
        self.store.delete([file.key for file in manifest.files])

    def set_aside(self, commit: str, batch: Batch) -> None:
        """Keep what is about to be taken out of a commit, as BSON, where no reader of the archive looks."""
        self.store.put_bytes(superseded_key(self.policy.name, commit), batch.main.data + batch.extra.data)

    def unlisted(self) -> Iterator[tuple[str, Commit | None]]:
        """Files under `data/` and `meta/buckets/` of no commit, and the commit they are named for."""
        files = [
            found.key
            for prefix in ("data/", "meta/buckets/")
            for found in self.store.list(f"{self.policy.name}/{prefix}")
        ]
        listed = {commit.name for commit in self.commits()}  # after the files: one committed since counts
        for key in files:
            commit = commit_of_file(self.policy.name, key)
            if commit is None or commit.name not in listed:
                yield key, commit

    def clear(
        self, fence: int, is_known: Callable[[set[str]], set[str]], parts: Callable[[], Iterable[str]]
    ) -> None:
        """Remove what runs under older leases wrote and never committed.

        A newer holder's files carry a higher fence, so a run that lost its lease can't take them away.
        `is_known` tells which commits have a receipt: theirs were committed. `parts` are those that must be
        there: while one is missing, what looks left over may be it. Raises DamagedError.
        """
        left = [(key, commit.name) for key, commit in self.unlisted() if commit and commit.fence < fence]
        for name in sorted(is_known({name for _, name in left})):
            self.miss(name)
        if left:
            there = {found.key for found in self.store.list(f"{self.policy.name}/data/")}
            for key in sorted(set(parts()) - there):
                fault = f"the file is missing, and {left[0][0]} is of no commit: it may have been renamed"
                raise DamagedError("part-missing", f"{self.store.url}/{key}", fault)
        self.store.delete([key for key, _ in left])

    def miss(self, commit: str) -> NoReturn:
        """Raises DamagedError for a commit whose manifest has gone."""
        place = f"{self.store.url}/{manifest_key(self.policy.name, commit)}"
        raise DamagedError("part-missing", place, "the manifest is missing, though a receipt names it")


def _local(key: str) -> str:
    return key.replace("/", "_")


def _stored(key: str, path: Path) -> StoredFile:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return StoredFile(key=key, bytes=path.stat().st_size, sha256=digest)
