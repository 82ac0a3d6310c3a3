"""The interface of object stores, and their errors.

Keys are relative paths with `/`, under the store's URL: `ticks/data/dt=2018-06-30/a.parquet`.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from threading import Lock
from typing import NamedTuple, Protocol
from uuid import uuid4

from bucketwise.config.errors import BucketwiseError

PROBE_PREFIX = ".bucketwise-probe/"
_UNSAFE = re.compile(r"[\x00-\x1f\x7f\\]")
_USERINFO = re.compile(r"//[^/@\s]+@")


@dataclass(frozen=True)
class StoreObject:
    """An object of a store, as `list` and `head` return it."""

    key: str
    size: int  # bytes
    modified: datetime  # aware
    version: str | None = None  # where the store keeps older ones; only `head` tells
    storage_class: str | None = None  # where the store has classes; only `head` tells


@dataclass(frozen=True)
class Versioning:
    """The versioning of a store: what becomes of objects that are deleted or replaced. `lock`: the lock that
    it is configured to put on objects; None: none. `fault`: why it can't be put, or why that is not known,
    and what to do."""

    keeps_versions: bool | None = False  # None: it can't be asked
    has_locks: bool | None = False  # None: it can't be asked
    lock: str | None = None
    fault: str = ""


@dataclass(frozen=True)
class OlderVersions:
    """The versions that a store keeps of objects that were deleted or replaced. `locked_until`: the last
    instant before which some can't be removed. `soft_deleted`: how many of them go by themselves, once their
    time is over. `unknown`: why it can't be found out; empty: it was."""

    place: str
    count: int = 0
    locked_until: datetime | None = None
    soft_deleted: int = 0
    unknown: str = ""


class StoreError(BucketwiseError):
    """The store refused or failed, and the operation had no effect."""

    def __init__(self, operation: str, place: str, reason: str, remedy: str = "") -> None:
        self.operation = operation
        self.place = _USERINFO.sub("//***@", place)  # the object's url
        self.reason = _USERINFO.sub("//***@", reason).rstrip(". ")
        self.remedy = remedy
        super().__init__(f"{operation} {self.place}: {self.reason}" + (f". {remedy}" if remedy else ""))


class NotFound(StoreError):
    """No object has this key."""


class Missing(StoreError):
    """The store itself is not there: it is never created."""


class AlreadyExists(StoreError):
    """An object has this key, and `if_absent` was set."""


class Corrupt(StoreError):
    """The object can't be what was put there: its bytes don't match the checksum that the store keeps, their
    number is wrong, or a symbolic link stands in its place."""

    exit_code = 5


class Cold(StoreError):
    """The object is in a storage class from which it has to be thawed before it can be read."""


class Denied(StoreError):
    """The credentials lack a right."""


class OutcomeUnknown(StoreError):
    """The reply was lost, and it could not be found out whether the operation took effect."""


