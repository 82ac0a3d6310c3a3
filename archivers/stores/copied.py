"""A store with copies: each object lies in the first store, and in every copy that is required, before
anybody relies on it.

What a write or a delete may leave unlike in a copy stands in a journal before it begins, and is taken out of
it once the copy is alike: also where the process dies, or the copy is not there. Objects are put into the
first store before the copies and deleted from the copies before the first store, so that a copy has nothing
that the first store does not have, or the journal does not name.

Only an object that must be there is ever read from a copy in place of the first store's: one that was deleted
does not come back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from threading import Lock
from typing import Any, NamedTuple, Protocol, TypeVar

from bucketwise.archivers.stores.base import (
    AlreadyExists,
    Cold,
    Corrupt,
    Missing,
    NotFound,
    ObjectStore,
    OlderVersions,
    Requests,
    StoreError,
    StoreObject,
    Versioning,
)
from bucketwise.archivers.stores.encrypted import EncryptedStore
from bucketwise.config.tables import class_to_put

T = TypeVar("T")
#: Reads from a copy that are told one by one; all are counted.
_MOST_TOLD = 100
#: The names of what a journal has recorded of one change, by copy.
Begun = Mapping[str, Sequence[Any]]


class Journal(Protocol):
    """Remembers the keys at which copies may differ from the first store, in the order of their changes."""

    def begin(self, copies: Sequence[str], keys: Sequence[str], *, deleted: bool) -> Begun:
        """Records, before it is done, that these keys are written or deleted. Returns what `end` takes."""

    def end(self, copies: Sequence[str], change: Begun) -> None:
        """Forgets a change for these copies, which are like the first store at its keys."""

    def waits(self, copy: str, key: str) -> bool:
        """Returns whether a copy may differ from the first store at a key."""


class NoJournal:
    """The journal of whatever only reads."""

    def begin(self, copies: Sequence[str], keys: Sequence[str], *, deleted: bool) -> Begun:  # noqa: ARG002
        """Raises RuntimeError: without a journal, nothing is written."""
        raise RuntimeError(f"{len(keys)} objects would change without a journal of {len(copies)} copies")

    def end(self, copies: Sequence[str], change: Begun) -> None:
        """Does nothing."""

    def waits(self, copy: str, key: str) -> bool:  # noqa: ARG002
        """Returns False."""
        return False


class Copy(NamedTuple):
    """A copy of a store. `required`: nothing counts before it is there as well. `storage_class`: of parts in
    it; None: as the policy says."""

    name: str
    store: ObjectStore
    required: bool
    storage_class: str | None = None

    def class_of(self, key: str, asked: str | None) -> str | None:
        """Returns the class with which an object is put: never a cold one, since it is read back."""
        is_part = key.partition("/")[2].startswith("data/")
        named = self.storage_class if is_part and self.storage_class is not None else asked
        return class_to_put(named)


class FromCopy(NamedTuple):
    """An object that was read from a copy, and why not from the first store."""

    key: str
    copy: str
    reason: str


@dataclass
class ReadsFromCopies:
    """The reads from copies since they were last asked for. Safe to use from several threads."""

    count: int = 0
    told: list[FromCopy] = field(default_factory=list)  # the first hundred
    _seen: set[str] = field(default_factory=set)
    _lock: Lock = field(default_factory=Lock)

    def add(self, read: FromCopy) -> None:
        """Counts a key once."""
        with self._lock:
            if read.key not in self._seen:
                self._seen.add(read.key)
                self.count += 1
                if len(self.told) < _MOST_TOLD:
                    self.told.append(read)

    def has(self, key: str) -> bool:
        """Returns whether a key was read from a copy."""
        with self._lock:
            return key in self._seen

    def take(self) -> tuple[int, list[FromCopy]]:
        """Returns how many objects were read from copies, and the first of them; and forgets them."""
        with self._lock:
            taken = self.count, self.told
            self.count, self.told, self._seen = 0, [], set()
        return taken


class JoinedRequests(Requests):
    """The requests to several stores."""

    def __init__(self, parts: Sequence[Requests]) -> None:
        super().__init__()
        self._parts = parts

    def take(self) -> tuple[dict[str, int], int]:
        """Returns the requests by operation, and the retries among them, since this was last asked."""
        sent: dict[str, int] = {}
        retries = 0
        for part in self._parts:
            counts, again = part.take()
            retries += again
            for name, count in counts.items():
                sent[name] = sent.get(name, 0) + count
        return sent, retries


class CopiedStore:
    """The first store, and its copies. Without a journal it can only be read."""

    def __init__(self, first: ObjectStore, copies: Sequence[Copy], journal: Journal) -> None:
        self.first = first
        self.copies = tuple(copies)
        self.journal = journal
        self.reads = ReadsFromCopies()
        self.requests: Requests = JoinedRequests([it.requests for it in self.stores])
        self._lost: StoreError | None = None  # why the first store can't be read at all

    @property
    def url(self) -> str:
        """Returns the URL of the first store."""
        return self.first.url

    @property
    def stores(self) -> list[ObjectStore]:
        """Returns the first store and those of all copies."""
        return [self.first, *(it.store for it in self.copies)]

    @property
    def required(self) -> list[Copy]:
        """Returns the copies without which nothing counts."""
        return [it for it in self.copies if it.required]

    def check_there(self) -> None:
        """Raises Missing where the first store is not there."""
        self.first.check_there()

    def put_bytes(
        self,
        key: str,
        data: bytes,
        *,
        if_absent: bool = False,
        storage_class: str | None = None,
        locked_from: datetime | None = None,
    ) -> None:
        """Writes an object into the first store, then into each copy that is required, where it is read back
        and compared."""
        change = self._begin([key], deleted=False)
        try:
            self.first.put_bytes(
                key, data, if_absent=if_absent, storage_class=storage_class, locked_from=locked_from
            )
        except AlreadyExists:
            self.journal.end(names_of(self), change)
            raise
        for copy in self.required:
            put_compared(copy, key, data, storage_class=storage_class, locked_from=locked_from)
        self._end(change)

    def get_bytes(self, key: str, size: int | None = None) -> bytes:
        """Returns the bytes of an object of the first store; of a copy where that can't be read at all."""
        return self._read(lambda store: store.get_bytes(key, size), key)

    def get_sound(self, key: str, is_sound: Callable[[bytes], bool], size: int | None = None) -> bytes:
        """Returns the bytes of an object that must be there: those of a copy where the first store's are
        missing or not sound, or have to be thawed. If no copy has better ones, as `get_bytes`."""
        failure: StoreError | None = None
        data = b""
        try:
            data = self.get_bytes(key, size)
            if is_sound(data):
                return data
            reason = "its bytes are not those that were written"
        except (NotFound, Corrupt, Cold) as error:
            failure, reason = error, error.reason
        for copy in self.copies:
            try:
                found = copy.store.get_bytes(key, size)
            except StoreError:
                continue
            if is_sound(found) and not self.journal.waits(copy.name, key):
                if not isinstance(failure, Cold):
                    self.reads.add(FromCopy(key, copy.name, reason))
                return found
        if failure is not None:
            raise failure
        return data

    def is_from_copy(self, key: str) -> bool:
        """Returns whether an object was read from a copy since it was last asked for those."""
        return self.reads.has(key)

    def file_keys(self, key: str) -> None:
        """Returns none: files are taken as they are."""

    def head(self, key: str) -> StoreObject | None:
        """Returns what the first store knows of an object; None where there is none."""
        return self._read(lambda store: store.head(key), key)

    def check(self, key: str, size: int | None, sha256: str) -> None:
        """Checks an object in the first store, and in each copy that is required."""
        self.first.check(key, size, sha256)
        for copy in self.required:
            copy.store.check(key, size, sha256)

    def list(self, prefix: str = "", after: str = "") -> Iterator[StoreObject]:
        """Yields the objects of the first store."""
        yield from self._read(lambda store: list(store.list(prefix, after)), prefix)

    def delete(self, keys: Iterable[str]) -> None:
        """Removes objects from each copy that is required, then from the first store."""
        if not (named := list(keys)):
            return
        if self._lost is not None:
            raise self._lost
        change = self._begin(named, deleted=True)
        for copy in self.required:
            with naming(copy):
                copy.store.delete(named)
        self.first.delete(named)
        self._end(change)

    def older_versions(self, prefix: str) -> Sequence[OlderVersions]:
        """Returns what the first store and each copy keep of objects that were deleted or replaced."""
        return [found for it in self.stores for found in it.older_versions(prefix)]

    def versioning(self) -> Versioning:
        """Returns what the first store does with objects that go."""
        return self.first.versioning()

    def clean_temporaries(self, before: datetime | None, folder: str | None = None) -> int:
        """Removes what writes have left unfinished, in the first store and in the copies that are
        required."""
        places = (self.first, *(copy.store for copy in self.required))
        return sum(it.clean_temporaries(before, folder) for it in places)

    def unfinished(self, folder: str) -> Sequence[str]:
        """Returns the places of unfinished writes, in the first store and in the copies that are required."""
        places = (self.first, *(copy.store for copy in self.required))
        return [place for it in places for place in it.unfinished(folder)]

    def probe(self) -> bool:
        """Tries every right in the first store."""
        return self.first.probe()

    def take_reads(self) -> tuple[int, Sequence[FromCopy]]:
        """Returns how many objects were read from copies since this was last asked, and the first of them.
        From then on, the first store is tried again."""
        self._lost = None
        return self.reads.take()

    def _begin(self, keys: Sequence[str], *, deleted: bool) -> Begun:
        return self.journal.begin(names_of(self), keys, deleted=deleted)

    def _end(self, change: Begun) -> None:
        if self.required:
            self.journal.end([it.name for it in self.required], change)

    def _read(self, read: Callable[[ObjectStore], T], key: str) -> T:
        """Reads the first store; where it can't be read at all, the first copy that is required and can. Once
        it could not, it is not tried again: each try may take minutes."""
        if self._lost is None:
            try:
                return read(self.first)
            except (NotFound, Corrupt, Cold):
                raise
            except StoreError as error:
                if not self.required:
                    raise
                self._lost = error
        for copy in self.required:
            try:
                found = read(copy.store)
            except (NotFound, Corrupt, Cold):
                raise
            except StoreError:
                continue
            self.reads.add(FromCopy(key, copy.name, self._lost.reason))
            return found
        raise self._lost


