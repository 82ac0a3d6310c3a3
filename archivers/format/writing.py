"""Writes the files of a commit, for each section its parts, then its buckets file; and opens its parts."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from bucketwise.archivers.format.manifest import DamagedError, Manifest, Origin, Part, Section, StoredFile
from bucketwise.archivers.format.names import buckets_key, commit_name, day, part_key, states_key
from bucketwise.archivers.format.series import HeldSeries, are_exact
from bucketwise.archivers.format.states import states_of
from bucketwise.archivers.stores.base import Cold, Corrupt, FileKeys, NotFound, ObjectStore
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.decoding.decode import BucketSet
from bucketwise.buckets.fields.times import DAY_MS, as_date, as_ms, as_text, later
from bucketwise.buckets.packing import MalformedError, Packed, pack
from bucketwise.buckets.phases import phase
from bucketwise.config.models import layout_of
from bucketwise.config.policies import Policy


def stored(key: str, data: bytes) -> StoredFile:
    """Returns the entry of a manifest for a file."""
    return StoredFile(key=key, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())


@phase("read_back")
def fetch(store: ObjectStore, file: StoredFile) -> bytes:
    """Returns the bytes of a file. Raises DamagedError where it is missing, or not as its manifest says."""
    place = f"{store.url}/{file.key}"
    with damage_at(place):
        data = store.get_sound(file.key, partial(_is_whole, file), file.bytes)
    found = stored(file.key, data)
    if (found.bytes, found.sha256) != (file.bytes, file.sha256):
        raise DamagedError(
            "part-differs",
            place,
            f"the file has {found.bytes} bytes with SHA-256 {found.sha256[:16]}…, its manifest says "
            f"{file.bytes} bytes with {file.sha256[:16]}…",
        )
    return data


def _is_whole(file: StoredFile, data: bytes) -> bool:
    return len(data) == file.bytes and hashlib.sha256(data).hexdigest() == file.sha256


def check_file(store: ObjectStore, file: StoredFile) -> None:
    """Raises DamagedError as `fetch` does. Reads the file only where the store can't tell."""
    with damage_at(f"{store.url}/{file.key}"):
        store.check(file.key, file.bytes, file.sha256)


def check_readable(store: ObjectStore, file: StoredFile) -> None:
    """Raises DamagedError where neither the store nor a copy of it has a file as it was put there."""
    try:
        check_file(store, file)
    except DamagedError as error:
        try:
            fetch(store, file)
        except DamagedError:
            raise error from None


@contextmanager
def damage_at(place: str) -> Iterator[None]:
    """Raises DamagedError where the store does not have a file as it was put there."""
    try:
        yield
    except NotFound:
        raise DamagedError("part-missing", place, "the file is missing, though a manifest names it") from None
    except Corrupt as error:
        raise DamagedError("part-differs", place, error.reason) from None


_DAY = timedelta(days=1)


class ColdCommit(Cold):
    """Parts of a commit have to be thawed before they can be read."""

    def __init__(self, error: Cold, policy: str, manifest: Manifest) -> None:
        self.manifest = manifest
        remedy = f"Thaw it, then run again: `{_thaw(policy, manifest)}`."
        what = f"commit {manifest.commit}: {error.reason}"
        super().__init__(error.operation, error.place, what, remedy)


class UnerasedCommit(Cold):
    """A commit may hold what was erased: it could not be read then. No summary is made of it before."""

    def __init__(
        self, place: str, policy: str, manifest: Manifest, erasures: Sequence[Mapping[str, Any]]
    ) -> None:
        """`erasures`: their records in the commit's receipt."""
        them = ", ".join(f"{it['reason']!r} of {as_text(it['at'])}" for it in erasures)
        what = f"it may hold what was erased and could not be read then ({them})"
        remedy = (
            f"Thaw it, erase again with the same --series and range, then run: `{_thaw(policy, manifest)}`."
        )
        super().__init__("read", place, what, remedy)


def _thaw(policy: str, manifest: Manifest) -> str:
    """Returns the command that thaws a commit."""
    days = f"--since {manifest.first:%Y-%m-%d} --until {later(manifest.last, _DAY):%Y-%m-%d}"
    return f"bucketwise thaw -p {policy} {days}"