class Requests:
    """Counts requests by operation, and how many of them were retries. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._sent = Counter[str]()
        self._retries = 0

    def count(self, operation: str) -> None:
        """Counts a request as it is sent."""
        with self._lock:
            self._sent[operation] += 1

    def count_retry(self) -> None:
        """Counts one of the requests as a retry, as well."""
        with self._lock:
            self._retries += 1

    def take(self) -> tuple[dict[str, int], int]:
        """Returns the requests by operation, and the retries among them, since this was last asked."""
        with self._lock:
            taken = dict(self._sent), self._retries
            self._sent, self._retries = Counter(), 0
        return taken


class RetryLimits(NamedTuple):
    """Limits of a request to a server: `attempts` at most, and `timeout` (seconds) for a connection, and for
    an answer or the next bytes of it."""

    attempts: int = 5
    timeout: float = 30.0


USUAL = RetryLimits()


class FileKeys(Protocol):
    """What wraps the key of one encrypted Parquet file, for its footer."""

    def wrap(self, file_key: bytes) -> str:
        """Returns the wrapped key."""

    def unwrap(self, wrapped: str) -> bytes:
        """Returns the key. Raises Corrupt where it is that of another file, and HaltedError without the key
        that wrapped it."""


class ObjectStore(Protocol):
    """A flat space of objects. Every method raises StoreError; an object is seen whole or not at all."""

    @property
    def url(self) -> str:
        """Returns the URL below which the keys lie, without a `/` at its end."""

    @property
    def requests(self) -> Requests:
        """Returns the requests so far: put, get, head, list, delete; in S3 also copy and thaw, of a
        directory clean."""

    def check_there(self) -> None:
        """Raises Missing where the store is a directory that does not exist. Asks no server."""

    def put_bytes(
        self,
        key: str,
        data: bytes,
        *,
        if_absent: bool = False,
        storage_class: str | None = None,
        locked_from: datetime | None = None,
    ) -> None:
        """Writes `data`, and replaces what was there. Raises OutcomeUnknown; with `if_absent`, AlreadyExists.

        `storage_class`: one of S3, if the store has any; None: the store's own. `locked_from`: the object is
        locked from that instant, for as long as the store's settings say, if they do; None: it is not. It is
        put and locked by one request: there is no moment in which it lies there without its lock. After
        a lost reply, equal bytes at the key count as ours: data that must tell two writers apart has to
        differ between them."""

    def get_bytes(self, key: str, size: int | None = None) -> bytes:
        """Returns the bytes of an object. Raises NotFound; and Corrupt, before anything is read, where its
        size is not `size`."""

    def file_keys(self, key: str) -> FileKeys | None:
        """Returns what wraps the key of a Parquet file that is to lie, or lies, there; None where files are
        not encrypted."""

    def get_sound(self, key: str, is_sound: Callable[[bytes], bool], size: int | None = None) -> bytes:
        """Returns the bytes of an object that must be there, as `get_bytes` does. `is_sound`: whether bytes
        can be those that were written; if they are not, and the store has copies, those of a copy are."""

    def is_from_copy(self, key: str) -> bool:
        """Returns whether an object was read from a copy of the store lately."""

    def head(self, key: str) -> StoreObject | None:
        """Returns the object's size and time, or None where there is none."""

    def check(self, key: str, size: int | None, sha256: str) -> None:
        """Checks that an object still is what was put there; `size`: None where it is not known. It is read
        only where the store keeps no SHA-256 of it that can be asked for. Raises NotFound, and Corrupt."""

    def list(self, prefix: str = "", after: str = "") -> Iterator[StoreObject]:
        """Yields the objects whose key starts with `prefix`, which need not end at a `/`, in order of their
        keys; only those after the key `after`."""

    def delete(self, keys: Iterable[str]) -> None:
        """Removes the objects. A key without an object is no error."""

    def older_versions(self, prefix: str) -> Sequence[OlderVersions]:
        """Returns what the store, and each copy of it, keeps of objects below a prefix that were deleted or
        replaced."""

    def versioning(self) -> Versioning:
        """Returns whether the store keeps older versions of objects, and whether it can lock objects."""

    def clean_temporaries(self, before: datetime | None, folder: str | None = None) -> int:
        """Removes what writes begun before that instant left unfinished; None: at any time. `folder`: only of
        objects below it, None: of all. Returns how many there were.

        Only the owner of the lease may call it: a slow writer elsewhere may still be at work on them. Without
        an instant, `folder` has to be what that lease is for."""

    def unfinished(self, folder: str) -> Sequence[str]:
        """Returns the places of unfinished writes that may be of objects below a folder."""

    def probe(self) -> bool:
        """Tries every right on a small object of our own. Raises Denied, which names those that are missing.
        Returns whether `if_absent` holds against another writer too, by the store's own doing."""