def copies_of(store: ObjectStore | None) -> CopiedStore | None:
    """Returns a store as one with copies, which lie as the store does; None where it has none."""
    inner = store.inner if isinstance(store, EncryptedStore) else store
    return inner if isinstance(inner, CopiedStore) else None


def names_of(store: CopiedStore | None) -> Sequence[str]:
    """Returns the names of a store's copies."""
    return [it.name for it in store.copies] if store is not None else []


def put_compared(
    copy: Copy,
    key: str,
    data: bytes,
    *,
    storage_class: str | None = None,
    locked_from: datetime | None = None,
) -> None:
    """Writes an object into a copy, reads it back and compares it. Raises StoreError, which names the copy;
    Corrupt where it is not what was written."""
    with naming(copy):
        named = copy.class_of(key, storage_class)
        copy.store.put_bytes(key, data, storage_class=named, locked_from=locked_from)
        if copy.store.get_bytes(key) != data:
            raise Corrupt("put", f"{copy.store.url}/{key}", "read back, it is not what was written")


@contextmanager
def naming(copy: Copy) -> Iterator[None]:
    """Names the copy in the errors of its store that are raised in the block."""
    try:
        yield
    except StoreError as error:
        kind = type(error) if isinstance(error, Cold | Corrupt | Missing | NotFound) else StoreError
        raise kind(error.operation, error.place, f"copy {copy.name}: {error.reason}", error.remedy) from error
