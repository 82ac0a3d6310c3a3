"""The offline archive: buckets as Parquet in an object store.

This is the one place that decides the order. Parts and buckets file are written. All are read back from where
they lie, and the documents rebuilt from them are compared byte for byte with those read from MongoDB. Then
the manifest is written. A crash before that leaves files that no manifest names: they are not part of the
archive, and the next run removes them.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import numpy as np

from archivers.format import parquet
from archivers.format.chain import ChainPosition
from archivers.format.finding import ArchivedCommits, CommitIndex, Listed
from archivers.format.keys import Keys
from archivers.format.manifest import DamagedError, Manifest, Origin, Part, StoredFile, layout_of
from archivers.format.names import (
    Commit,
    CommitName,
    buckets_key,
    commit_name,
    commit_of_file,
    owner_key,
    superseded_key,
)
from archivers.format.parts import decoding, fetch, stored, write_parts
from archivers.format.recent import Recent
from archivers.format.rows import RowFilter, read_rows
from archivers.format.series import HeldSeries
from archivers.stores.base import AlreadyExists, NotFound, ObjectStore
from buckets.bson.raw import Batch
from buckets.columns import Series, joined
from buckets.decoding.decode import Lot
from buckets.fields.times import as_date
from buckets.packing.pack import PackedGroup, Rows, pack
from buckets.packing.unpack import Readings, gives, unpack
from config.errors import HaltedError
from config.policies import Policy


class Maker(NamedTuple):
    """Who archives, for names and manifests."""

    database: str
    fence: int
    now: datetime
    timeseries: dict[str, str] | None = None  # options of a native time-series collection


class Replaced(NamedTuple):
    """What a new commit takes over: the commits, and where its buckets were archived first."""

    commits: tuple[str, ...] = ()
    origins: tuple[Origin, ...] = ()


NOTHING = Replaced()


class Copied(NamedTuple):
    """A copy in the store that gives the very documents, and is no commit yet."""

    draft: Manifest  # without its place in the chain
    batch: Batch  # these documents


class OfflineArchive(ArchivedCommits):
    """The archive of one policy: its commits, what they hold, and how another one is made. Knows nothing of
    what is live."""

    def __init__(
        self,
        policy: Policy,
        store: ObjectStore,
        index: CommitIndex | None = None,
        keys: Keys | None = None,
        listed: Listed | None = None,
    ) -> None:
        super().__init__(policy, store, index, keys, listed)
        self._recent = Recent()  # at other instants as well
        self.versions: dict[str, dict[str, str]] = {}  # in the last commit: key of each file -> version

    def claim(self, owner: str, database: str) -> None:
        """Records which database owns the archive: runs of another one would clear what this one's have not
        committed yet. `owner` is random, and kept in the database. Raises HaltedError where another one owns
        it."""
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

    def misfit(self, series: Series) -> tuple[str, object] | None:
        """Returns a series field, and its value, that the columns of this archive can't hold; None where they
        can."""
        types = self.known_types()
        return parquet.misfit(series, types) if types else None

    def types_for(self, series: Sequence[Series]) -> dict[str, str]:
        """Returns the types of the series columns of a commit with these series: known ones, or these from
        now on."""
        if not self.known_types():
            self._types = parquet.series_types(series, self.policy.series_names)
        return self.known_types()

    def copy(
        self,
        lot: Lot,
        types: dict[str, str],
        maker: Maker,
        check: Callable[[], None],
        replaces: Replaced = NOTHING,
    ) -> Copied:
        """Writes sound buckets, and verifies what was written. Raises HaltedError where it isn't equal.

        Frees what was decoded of the lot. Touches nothing but the store, so that a thread may do it. `check`
        raises where the run must stop: it is called before each file, since one that comes late would lie
        beside what a later run has copied."""
        draft = self._write(lot, types, maker, check, replaces)
        if not self.holds(draft, lot.batch):
            raise HaltedError(
                f"policy {self.policy.name}: commit {draft.commit}, read back from {self.store.url}, does "
                "not give the documents that were exported. Nothing was deleted. Look at the store, then run "
                "again"
            )
        return Copied(draft, lot.batch)

    def _write(
        self, lot: Lot, types: dict[str, str], maker: Maker, check: Callable[[], None], replaces: Replaced
    ) -> Manifest:
        packed, policy, expected = pack(lot), lot.policy, lot.batch
        lot.forget()
        name = commit_name(packed.first, packed.last, maker.fence, expected.digest)
        written: dict[str, bytes] = {}
        parts = list(write_parts(packed, policy.name, name, types, written))
        key = buckets_key(policy.name, name)
        written[key] = parquet.write_buckets(packed.groups)
        draft = Manifest(
            policy=policy.name,
            commit=name,
            fence=maker.fence,
            database=maker.database,
            collection=policy.collection,
            layout=layout_of(policy),
            series_types=types,
            timeseries=maker.timeseries,
            buckets=len(expected),
            overflow_documents=len(expected.extra),
            readings=len(packed.rows.time),
            series=HeldSeries.of(
                packed.rows.series,
                policy.series_names,
                is_exact=parquet.are_exact(packed.rows.series, types),
            ),
            first=as_date(packed.first),
            last=as_date(packed.last),
            documents_bytes=expected.size,
            documents_sha256=expected.digest,
            parts=tuple(parts),
            buckets_file=stored(key, written[key]),
            created=maker.now,
            replaces=replaces.commits,
            origins=replaces.origins,
            sequence=0,
            previous=(),
            receipt=None,
        )
        for file in draft.files:
            check()
            self.store.put_bytes(
                file.key,
                written.pop(file.key),
                storage_class=self._class_of(file),
                locked_from=maker.now,
            )
        return draft

    def _class_of(self, file: StoredFile) -> str | None:
        """Returns the storage class of a file. Only parts have one: files under `meta/` are small, and read
        often."""
        archive = self.policy.archive
        return archive.storage_class if archive is not None and isinstance(file, Part) else None

    def commit(self, copied: Copied, place: ChainPosition, check: Callable[[], None]) -> Manifest:
        """Writes the manifest: from now on the copy is part of the archive.

        `check` raises where the run must stop: a run that has lost its lease has to leave no manifest behind.
        Raises DamagedError where a file has gone since it was read back: others may have been committed, and
        deleted, meanwhile."""
        manifest = self.chain.sealed(copied.draft.model_copy(update=place._asdict()))
        versions: dict[str, str] = {}
        for file in manifest.files:
            found = self.store.head(file.key)
            if found is None or found.size != file.bytes:
                fault = "it was written and read back, and is now missing or has another size"
                raise DamagedError("part-missing", f"{self.store.url}/{file.key}", fault)
            versions |= {file.key: found.version} if found.version else {}
        self.versions = {manifest.commit: versions} if versions else {}
        check()
        self.chain.commit(manifest)
        self._recent.put(manifest, copied.batch)
        return manifest

    def load(self, manifest: Manifest) -> Batch:
        """Returns the documents of a commit: as its files in the store give them, or were proven to give them
        when this run committed it.

        Raises DamagedError where a file is missing, differs from the manifest or does not give the
        documents."""
        if (recent := self._recent.get(manifest)) is not None:
            return recent
        batch = unpack(*self._read_back(manifest))
        if batch.digest != manifest.documents_sha256:
            place = f"{self.store.url}/{manifest.buckets_file.key}"
            raise DamagedError("part-differs", place, "its commit does not contain the archived documents")
        self._recent.put(manifest, batch)
        return batch

    def rows(self, manifest: Manifest, asked: RowFilter) -> Iterator[Rows]:
        """Yields the rows of a commit that are asked for, from the parts alone that may hold them. Raises
        DamagedError where one of these is missing, or differs from the manifest."""
        values = manifest.archived_policy.value_names
        for part in manifest.parts:
            if part.touches(asked.start, asked.end):
                data = self._part(part)
                with decoding(self.store, part):
                    yield from read_rows(data, manifest.series_types, values, asked)

    def _part(self, part: Part) -> bytes:
        if (data := self._recent.part(part)) is None:
            data = fetch(self.store, part)
            self._recent.put_part(part, data)
        return data

    def holds(self, manifest: Manifest, batch: Batch) -> bool:
        """Returns whether the commit, as its files lie in the store, holds this very batch. Raises
        DamagedError where a file is missing, or differs from the manifest."""
        return manifest.documents_sha256 == batch.digest and gives(*self._read_back(manifest), batch)

    def _read_back(self, manifest: Manifest) -> tuple[Readings, list[PackedGroup]]:
        """Reads the files back as they lie in the store, whatever documents they give."""
        fields = manifest.archived_policy.value_names
        data = {file.key: fetch(self.store, file) for file in manifest.files}
        with decoding(self.store, manifest.buckets_file):
            read = [parquet.read_part(data[part.key], fields) for part in manifest.parts]
            groups = parquet.read_buckets(data[manifest.buckets_file.key])
        time = joined([times for times, _ in read], np.int64)
        values = [joined([columns[i] for _, columns in read], np.float64) for i in range(len(fields))]
        return Readings(time, values), groups

    def sizes(self) -> dict[str, int]:
        """Returns the bytes of each file under `data/` and `meta/buckets/`, as the store lists them."""
        prefixes = (f"{self.policy.name}/{it}" for it in ("data/", "meta/buckets/"))
        return {found.key: found.size for prefix in prefixes for found in self.store.list(prefix)}

    def see(self, manifest: Manifest, sizes: Mapping[str, int]) -> None:
        """Raises DamagedError where a file of a commit is missing, or of another size than its manifest says.
        `sizes`: what was listed."""
        for file in manifest.files:
            if sizes.get(file.key) != file.bytes:
                fetch(self.store, file)  # it may have been written since

    def has_files(self, manifest: Manifest) -> bool:
        """Returns whether any of a commit's files is there."""
        return any(self.store.head(file.key) is not None for file in manifest.files)

    def check_present(self, manifest: Manifest) -> None:
        """Raises DamagedError where the commit is gone: somebody else cleared the store since it was read."""
        if not self.is_there(manifest.name):
            self.miss(manifest.name)

    def drop(self, manifest: Manifest) -> None:
        """Takes a commit out. The manifest goes before its files: a crash leaves files of no commit."""
        self.chain.drop(manifest)
        self.store.delete([file.key for file in manifest.files])

    def set_aside(self, commit: str, batch: Batch) -> None:
        """Keeps buckets that are about to be taken out of a commit, as BSON, where no reader of the archive
        looks."""
        self.store.put_bytes(superseded_key(self.policy.name, commit), batch.main.data + batch.extra.data)

    def unlisted(self) -> Iterator[tuple[str, CommitName | None]]:
        """Yields the files under `data/` and `meta/buckets/` of no commit, and the commit they are named
        for."""
        files = self.sizes()
        yield from self.of_none(files, self.commits())  # after the files: one committed since counts

    def of_none(
        self, files: Iterable[str], commits: Iterable[Commit]
    ) -> Iterator[tuple[str, CommitName | None]]:
        """Yields the files that belong to none of these commits, and the commit they are named for."""
        names = {it.name for it in commits}
        for key in files:
            commit = commit_of_file(self.policy.name, key)
            if commit is None or commit.name not in names:
                yield key, commit

    def clear(
        self,
        fence: int,
        known: Callable[[set[str]], Mapping[str, Commit]],
        parts: Callable[[], Iterable[str]],
    ) -> bool:
        """Removes what runs under older leases wrote and never committed. Returns whether that was all.

        A newer holder's files carry a higher fence, so a run that lost its lease can't take them away.
        `known` tells which commits have a receipt: they were committed. `parts` are those that must be there:
        while one is missing, a file that looks left over may be it. Raises DamagedError."""
        found = [(key, commit) for key, commit in self.unlisted() if commit]
        left = [(key, commit.name) for key, commit in found if commit.fence < fence]
        for _, commit in sorted(known({name for _, name in left}).items()):
            self.miss(commit)
        if left:
            there = {found.key for found in self.store.list(f"{self.policy.name}/data/")}
            for key in sorted(set(parts()) - there):
                fault = (
                    f"the file is missing, and {left[0][0]} belongs to no commit: it may have been renamed"
                )
                raise DamagedError("part-missing", f"{self.store.url}/{key}", fault)
        self.store.delete([key for key, _ in left])
        return len(left) == len(found)
