"""The offline archive: buckets as Parquet in an object store.

The order, here and nowhere else: parts and buckets file are written; all are read back from where they
lie, and the documents rebuilt from them are compared byte for byte with what was read from MongoDB; then
the manifest is written. A crash before that leaves files that no manifest names: they are not part of
the archive, and the next run removes them.
"""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, NoReturn, Protocol

import numpy as np
import pyarrow as pa

from archivers.format import parquet
from archivers.format.chain import Chain, ChainPosition, unknown
from archivers.format.keys import Keys
from archivers.format.manifest import (
    Commit,
    CommitName,
    DamagedError,
    Manifest,
    Origin,
    Part,
    StoredFile,
    buckets_key,
    commit_name,
    commit_of_file,
    commits,
    day,
    day_number,
    manifest_key,
    owner_key,
    superseded_key,
)
from archivers.format.parts import stored, write_parts
from archivers.stores.base import AlreadyExists, Corrupt, NotFound, ObjectStore
from buckets.bson.raw import Batch
from buckets.columns import Series, joined
from buckets.decoding.decode import Lot
from buckets.fields.times import DAY_MS, as_date, as_ms
from buckets.packing.pack import PackedGroup, pack
from buckets.packing.unpack import Readings, gives, unpack
from config.errors import HaltedError
from config.policies import LAYOUT_KEYS, Policy


class Maker(NamedTuple):
    """Who archives: goes into names and manifests."""

    database: str
    fence: int
    now: datetime
    timeseries: dict[str, str] | None = None  # of a native time-series collection: what it is made with


class Replaced(NamedTuple):
    """What a new commit takes over: the commits, and where its buckets were archived first."""

    commits: tuple[str, ...] = ()
    origins: tuple[Origin, ...] = ()


NOTHING = Replaced()


class Copied(NamedTuple):
    """A copy in the store that gives the very documents, and is no commit yet."""

    draft: Manifest  # without its place in the chain
    batch: Batch  # these documents


class CommitIndex(Protocol):
    """What is known of the commits without a look at the store."""

    def seal(self, commit: str) -> str | None:
        """Returns the seal that a commit's manifest has to have, where that is known."""

    def knows(self, commit: Commit) -> bool:
        """Returns whether a commit is registered by now, or was once and has been dropped."""

    def within(self, start_ms: int, end_ms: int) -> list[Commit]:
        """Returns the registered commits that may hold something of [start, end)."""

    def span(self) -> tuple[int, int] | None:
        """Returns the first and the last UTC day, since 1970, of all of them; None where there are none."""

    def sequence(self) -> int:
        """Returns the number of the last registered commit in the chain: what the store holds from there on
        may be unregistered. 0 where none is."""

    def types(self, fields: Sequence[str]) -> dict[str, str] | None:
        """Returns the types of the columns of these series fields; None where that is not known."""


def _counting(manifests: Sequence[Manifest], commits: Iterable[Commit]) -> list[Manifest]:
    """Returns those of these commits without any that is not registered and replaces one that is: until the
    receipts have changed hands, they alone tell what is live."""
    registered = {it.name for it in commits if it.seal is not None}
    return [it for it in manifests if it.commit in registered or registered.isdisjoint(it.replaces)]


#: By policy: what was listed of an archive behind its registered commits.
Listed = dict[str, list[Commit]]