@contextmanager
def thawable(policy: Policy, manifest: Manifest) -> Iterator[None]:
    """Raises ColdCommit where something of a commit has to be thawed: it says how."""
    try:
        yield
    except ColdCommit:
        raise
    except Cold as error:
        raise ColdCommit(error, policy.name, manifest) from None


@contextmanager
def decoding(store: ObjectStore, file: StoredFile) -> Iterator[None]:
    """Raises DamagedError where files of a commit can't be decoded, and names this one."""
    from pyarrow import ArrowException

    try:
        yield
    except Corrupt as error:
        raise DamagedError("part-differs", error.place, error.reason) from None
    except (ArrowException, MalformedError, OSError, UnicodeDecodeError) as error:
        if _is_short_of_memory(error) or getattr(error, "errno", None):
            raise  # a fault of this machine, not damage
        place = f"{store.url}/{file.key}"
        raise DamagedError("part-differs", place, f"this or a part of its commit: {error}") from None


#: More bytes than any file of a commit needs at once.
_MOST_ASKED = 1 << 36
_ASKED = re.compile(r"of size (\d+)")


def _is_short_of_memory(error: BaseException) -> bool:
    """Returns whether this machine lacks memory that a file may well need. The header of a damaged one may
    ask for terabytes."""
    asked = _ASKED.search(str(error))
    return isinstance(error, MemoryError) and not (asked and int(asked[1]) > _MOST_ASKED)


class Maker(NamedTuple):
    """The run that archives, as names and manifests have it: its database, fence and time."""

    database: str
    fence: int
    now: datetime
    timeseries: dict[str, str] | None = None  # options of a native time-series collection


class Replaced(NamedTuple):
    """The commits that a new one takes over, and where its buckets were archived first. `span`: the time
    that they cover, in milliseconds, the last one included; it names a commit of which not all is known when
    its first file is written. None: such a commit has one section. `versions`: the SHA-256 of each file that
    keeps buckets which have left these commits."""

    commits: tuple[str, ...] = ()
    origins: tuple[Origin, ...] = ()
    span: tuple[int, int] | None = None
    versions: tuple[str, ...] = ()

    @classmethod
    def by_sections(cls, manifests: Sequence[Manifest], origins: Iterable[Origin]) -> Self:
        """Returns the replacement of these commits by one of any number of sections."""
        span = min(as_ms(it.first) for it in manifests), max(as_ms(it.last) for it in manifests)
        return cls(tuple(it.commit for it in manifests), tuple(origins), span)


NOTHING = Replaced()


class Written(NamedTuple):
    """The files of a section."""

    parts: Sequence[Part]
    buckets_file: StoredFile
    states_file: StoredFile | None = None

    @property
    def files(self) -> list[StoredFile]:
        """Returns all of them."""
        return [*self.parts, self.buckets_file, *filter(None, [self.states_file])]