def check_read_back(store: ObjectStore, key: str) -> None:
    """Raises Corrupt where an object that was just put and read back was read from a copy: nothing counts
    that the first store itself does not have."""
    if store.is_from_copy(key):
        reason = "read back, it is not what was written: a copy of the store has that"
        raise Corrupt("put", f"{store.url}/{key}", reason)


def check_size(found: int, size: int | None, place: str) -> None:
    """Raises Corrupt where it is not what was expected."""
    if size is not None and found != size:
        raise Corrupt("get", place, f"the file has {found} bytes, and {size} were put there")


def check_bytes(data: bytes, sha256: str, place: str) -> None:
    """Raises Corrupt where these bytes, read from a place, have another SHA-256 than was expected."""
    if (found := hashlib.sha256(data).hexdigest()) != sha256:
        raise Corrupt("check", place, f"its SHA-256 is {found[:16]}…, and {sha256[:16]}… was put there")


def checked_key(key: str, place: str) -> str:
    """Returns the key if it is safe as a path and an object name; else raises."""
    parts = key.split("/")
    if _UNSAFE.search(key) or any(part in ("", ".", "..") for part in parts):
        remedy = (
            "A key is a relative path without empty parts, '.', '..', backslashes and control characters."
        )
        raise StoreError("use key", place, f"{key!r} is not a safe key", remedy)
    return key


@dataclass(frozen=True)
class Rights:
    """The names that a store has for the rights that the suite needs."""

    write: str
    read: str
    list: str
    delete: str


def probe_store(store: ObjectStore, rights: Rights, is_refused: Callable[[str], bool]) -> bool:
    """Writes, reads, lists and deletes an object. Returns what `is_refused` does, which tries a conditional
    write to its key.

    A missing right does not end the probe, so that all missing rights are reported at once; any other error
    does."""
    key, data = f"{PROBE_PREFIX}{uuid4().hex}", b"bucketwise probe"
    missing: list[str] = []

    def check(holds: bool, reason: str) -> None:
        if not holds:
            raise StoreError("probe", f"{store.url}/{key}", reason, "Use another store, or repair this one.")

    @contextmanager
    def needing(right: str) -> Iterator[None]:
        try:
            yield
        except Denied:
            missing.append(right)

    with needing(rights.write):
        store.put_bytes(key, data)
    is_written = not missing
    with needing(rights.read):
        check(not is_written or store.get_bytes(key) == data, "it returned other bytes than were written")
    with needing(rights.list):
        listed = [item.key for item in store.list(PROBE_PREFIX)]
        check(key in listed or not is_written, "it is not listed")
    is_conditional = not missing and is_refused(key)
    with needing(rights.delete):
        store.delete([key])
    if missing:
        raise Denied("probe", store.url, f"missing: {', '.join(missing)}", "Grant what is missing.")
    return is_conditional


class PlainStore:
    """A base for stores that keep each object once, and take files as they are."""

    def file_keys(self, key: str) -> None:
        """Returns none: files are taken as they are."""

    def is_from_copy(self, key: str) -> bool:  # noqa: ARG002
        """Returns False: there is no copy."""
        return False

    def get_sound(
        self: ObjectStore,
        key: str,
        is_sound: Callable[[bytes], bool],  # noqa: ARG002 - there is no other copy
        size: int | None = None,
    ) -> bytes:
        """Returns what `get_bytes` does, sound or not."""
        return self.get_bytes(key, size)


