"""The offline archive: buckets as Parquet in an object store.

This is the one place that decides the order. The parts and the buckets file of a section are written. All are
read back from where they lie, and the documents rebuilt from them are compared byte for byte with those read
from MongoDB. Once all sections are there, the manifest is written. A crash before that leaves files that no
manifest names: they are not part of the archive, and the next run removes them.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from threading import Lock
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from bucketwise.archivers import decisions
from bucketwise.archivers.format.chain import ArchivedCommits, ChainPosition
from bucketwise.archivers.format.manifest import DamagedError, Manifest, Part, Section, StoredFile
from bucketwise.archivers.format.names import (
    Commit,
    CommitName,
    commit_of_file,
    superseded_key,
)
from bucketwise.archivers.format.series import RowFilter, misfit, series_types
from bucketwise.archivers.format.states import SectionStates, states_of
from bucketwise.archivers.format.writing import (
    NOTHING,
    ColdCommit,
    CommitWriter,
    Maker,
    Replaced,
    Written,
    check_file,
    check_readable,
    damage_at,
    decoding,
    fetch,
    thawable,
)
from bucketwise.archivers.stores.base import Cold, check_read_back
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.columns import Series, joined
from bucketwise.buckets.decoding.decode import BucketSet
from bucketwise.buckets.packing import PackedGroup, Readings, Rows, ids_of, unpack, unpacks_to
from bucketwise.buckets.phases import phase
from bucketwise.config.errors import HaltedError
from bucketwise.config.policies import Policy

#: Bytes of buckets that are cached, besides those of the last section.
_MOST_BUCKETS = 8_000_000
#: Bytes of parts that are cached.
_MOST_PARTS = 12 << 20
#: Bytes that each entry takes besides its own, about.
_OVERHEAD = 2_000

T = TypeVar("T")


class Cache(Generic[T]):
    """Holds the last thing that was put or asked for, and before it as many as `most` bytes allow. What one
    costs doesn't depend on how many there are."""

    def __init__(self, most: int, size_of: Callable[[T], int]) -> None:
        self._most, self._size_of = most, size_of
        self._held: OrderedDict[str, T] = OrderedDict()
        self._size = 0
        self._lock = Lock()  # a run copies in two threads

    def get(self, key: str) -> T | None:
        """Returns what was put under a key; None where it is not held."""
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
            return self._held.get(key)

    def put(self, key: str, value: T) -> None:
        """Holds a value, and drops the oldest others beyond the limit."""
        with self._lock:
            if (old := self._held.pop(key, None)) is not None:
                self._size -= self._cost(old)
            while self._size > self._most:
                self._size -= self._cost(self._held.popitem(last=False)[1])
            self._held[key] = value
            self._size += self._cost(value)

    def _cost(self, value: T) -> int:
        return _OVERHEAD + self._size_of(value)


class Recent:
    """Caches the last section of a commit that was read, and small ones before it: callers go by days, and
    commits span some. Also caches the files of parts of which rows were read, since several commits may
    overlap in time."""

    def __init__(self) -> None:
        self.parts = Cache[bytes](_MOST_PARTS, len)  # by their SHA-256
        self.sections = Cache[Batch](_MOST_BUCKETS, lambda it: it.size)  # by `section_key`


def section_key(section: Section) -> str:
    """Returns a section's key in the cache. The key of its buckets file names the commit and the section."""
    return f"{section.buckets_file.key} {section.documents_sha256}"


#: Positions of buckets in a commit, ascending.
Positions = NDArray[np.int64]


class Copied(NamedTuple):
    """A copy in the store that gives the very documents, and is no commit yet."""

    draft: Manifest  # without its place in the chain
    batch: Batch | None  # these documents; None where it has several sections: they may not fit into memory


class SectionBuckets(NamedTuple):
    """Buckets of one section of a commit, and their positions in the commit."""

    positions: Positions
    batch: Batch