class OfflineArchive:
    """The commits of one policy in a store. Knows nothing of what is live.

    With an index of what is registered, the store is asked for what came after it alone, once."""

    def __init__(
        self,
        policy: Policy,
        store: ObjectStore,
        index: CommitIndex | None = None,
        keys: Keys | None = None,
        listed: Listed | None = None,
    ) -> None:
        """Without `keys` signatures are not looked at. `listed` is shared by those that need not list the
        store again."""
        self.policy = policy
        self.store = store
        self.index = index
        self.chain = Chain(store, policy.name, index.seal if index else unknown, keys)
        self._listed: Listed = {} if listed is None else listed
        self._types: dict[str, str] | None = None
        self._loaded: tuple[str, Batch] | None = None  # the last one: callers go by days, commits span some

    def commits(self) -> list[Commit]:
        """Returns all of them, by their numbers, as the store lists them."""
        return list(commits(self.store, self.policy.name))

    def manifest(self, commit: Commit) -> Manifest:
        """Raises NotFound, and DamagedError where it is not the one that was committed."""
        return self.chain.manifest(commit)

    @property
    def tail(self) -> list[Commit]:
        """Returns what the store holds from the last registered commit on, when this is first asked for. What
        was not registered then may have been since; nothing that it holds had been deleted by then."""
        name = self.policy.name
        if name not in self._listed:
            known = self.index.sequence() if self.index else 0
            self._listed[name] = list(commits(self.store, name, known))
        return self._listed[name]

    def list_anew(self) -> None:
        """Forget what was listed: it is no longer so."""
        self._listed.pop(self.policy.name, None)

    def at(self, index: CommitIndex) -> OfflineArchive:
        """Returns the same archive, with what was registered at another instant."""
        other = copy.copy(self)
        other.index = index
        return other

    def within(self, start_ms: int, end_ms: int) -> list[Commit]:
        """Returns the commits that may hold something of [start, end)."""
        known = self.index.within(start_ms, end_ms) if self.index else []
        names = {it.name for it in known}
        tail = (it for it in self.tail if it.name not in names and it.may_hold(start_ms, end_ms))
        return known + [it for it in tail if not self._is_known(it)]

    def _is_known(self, commit: Commit) -> bool:
        """Whether a commit of the tail is registered: what is, and is not among those of a range, holds
        nothing of it, or has been replaced."""
        return self.index is not None and self.index.knows(commit)

    def manifests(self, start_ms: int, end_ms: int, among: Iterable[Commit] | None = None) -> list[Manifest]:
        """What holds something of [start, end), without what another commit has taken over (a crash may
        leave both). `among` these commits, or all that there are."""
        there = self.within(start_ms, end_ms) if among is None else list(among)
        read = [self._standing(commit) for commit in there if commit.may_hold(start_ms, end_ms)]
        named = _counting([manifest for manifest in read if manifest is not None], there)
        found = [it for it in named if as_ms(it.first) < end_ms and as_ms(it.last) >= start_ms]
        replaced = {name for manifest in named for name in manifest.replaces}
        return [manifest for manifest in found if manifest.commit not in replaced]

    def _standing(self, commit: Commit) -> Manifest | None:
        """None for a commit that was not registered, and was dropped since it was listed. Raises DamagedError
        where the manifest of a registered one is gone."""
        try:
            return self.manifest(commit)
        except NotFound:
            if commit.seal is None:
                return None
            self.miss(commit)

    def earliest(self, at_or_after_ms: int) -> int | None:
        """Returns an instant at or after the argument, so that nothing archived lies between the two; None
        where nothing is later either. What is asked for doubles, until something is found."""
        at, width = at_or_after_ms, DAY_MS
        span: tuple[int, int] | None = None  # asked for where the first day holds nothing
        while True:
            end = (at // DAY_MS + 1) * DAY_MS + width - DAY_MS
            if (found := self._first_start(at, end)) is not None:
                return found
            span = span or self.span()
            if span is None or end >= span[1]:
                return None
            at, width = max(end, span[0]), 2 * width

    def _first_start(self, start_ms: int, end_ms: int) -> int | None:
        """As `earliest`, in [start, end): where a commit goes on later, another one may lie before that.
        Manifests that begin on later days than what was found are not read."""
        found = end_ms
        for commit in sorted(self.within(start_ms, end_ms), key=lambda it: it.first):
            if commit.first > day(found):
                break
            found = min([found, *self._starts(commit, start_ms)])
        return found if found < end_ms else None

    def _starts(self, commit: Commit, at_or_after_ms: int) -> list[int]:
        """Where the days of a commit begin, as far as they reach on."""
        manifest = self._standing(commit)
        parts = manifest.parts if manifest is not None else ()
        return [max(as_ms(it.first), at_or_after_ms) for it in parts if as_ms(it.last) >= at_or_after_ms]

    def span(self) -> tuple[int, int] | None:
        """Returns a range, in milliseconds, that holds all readings; None where nothing is archived."""
        known = self.index.span() if self.index else None
        days = [*(known or ()), *(day_number(it) for commit in self.tail for it in commit[1:3])]
        return (min(days) * DAY_MS, (max(days) + 1) * DAY_MS) if days else None

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

    def missing(self, registered: Callable[[], Iterable[Commit]]) -> list[Commit]:
        """Returns those of the registered commits that have no manifest, by their names. They are asked for
        again where some are missing: a run at work may have dropped them since."""
        missing = self._missing(registered())
        if not missing:
            return []
        still = self._missing(registered())
        return [still[name] for name in sorted(missing.keys() & still.keys())]

    def _missing(self, registered: Iterable[Commit]) -> dict[str, Commit]:
        wanted = {commit.name: commit for commit in registered}  # before the listing
        for commit in self.commits():
            wanted.pop(commit.name, None)
        return wanted

    def misfit(self, series: Series) -> tuple[str, object] | None:
        """A series field, and its value, that the columns of this archive can't hold."""
        types = self.known_types()
        return parquet.misfit(series, types) if types else None

    def known_types(self) -> dict[str, str]:
        """The types of the series columns, as the commits with these series fields have them: one archive
        is one table."""
        if self._types is None:
            fields = self.policy.series_names
            known = self.index.types(fields) if self.index else None
            self._types = known or self._types_of(self.tail, fields)
        return self._types

    def _types_of(self, among: Sequence[Commit], fields: Sequence[str]) -> dict[str, str]:
        for commit in reversed(among):
            known = self.manifest(commit).series_types
            if set(known) == set(fields):
                return {name: known[name] for name in fields}
        return {}

    def types_for(self, series: Sequence[Series]) -> dict[str, str]:
        """The types of the series columns of a commit that holds these: known ones, or these from now on."""
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
        """Write sound buckets, and verify what was written. Raises HaltedError where it isn't equal.

        Gives back what was decoded of the lot. Touches nothing but the store, so that a thread may do it.
        `check` raises where the run must stop: it is asked before each file, since one that comes late would
        lie beside what a later run has copied."""
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
            layout=policy.model_dump(mode="json", include=LAYOUT_KEYS, exclude_none=True),
            series_types=types,
            timeseries=maker.timeseries,
            buckets=len(expected),
            overflow_documents=len(expected.extra),
            readings=len(packed.rows.time),
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
            self.store.put_bytes(file.key, written.pop(file.key), storage_class=self._class_of(file))
        return draft

    def _class_of(self, file: StoredFile) -> str | None:
        """Parts only: what lies under `meta/` is small, and read often."""
        archive = self.policy.archive
        return archive.storage_class if archive is not None and isinstance(file, Part) else None

    def commit(self, copied: Copied, place: ChainPosition, check: Callable[[], None]) -> Manifest:
        """Write the manifest: from now on the copy is part of the archive.

        `check` raises where the run must stop: a run that has lost its lease has to leave no manifest behind.
        Raises DamagedError where a file has gone since it was read back: others may have been committed, and
        deleted, meanwhile.
        """
        manifest = self.chain.sealed(copied.draft.model_copy(update=place._asdict()))
        for file in manifest.files:
            found = self.store.head(file.key)
            if found is None or found.size != file.bytes:
                fault = "it was written and read back, and is gone by now, or of another size"
                raise DamagedError("part-missing", f"{self.store.url}/{file.key}", fault)
        check()
        self.chain.commit(manifest)
        self._loaded = (manifest.documents_sha256 + manifest.commit, copied.batch)
        return manifest

    def load(self, manifest: Manifest) -> Batch:
        """The documents of a commit, which its files give as they lie in the store, or were proven to give
        when this run committed it.

        Raises DamagedError where a file is missing, differs from the manifest or does not give the documents.
        """
        if self._loaded is not None and self._loaded[0] == manifest.documents_sha256 + manifest.commit:
            return self._loaded[1]
        batch = unpack(*self._read_back(manifest))
        if batch.digest != manifest.documents_sha256:
            place = f"{self.store.url}/{manifest.buckets_file.key}"
            raise DamagedError("part-differs", place, "its commit does not give the documents archived")
        self._loaded = (manifest.documents_sha256 + manifest.commit, batch)
        return batch

    def holds(self, manifest: Manifest, batch: Batch) -> bool:
        """Whether this very batch is what the manifest tells of, and what its files give as they lie in the
        store. Raises DamagedError where a file is missing, or differs from the manifest."""
        return manifest.documents_sha256 == batch.digest and gives(*self._read_back(manifest), batch)

    def _read_back(self, manifest: Manifest) -> tuple[Readings, list[PackedGroup]]:
        """From the files as they lie in the store, whatever documents they give."""
        fields = manifest.archived_policy.value_names
        data = {file.key: self._fetch(file) for file in manifest.files}
        try:
            read = [parquet.read_part(data[part.key], fields) for part in manifest.parts]
            groups = parquet.read_buckets(data[manifest.buckets_file.key])
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, MemoryError) or getattr(error, "errno", None):
                raise  # this machine's fault, and no damage
            place = f"{self.store.url}/{manifest.buckets_file.key}"
            raise DamagedError("part-differs", place, f"this or a part of its commit: {error}") from None
        time = joined([times for times, _ in read], np.int64)
        values = [joined([columns[i] for _, columns in read], np.float64) for i in range(len(fields))]
        return Readings(time, values), groups

    def _fetch(self, file: StoredFile) -> bytes:
        try:
            data = self.store.get_bytes(file.key, file.bytes)
        except NotFound:
            place = f"{self.store.url}/{file.key}"
            raise DamagedError(
                "part-missing", place, "the file is missing, though a manifest names it"
            ) from None
        except Corrupt as error:
            raise DamagedError("part-differs", f"{self.store.url}/{file.key}", error.reason) from None
        found = stored(file.key, data)
        if (found.bytes, found.sha256) != (file.bytes, file.sha256):
            raise DamagedError(
                "part-differs",
                f"{self.store.url}/{file.key}",
                f"the file has {found.bytes} bytes with SHA-256 {found.sha256[:16]}…, its manifest says "
                f"{file.bytes} bytes with {file.sha256[:16]}…",
            )
        return data

    def has_files(self, manifest: Manifest) -> bool:
        """Whether any of a commit's files is there."""
        return any(self.store.head(file.key) is not None for file in manifest.files)

    def check_present(self, manifest: Manifest) -> None:
        """Raise DamagedError where the commit is gone: somebody else cleared the store since it was read."""
        if not self.is_there(manifest.name):
            self.miss(manifest.name)

    def is_there(self, commit: Commit) -> bool:
        """Returns whether a commit's manifest is."""
        return self.store.head(manifest_key(self.policy.name, commit.sequence, commit.name)) is not None

    def drop(self, manifest: Manifest) -> None:
        """Take a commit out. The manifest goes before its files: a crash leaves files of no commit."""
        self.chain.drop(manifest)
        self.store.delete([file.key for file in manifest.files])

    def set_aside(self, commit: str, batch: Batch) -> None:
        """Keep what is about to be taken out of a commit, as BSON, where no reader of the archive looks."""
        self.store.put_bytes(superseded_key(self.policy.name, commit), batch.main.data + batch.extra.data)

    def unlisted(self) -> Iterator[tuple[str, CommitName | None]]:
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
        self,
        fence: int,
        known: Callable[[set[str]], Mapping[str, Commit]],
        parts: Callable[[], Iterable[str]],
    ) -> None:
        """Remove what runs under older leases wrote and never committed.

        A newer holder's files carry a higher fence, so a run that lost its lease can't take them away.
        `known` tells which commits have a receipt: theirs were committed. `parts` are those that must be
        there: while one is missing, what looks left over may be it. Raises DamagedError.
        """
        left = [(key, commit.name) for key, commit in self.unlisted() if commit and commit.fence < fence]
        for _, commit in sorted(known({name for _, name in left}).items()):
            self.miss(commit)
        if left:
            there = {found.key for found in self.store.list(f"{self.policy.name}/data/")}
            for key in sorted(set(parts()) - there):
                fault = f"the file is missing, and {left[0][0]} is of no commit: it may have been renamed"
                raise DamagedError("part-missing", f"{self.store.url}/{key}", fault)
        self.store.delete([key for key, _ in left])

    def miss(self, commit: Commit) -> NoReturn:
        """Raises DamagedError for a commit whose manifest has gone."""
        place = f"{self.store.url}/{manifest_key(self.policy.name, commit.sequence, commit.name)}"
        raise DamagedError("part-missing", place, "the manifest is missing, though a receipt names it")