class ServedStore(PlainStore):
    """A base for stores of servers: each object is put by one request, whole or not at all."""

    def check_there(self) -> None:
        """Does nothing: a bucket that is missing is told by the first request."""

    def clean_temporaries(self, before: datetime | None, folder: str | None = None) -> int:  # noqa: ARG002
        """Returns 0: a failed put leaves nothing behind."""
        return 0

    def unfinished(self, folder: str) -> Sequence[str]:  # noqa: ARG002
        """Returns none."""
        return []

    def _look_up(
        self: ObjectStore, key: str, data: bytes, failed: StoreError, cause: Exception, *, may_come: bool
    ) -> None:
        """Finds out whether a put that failed took effect. Returns if it did; otherwise raises the error that
        applies. `may_come`: the server may still carry it out."""
        try:
            if self.get_bytes(key) == data:
                return
        except NotFound:
            pass
        except (StoreError, OSError) as unread:
            reason = f"{failed.reason}. Reading it back failed too: {unread}"
            remedy = "Whether it was written is unknown. It is safe to run again."
            raise OutcomeUnknown("put", failed.place, reason, remedy) from cause
        if may_come:
            remedy = "It is not there yet, and may come. It is safe to run again."
            raise OutcomeUnknown("put", failed.place, failed.reason, remedy) from cause
        raise failed from cause


class ForwardingStore:
    """The store behind it: a base for stores that change some of what it does."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def _before_write(self) -> None:
        """Does nothing: the place for what has to be done before objects are written or removed."""

    @property
    def url(self) -> str:
        """Returns the store's URL."""
        return self._store.url

    @property
    def requests(self) -> Requests:
        """Returns the requests so far."""
        return self._store.requests

    def check_there(self) -> None:
        """Raises Missing where the store is not there."""
        self._store.check_there()

    def put_bytes(
        self,
        key: str,
        data: bytes,
        *,
        if_absent: bool = False,
        storage_class: str | None = None,
        locked_from: datetime | None = None,
    ) -> None:
        """Writes an object."""
        self._before_write()
        self._store.put_bytes(
            key, data, if_absent=if_absent, storage_class=storage_class, locked_from=locked_from
        )

    def get_bytes(self, key: str, size: int | None = None) -> bytes:
        """Returns the bytes of an object."""
        return self._store.get_bytes(key, size)

    def file_keys(self, key: str) -> FileKeys | None:
        """Returns what wraps the key of a Parquet file."""
        return self._store.file_keys(key)

    def get_sound(self, key: str, is_sound: Callable[[bytes], bool], size: int | None = None) -> bytes:
        """Returns the bytes of an object that must be there."""
        return self._store.get_sound(key, is_sound, size)

    def is_from_copy(self, key: str) -> bool:
        """Returns whether an object was read from a copy lately."""
        return self._store.is_from_copy(key)

    def head(self, key: str) -> StoreObject | None:
        """Returns what is known of an object; None where there is none."""
        return self._store.head(key)

    def check(self, key: str, size: int | None, sha256: str) -> None:
        """Raises where the store does not hold an object of this size and digest, as far as it tells."""
        self._store.check(key, size, sha256)

    def list(self, prefix: str = "", after: str = "") -> Iterator[StoreObject]:
        """Yields objects, sorted by key."""
        return self._store.list(prefix, after)

    def delete(self, keys: Iterable[str]) -> None:
        """Removes objects; does nothing where there are none."""
        if named := list(keys):
            self._before_write()
            self._store.delete(named)

    def older_versions(self, prefix: str) -> Sequence[OlderVersions]:
        """Returns what the store keeps of objects that are gone."""
        return self._store.older_versions(prefix)

    def versioning(self) -> Versioning:
        """Returns what the store does with objects that go."""
        return self._store.versioning()

    def clean_temporaries(self, before: datetime | None, folder: str | None = None) -> int:
        """Removes what writes have left unfinished."""
        self._before_write()
        return self._store.clean_temporaries(before, folder)

    def unfinished(self, folder: str) -> Sequence[str]:
        """Returns the places of unfinished writes."""
        return self._store.unfinished(folder)

    def probe(self) -> bool:
        """Tries every right."""
        return self._store.probe()


class ClaimingStore(ForwardingStore):
    """The store behind it, whose objects are written and removed only once `claim` has returned."""

    def __init__(self, store: ObjectStore, claim: Callable[[], None]) -> None:
        """`claim` is called before each write, and raises where there must be none."""
        super().__init__(store)
        self._claim = claim

    def _before_write(self) -> None:
        """Claims the store."""
        self._claim()