def refuse_cold(error: ColdCommit, _section: int) -> None:
    """Raises the error: parts of the section have to be thawed."""
    raise error


class OfflineArchive(ArchivedCommits):
    """The archive of one policy: its commits, what they hold, and how another one is made. Does not know
    which buckets are live."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._recent = Recent()  # shared by the archive at other instants
        self.versions: dict[str, dict[str, str]] = {}  # in the last commit: key of each file -> version

    def misfit(self, series: Series) -> tuple[str, object] | None:
        """Returns a series field, and its value, that the columns of this archive can't hold; None where they
        can."""
        types = self.known_types()
        return misfit(series, types) if types else None

    def types_for(self, series: Sequence[Series]) -> dict[str, str]:
        """Returns the types of the series columns of a commit with these series: known ones, or these from
        now on."""
        if not self.known_types():
            self._types = series_types(series, self.policy.series_names)
        return self.known_types()

    def copy(
        self,
        bucket_sets: Iterable[BucketSet],
        types: dict[str, str],
        maker: Maker,
        check: Callable[[], None],
        replaces: Replaced = NOTHING,
    ) -> Copied:
        """Writes sound buckets, each set (at least one) as a section, and verifies what was written.
        Raises HaltedError where it isn't equal.

        Takes a set once the one before is written and verified. Touches nothing but the store, so that a
        thread may do it. `check`: see `CommitWriter`."""
        writer = CommitWriter(self.store, types, maker, check, replaces, self.policy)
        for buckets in bucket_sets:
            written, batch = writer.write(buckets), buckets.batch
            with phase("compare"):
                is_equal = unpacks_to(*self._read_back(written, buckets.policy), batch)
                if written.states_file is not None:
                    fetch(self.store, written.states_file)
                for file in written.files:
                    with damage_at(f"{self.store.url}/{file.key}"):
                        check_read_back(self.store, file.key)
            if not is_equal:
                raise HaltedError(
                    f"policy {self.policy.name}: commit {writer.name}, read back from {self.store.url}, does "
                    "not contain the documents that were exported. Nothing was deleted. Look at the store, "
                    "then run again"
                )
        draft = writer.draft(buckets)
        return Copied(draft, batch if len(draft.sections) == 1 else None)

    def commit(self, copied: Copied, place: ChainPosition, begin: Callable[[Manifest], None]) -> Manifest:
        """Writes the manifest: from now on the copy is part of the archive.

        `begin` records that it is about to be written, and raises where the run must stop: a run that has
        lost its lease has to leave no manifest behind.
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
        begin(manifest)
        self.chain.commit(manifest)
        if copied.batch is not None:
            self._recent.sections.put(section_key(manifest.sections[0]), copied.batch)
        return manifest

    def sections(
        self,
        manifest: Manifest,
        which: Sequence[bool] | None = None,
        on_cold: Callable[[ColdCommit, int], None] = refuse_cold,
    ) -> Iterator[SectionBuckets]:
        """Yields the documents of a commit, one section in memory at a time: as its files in the store give
        them, or were proven to give them when this run committed it. `which`: whether to read each section.

        Raises DamagedError where a file is missing, differs from the manifest or does not give the
        documents, unless `on_damage` leaves that section out; and ColdCommit where one has to be thawed,
        unless `on_cold` does."""
        for number in range(len(manifest.sections)):
            if which is None or which[number]:
                yield from self._section(manifest, number, on_cold)

    def _section(
        self, manifest: Manifest, number: int, on_cold: Callable[[ColdCommit, int], None]
    ) -> Iterator[SectionBuckets]:
        """Yields the documents of one section, as `sections` does."""
        try:
            batch = self.load(manifest, number)
        except ColdCommit as error:
            on_cold(error, number)
        except DamagedError as error:
            self.on_damage(error, manifest.commit, number)
        else:
            yield SectionBuckets(np.arange(*manifest.edges[number : number + 2]), batch)

    def buckets_at(self, manifest: Manifest, positions: Positions) -> Iterator[SectionBuckets]:
        """Yields the buckets at these ascending positions of a commit, as `sections` does; only sections that
        hold any are read."""
        for number, (start, end) in enumerate(itertools.pairwise(manifest.edges)):
            low, high = np.searchsorted(positions, [start, end])
            if low < high:
                here = positions[low:high]
                yield SectionBuckets(here, self.load(manifest, number).take(here - start))

    def check(self, manifest: Manifest) -> None:
        """Reads all sections with their states, which have to be those of their documents, and raises as
        `sections` does."""
        for number in range(len(manifest.sections)):
            for held in self._section(manifest, number, refuse_cold):
                self._check_states(manifest, number, held.batch)

    def _check_states(self, manifest: Manifest, number: int, batch: Batch) -> None:
        """Raises DamagedError where the states of a section can't be read, or are others than today's policy
        makes of its documents, though made with the same settings."""
        states, file = self.states(manifest, number), manifest.sections[number].states_file
        if states is None or file is None or not states.are_made_with(self.policy):
            return
        if states_of(self.policy, BucketSet(batch, self.policy)) not in (None, states):
            place = f"{self.store.url}/{file.key}"
            raise DamagedError("part-differs", place, "its states are not those of the archived documents")

    def states(self, manifest: Manifest, number: int) -> SectionStates | None:
        """Returns what the states file of the section with this number holds; None where there is none.
        Raises DamagedError."""
        from bucketwise.archivers.format import parquet  # it brings Arrow

        if (file := manifest.sections[number].states_file) is None:
            return None
        with thawable(self.policy, manifest):
            data = fetch(self.store, file)
        with decoding(self.store, file):
            return parquet.read_states(data, self.store.file_keys(file.key))

    def load(self, manifest: Manifest, number: int) -> Batch:
        """Returns the documents of the section with this number, from 0; see `sections`."""
        section = manifest.sections[number]
        key = section_key(section)
        if (recent := self._recent.sections.get(key)) is not None:
            return recent
        with thawable(self.policy, manifest):
            read_back = self._read_back(_files(manifest, number), manifest.archived_policy)
        with decoding(self.store, section.buckets_file):
            batch = unpack(*read_back, section.documents_bytes)
        if batch.digest != section.documents_sha256:
            place = f"{self.store.url}/{section.buckets_file.key}"
            raise DamagedError("part-differs", place, "its commit does not contain the archived documents")
        self._recent.sections.put(key, batch)
        return batch

    def ids(self, manifest: Manifest, number: int) -> Sequence[bytes] | None:
        """Returns the `_id`s in the section with this number, as its buckets file alone tells them; None
        where it does not. Raises DamagedError."""
        section, fields = manifest.sections[number], len(manifest.archived_policy.value_names)
        with thawable(self.policy, manifest):
            groups = self._groups(section.buckets_file, section.readings, fields)
        with decoding(self.store, section.buckets_file):
            return ids_of(groups, section.readings, fields, section.documents_bytes)

    def rows(self, manifest: Manifest, parts: Iterable[Part], row_filter: RowFilter) -> Iterator[Rows]:
        """Yields the rows that are asked for in parts of a commit. Raises DamagedError where one of these is
        missing, or differs from the manifest."""
        from bucketwise.archivers.format import parquet  # it brings Arrow

        values = manifest.archived_policy.value_names
        for part in parts:
            with thawable(self.policy, manifest):
                data = self._part(part)
            with decoding(self.store, part):
                keys = self.store.file_keys(part.key)
                yield from parquet.read_rows(data, manifest.series_types, values, row_filter, keys)

    def _part(self, part: Part) -> bytes:
        if (data := self._recent.parts.get(part.sha256)) is None:
            data = fetch(self.store, part)
            self._recent.parts.put(part.sha256, data)
        return data

    def holds(self, manifest: Manifest, buckets: BucketSet) -> bool:
        """Returns whether a commit of one section, read back from the store, holds exactly these buckets.
        Raises DamagedError where a file is missing, or differs from the manifest."""
        batch, states = buckets.batch, self.states(manifest, 0)
        with thawable(self.policy, manifest):
            read_back = self._read_back(_files(manifest, 0), manifest.archived_policy)
        is_equal = manifest.documents_sha256 == batch.digest and unpacks_to(*read_back, batch)
        return is_equal and (states is None or states == states_of(self.policy, buckets))

    def _read_back(self, section: Written, policy: Policy) -> tuple[Readings, list[PackedGroup]]:
        """Reads the files of a section back as they lie in the store, whatever documents they give."""
        from bucketwise.archivers.format import parquet  # it brings Arrow

        fields = policy.value_names
        data = {file.key: fetch(self.store, file) for file in section.parts}
        with decoding(self.store, section.buckets_file):
            keys_of = self.store.file_keys
            read = [parquet.read_part(data[it.key], fields, keys_of(it.key)) for it in section.parts]
        groups = self._groups(section.buckets_file, sum(len(times) for times, _ in read), len(fields))
        time = joined([times for times, _ in read], np.int64)
        values = [joined([columns[i] for _, columns in read], np.float64) for i in range(len(fields))]
        return Readings(time, values), groups

    def _groups(self, file: StoredFile, rows: int, fields: int) -> list[PackedGroup]:
        """Reads a buckets file, of buckets with so many rows and value fields, as it lies in the store."""
        from bucketwise.archivers.format import parquet  # it brings Arrow

        data = fetch(self.store, file)
        with decoding(self.store, file):
            groups = parquet.read_buckets(data, self.store.file_keys(file.key))
            for group in groups:
                group.check(rows, fields)
        return groups

    def sizes(self) -> dict[str, int]:
        """Returns the bytes of each file under `data/` and `meta/buckets/`, as the store lists them."""
        prefixes = (f"{self.policy.identity}/{it}" for it in ("data/", "meta/buckets/"))
        return {found.key: found.size for prefix in prefixes for found in self.store.list(prefix)}

    def sizes_among(self, commits: Sequence[Commit]) -> dict[str, int]:
        """Returns the bytes of the files of some commits, and of what lies among them by day, as the store
        lists them."""
        if not commits:
            return {}
        first, last = min(it.first for it in commits), max(it.last for it in commits)
        begins = max(it.first for it in commits)
        sizes: dict[str, int] = {}
        for folder, end in (("data/dt=", last), ("meta/buckets/", begins)):
            prefix = f"{self.policy.identity}/{folder}"
            for found in self.store.list(prefix, f"{prefix}{first}"):
                if found.key[len(prefix) :][: len(end)] > end:
                    break
                sizes[found.key] = found.size
        return sizes

    def check_sizes(self, manifest: Manifest, sizes: Mapping[str, int]) -> None:
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
            self.raise_missing(manifest.name)

    def check_stored(self, manifest: Manifest, positions: Positions | None = None) -> None:
        """Raises DamagedError where a file that gives the buckets at these ascending positions of a commit
        (None: any) is missing, or not what was put there. Asks the store, whatever this run has read."""
        for number, (start, end) in enumerate(itertools.pairwise(manifest.edges)):
            low, high = (0, 1) if positions is None else np.searchsorted(positions, [start, end])
            if low < high:
                self.check_section(manifest, number)

    def check_section(self, manifest: Manifest, number: int) -> None:
        """Checks the files of one section, as `check_stored` does."""
        for file in manifest.files_of(number):
            check_file(self.store, file)

    def damage_unread(self, manifest: Manifest) -> Iterator[DamagedError]:
        """Yields an error for each file of a commit that is missing, or not what was put there, as far as the
        store tells of those that have to be thawed."""
        for file in manifest.files:
            try:
                with damage_at(f"{self.store.url}/{file.key}"), suppress(Cold):
                    self.store.check(file.key, file.bytes, file.sha256)
            except DamagedError as error:
                yield error

    def check_readable(self, manifest: Manifest, number: int) -> None:
        """Raises DamagedError where a file of a section can't be read as it was put there, from a copy of the
        store neither."""
        section = _files(manifest, number)
        for file in (*section.parts, section.buckets_file):
            check_readable(self.store, file)

    def drop(self, manifest: Manifest) -> None:
        """Removes a commit. Its manifest is moved first, so that a crash leaves files of no commit, never a
        commit without files."""
        self.chain.drop(manifest)
        self.store.delete([file.key for file in manifest.files])

    def set_aside(self, commit: str, section: int, batch: Batch) -> None:
        """Keeps buckets that are about to be removed from a section of a commit, as BSON, under a key that no
        reader of the archive reads."""
        key = superseded_key(self.policy.identity, commit, section)
        self.store.put_bytes(key, batch.main.data + batch.extra.data)

    def unlisted(self) -> Iterator[tuple[str, CommitName | None]]:
        """Yields the files under `data/` and `meta/buckets/` of no commit, and the commit they are named
        for."""
        files = self.sizes()
        yield from self.files_outside(files, self.commits())  # after the files: one committed since counts

    def files_outside(
        self, files: Iterable[str], commits: Iterable[Commit]
    ) -> Iterator[tuple[str, CommitName | None]]:
        """Yields the files that belong to none of these commits, and the commit they are named for."""
        names = {it.name for it in commits}
        for key in files:
            commit = commit_of_file(self.policy.identity, key)
            if commit is None or commit.name not in names:
                yield key, commit

    def foreign(
        self, keys: Iterable[str], own: Callable[[set[int]], Collection[int]]
    ) -> dict[str, DamagedError]:
        """Returns an error for each of these files of no commit that no run has left. `own`: see `clear`."""
        named = {key: commit_of_file(self.policy.identity, key) for key in keys}
        fences = own({it.fence for it in named.values() if it is not None}) if named else ()
        foreign = (key for key, it in named.items() if it is None or it.fence not in fences)
        return {key: foreign_file(f"{self.store.url}/{key}") for key in foreign}

    def clear(
        self,
        fence: int,
        known: Callable[[set[str]], Mapping[str, Commit]],
        parts: Callable[[], Iterable[str]],
        own: Callable[[set[int]], Collection[int]],
    ) -> bool:
        """Removes what runs under older leases wrote and never committed. Returns whether that was all.

        A newer holder's files carry a higher fence, so a run that lost its lease can't take them away.
        `known` tells which commits have a receipt: they were committed. `parts` are the keys that must be
        there: while one is missing, a file that seems left over may be that part, renamed. `own` are those of
        some fences under which runs of this database were. Raises DamagedError."""
        found = [(key, commit) for key, commit in self.unlisted() if commit]
        names = {key: commit.name for key, commit in found}
        left = decisions.left_over(((key, commit.fence) for key, commit in found), fence)
        for _, commit in sorted(known({names[key] for key in left}).items()):
            self.raise_missing(commit)
        if left:
            there = {found.key for found in self.store.list(f"{self.policy.identity}/data/")}
            for key in sorted(set(parts()) - there):
                fault = f"the file is missing, and {left[0]} belongs to no commit: it may have been renamed"
                raise DamagedError("part-missing", f"{self.store.url}/{key}", fault)
        for error in self.foreign(left, own).values():
            raise error
        self.store.delete(left)
        return len(left) == len(found)


def foreign_file(place: str) -> DamagedError:
    """Returns the error for a file of no commit that no run of this database has left there."""
    what = "no commit names this file, and no run of this database has left it there"
    remedy = "It is not used. Find out who put it there, and move it away"
    return DamagedError("file-foreign", place, what, remedy)


def _files(manifest: Manifest, section: int) -> Written:
    return Written(manifest.parts_of(section), manifest.sections[section].buckets_file)