@dataclass
class CommitWriter:
    """Writes one commit, but for its manifest. `check` raises where the run must stop: it is called before
    each file, since a file of a run that has lost its lease would be left next to those of a later run."""

    store: ObjectStore
    types: dict[str, str]  # of the series columns
    maker: Maker
    check: Callable[[], None]
    replaces: Replaced
    policy: Policy  # as it is today: it says where parts go
    name: str = ""  # known once the first section is packed
    parts: list[Part] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)

    @phase("encode")
    def write(self, buckets: BucketSet) -> Written:
        """Writes buckets as the next section. Frees what was decoded of them."""
        from bucketwise.archivers.format import parquet  # it brings Arrow

        states, batch = states_of(self.policy, buckets), buckets.batch
        packed, policy = pack(buckets), buckets.policy
        ends = buckets.decoded.ends_of_empty()
        buckets.forget()
        self.name = self.name or self._named(packed, batch)
        number, written = len(self.sections), dict[str, bytes]()
        key_of = partial(part_key, policy.identity, commit=self.name, section=number)
        parts = list(write_parts(packed, key_of, self.types, written, self.store.file_keys))
        key, of_states = (it(policy.identity, self.name, number) for it in (buckets_key, states_key))
        groups = parquet.write_buckets(packed.groups, self.store.file_keys(key))
        buckets_file = stored(key, written.setdefault(key, groups))
        states_file = None
        if states is not None:
            data = parquet.write_states(states, self.store.file_keys(of_states))
            states_file = stored(of_states, written.setdefault(of_states, data))
        series = packed.rows.series
        section = Section(
            parts=len(parts),
            buckets=len(batch),
            overflow_documents=len(batch.extra),
            readings=len(packed.rows.time),
            first=as_date(packed.first),
            last=as_date(packed.last),
            series=HeldSeries.of(series, policy.series_names, is_exact=are_exact(series, self.types)),
            documents_bytes=batch.size,
            documents_sha256=batch.digest,
            buckets_file=buckets_file,
            states_file=states_file,
            empty_days=tuple(sorted(_days(ends) - {it.dt for it in parts})),
        )
        for file in (*parts, buckets_file, *([states_file] if states_file else [])):
            self.check()
            with phase("put"):
                self.store.put_bytes(
                    file.key,
                    written.pop(file.key),
                    storage_class=self.storage_class if isinstance(file, Part) else None,
                    locked_from=self.maker.now,
                )
        self.parts += parts
        self.sections.append(section)
        return Written(parts, buckets_file, states_file)

    @property
    def storage_class(self) -> str | None:
        """Returns the class of parts: files under `meta/` are small, and read often."""
        return self.policy.archive.first_class if self.policy.archive else None

    def _named(self, packed: Packed, batch: Batch) -> str:
        first, last, digest = packed.first, packed.last, batch.digest
        if self.replaces.span is not None:
            first, last = self.replaces.span
            identity = [*self.replaces.commits, self.maker.now.isoformat(), digest]  # fences may come again
            digest = hashlib.sha256(json.dumps(identity).encode()).hexdigest()
        return commit_name(first, last, self.maker.fence, digest)

    def draft(self, buckets: BucketSet) -> Manifest:
        """Returns the manifest of what was written, without its place in the chain. `buckets`: one of its
        sections."""
        return Manifest(
            policy=buckets.policy.identity,
            commit=self.name,
            fence=self.maker.fence,
            database=self.maker.database,
            collection=buckets.policy.collection,
            layout=layout_of(buckets.policy),
            series_types=self.types,
            timeseries=self.maker.timeseries,
            first=min(it.first for it in self.sections),
            last=max(it.last for it in self.sections),
            parts=tuple(self.parts),
            sections=tuple(self.sections),
            created=self.maker.now,
            replaces=self.replaces.commits,
            origins=self.replaces.origins,
            versions=self.replaces.versions,
            sequence=0,
            previous=(),
            receipt=None,
        )


def write_parts(
    packed: Packed,
    key_of: Callable[[str], str],
    types: dict[str, str],
    written: dict[str, bytes],
    keys_of: Callable[[str], FileKeys | None],
) -> Iterator[Part]:
    """Yields a part for each UTC day, under the key of that day; into `written`: what its file holds, by its
    key. `keys_of`: what encrypts the file at a key."""
    from bucketwise.archivers.format import parquet  # it brings Arrow

    for start, end in itertools.pairwise(_edges_of_days(packed.rows.time)):
        times = packed.rows.time[start:end]
        dt, first, last = day(int(times[0])), int(times.min()), int(times.max())
        if {day(first), day(last)} != {dt}:  # whoever looks for a day would miss some
            raise ValueError(f"the rows of {dt} are not contiguous")
        key = key_of(dt)
        written[key] = parquet.write_part(packed.rows, slice(start, end), types, keys_of(key))
        yield Part(
            **stored(key, written[key]).model_dump(),
            dt=date.fromisoformat(dt),
            rows=end - start,
            first=as_date(first),
            last=as_date(last),
        )


def _days(time: NDArray[np.int64]) -> set[date]:
    """Returns the UTC days of these times."""
    return {as_date(int(it) * DAY_MS).date() for it in np.unique(time // DAY_MS)}


def _edges_of_days(time: NDArray[np.int64]) -> list[int]:
    """Returns where the rows of each day start, and where the last end. Rows are sorted by day only, which is
    enough for that."""
    edges = [0]
    while edges[-1] < len(time):
        rest = time[edges[-1] :]
        edges.append(edges[-1] + int(np.searchsorted(rest, (rest[0] // DAY_MS + 1) * DAY_MS)))
    return edges
