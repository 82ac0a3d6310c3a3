"""What the stores of Azure and Google have in common: obstore as their client.

obstore would try again by itself, and tells neither that it did nor what became of the first try. So it
tries once, and requests are repeated and counted here.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

import obstore
from obstore.exceptions import BaseError, InvalidPathError

from bucketwise.archivers.stores.base import (
    PROBE_PREFIX,
    USUAL,
    AlreadyExists,
    Denied,
    NotFound,
    OlderVersions,
    Requests,
    RetryLimits,
    Rights,
    ServedStore,
    StoreError,
    StoreObject,
    Versioning,
    check_bytes,
    check_size,
    checked_key,
    probe_store,
)
from bucketwise.archivers.stores.cloud_failures import Failure
from bucketwise.archivers.stores.cloud_locks import CloudLocks, Container, Inquiry, Lock
from bucketwise.buckets.fields.times import as_text
from bucketwise.config.tables import StorePlace

T = TypeVar("T")
#: What obstore raises: a missing object is a FileNotFoundError.
_FAILURES = (BaseError, OSError, ValueError, NotImplementedError)
_AGAIN = "It is safe to run again."
_ENDPOINT = "Look at store.endpoint_url and the network, then run again."
_LARGE = 1_000_000  # bytes of a put that may take longer than other requests, as deletes of many may
_REFUSED_LOCKS = (400, 409, 412)  # what a put with a lock may be answered by a container that has none
_DELETE_BATCH = 256  # what Azure takes in one request
_DELETES_AT_ONCE = 10  # of requests that remove one each
_FORKED = (
    "this process was forked from one that had used the store, which its client can't take. Start processes "
    "by 'spawn' or 'forkserver'"
)
_process: int | None = None  # that has begun to use the client


@dataclass(frozen=True)
class Cloud:
    """A cloud, in its own words. `connect` takes the name of a container, an endpoint, and obstore's options
    of clients and retries."""

    container: str  # what it calls one
    extra: str  # of the package, that brings its clients
    connect: Callable[[str, str | None, dict[str, Any]], Any]
    locks: CloudLocks
    rights: Rights
    credentials: str  # where they are looked for
    sent: Sequence[str]  # variables whose values go into headers
    absent: Sequence[str]  # codes of refusals where the container is not there
    taken: Sequence[str]  # codes where an object is there already
    unknown: Sequence[str]  # codes where it does not know who asks
    remedies: Mapping[str, str]  # by codes of other refusals
    page: int  # objects in one reply to a list request
    lists_from: bool  # whether a listing can begin at a name
    deletes_many: bool  # in one request


class CloudStore(ServedStore):
    """A store in a container of a cloud. Safe to use from several threads, and not after a fork.
    Large puts, and deletes of many objects, have ten times as long as the limits say."""

    def __init__(self, cloud: Cloud, settings: StorePlace, *, limits: RetryLimits = USUAL) -> None:
        url = urlsplit(settings.url)
        self._cloud = cloud
        self._prefix = f"{path}/" if (path := url.path.strip("/")) else ""
        self.url = settings.url.rstrip("/")
        self.requests = Requests()
        for name in cloud.sent:
            if not ((value := os.environ.get(name, "")).isascii() and value.isprintable()):
                reason = f"{name} holds a line break, or another character that can't be sent"
                raise StoreError("open", self.url, reason, cloud.credentials)  # its client would panic
        self._place, self._limits = (url.netloc, settings.endpoint_url), limits
        self._lock, self._guard = settings.object_lock, threading.Lock()
        self._client, self._patient = self._connected({})
        self._locking: tuple[Lock, tuple[Any, Any]] | None = None  # clients that put with the last lock
        self._inquiry: Inquiry | None = None

    def _connected(self, headers: dict[str, str]) -> tuple[Any, Any]:
        """Returns two clients that send these headers with each request: the second one for what may take
        longer."""
        name, endpoint = self._place
        patience = timedelta(seconds=self._limits.timeout)
        usual = {"connect_timeout": patience, "allow_http": (endpoint or "").startswith("http://")}
        usual |= {"default_headers": headers} if headers else {}
        # An answer is waited for from the beginning of the request on, and a large one takes longer to send.
        options = (usual | {"read_timeout": patience, "timeout": "1d"}, usual | {"timeout": patience * 10})
        try:
            first, second = (
                self._cloud.connect(
                    name, endpoint, {"client_options": it, "retry_config": {"max_retries": 0}}
                )
                for it in options
            )
        except _FAILURES as error:
            reason = Failure.of_obstore(error).reason
            raise StoreError("open", self.url, reason, self._cloud.credentials) from error
        return first, second

    def put_bytes(
        self,
        key: str,
        data: bytes,
        *,
        if_absent: bool = False,
        storage_class: str | None = None,  # noqa: ARG002 - the policy file refuses them
        locked_from: datetime | None = None,
    ) -> None:
        """Uploads an object, and locks it by the same request. If the reply is lost, finds out what the
        container holds. A lock is read back; one that would have ended is not put."""
        lock = self._lock_from(locked_from)
        self._put_locked(key, data, "create" if if_absent else "overwrite", lock)
        if lock is not None:
            self._check_lock(key, lock)

    def _put_locked(self, key: str, data: bytes, mode: str, lock: Lock | None) -> None:
        try:
            self._put(key, data, mode, lock)
        except Failure as failure:
            failed = self._error("put", key, failure, is_locking=lock is not None)
            if not failure.had_effect:
                raise failed from failure.error
            self._look_up(key, data, failed, failure.error, may_come=failure.may_still_happen)

    def _lock_from(self, start: datetime | None) -> Lock | None:
        """Returns the lock of what is put; None where it gets none."""
        if self._lock is None or start is None:
            return None
        until = (start + timedelta(days=self._lock.days, microseconds=999_999)).replace(microsecond=0)
        return Lock(self._lock.mode, until) if until > datetime.now(UTC) else None

    def _check_lock(self, key: str, lock: Lock) -> None:
        """Raises StoreError where the cloud does not tell that an object is locked so."""
        found = self._asked("look at the lock of", key, lambda it: it.lock(self._name(key)))
        if found is None or not found.holds(lock):
            told = "not locked" if found is None else f"locked until {as_text(found.until)} ({found.mode})"
            what = f"it was put to be locked until {as_text(lock.until)} ({lock.mode}), and is {told}"
            raise StoreError("lock", f"{self.url}/{key}", what, self._cloud.locks.remedy)

    def get_bytes(self, key: str, size: int | None = None) -> bytes:
        """Returns the bytes of an object. Reads it again where the reply breaks off."""
        name = self._name(key)

        def read() -> bytes:
            reply = obstore.get(self._client, name)
            check_size(reply.meta["size"], size, f"{self.url}/{key}")
            return bytes(reply.bytes())

        return self._ask("get", key, read)

    def get_sound(self, key: str, is_sound: Callable[[bytes], bool], size: int | None = None) -> bytes:
        """Returns the bytes of an object. Reads it again where they are not sound: its client compares no
        checksum, so that a bit may have flipped on the way."""
        data = self.get_bytes(key, size)
        return data if is_sound(data) else self.get_bytes(key, size)

    def head(self, key: str) -> StoreObject | None:
        """Returns what is known of an object; None where there is none."""
        found = self._told(self._name(key))
        return None if found is None else StoreObject(key, found["size"], found["last_modified"])

    def check(self, key: str, size: int | None, sha256: str) -> None:
        """Reads the object: its client asks for no checksum that the cloud keeps."""
        data = self.get_sound(key, lambda it: hashlib.sha256(it).hexdigest() == sha256, size)
        check_bytes(data, sha256, f"{self.url}/{key}")

    def list(self, prefix: str = "", after: str = "") -> Iterator[StoreObject]:
        """Yields the objects whose keys begin with `prefix` and come after the key `after`, sorted by key: a
        page of them at a time."""
        wanted, start = self._prefix + prefix, self._prefix + after if after else ""
        for page in self._pages(prefix, wanted, start):
            for it in sorted(page, key=lambda it: str(it["path"])):
                # A folder that a console made is listed without the `/` at its end, and is not there so.
                if it["size"] or self._told(it["path"]) is not None:
                    yield StoreObject(it["path"].removeprefix(self._prefix), it["size"], it["last_modified"])

    def delete(self, keys: Iterable[str]) -> None:
        """Removes objects, many at once. Absent ones are no error. Each request has been answered, or given
        up, when this ends: one on its way could still remove what is put at its key next."""
        waiting = iter(keys)
        while batch := list(islice(waiting, _DELETE_BATCH)):
            if self._cloud.deletes_many and self._delete(batch):
                continue
            with ThreadPoolExecutor(min(_DELETES_AT_ONCE, len(batch)), "bucketwise-deletes") as threads:
                list(threads.map(lambda key: self._delete([key]), batch))

    def versioning(self) -> Versioning:
        """Returns what the container does with objects that go, as far as we may ask. If files are to be
        locked, tries that on one, which stays as an older version. Raises StoreError where it fails."""
        try:
            found = self._asked("look at", "", lambda it: it.container(), "other")
        except StoreError:
            found = None
        keeps = None if found is None else found.keeps_versions
        if (lock := self._lock) is None:
            return Versioning(keeps, None if found is None else found.has_locks)
        words = self._cloud.locks
        told = f"{lock.mode} ({words.modes[lock.mode]}), {lock.days} days"
        if fault := self._lock_fault(found):
            return Versioning(keeps, False, told, fault)
        self._try_lock()
        return Versioning(True, True, told)

    def _lock_fault(self, found: Container | None) -> str:
        """Returns why the container can't lock files; empty where it can, or does not tell."""
        words = self._cloud.locks
        if found is not None and not found.has_locks:
            return f"{words.absent}. {words.remedy}"
        return words.unversioned if found is not None and found.keeps_versions is False else ""

    def _try_lock(self) -> None:
        """Puts a small object that is locked for ten minutes, since clocks may differ, and deletes it."""
        key, until = f"{PROBE_PREFIX}{uuid4().hex}", datetime.now(UTC) + timedelta(minutes=10)
        lock = Lock("governance", until.replace(microsecond=0))
        self._put_locked(key, b"bucketwise probe", "overwrite", lock)
        self._check_lock(key, lock)
        self.delete([key])

    def older_versions(self, prefix: str) -> Sequence[OlderVersions]:
        """Returns the older versions, those that are soft-deleted among them."""
        place, name = f"{self.url}/{prefix}", self._prefix + prefix
        try:
            old = self._asked("list the versions below", prefix, lambda it: list(it.older(name)), "list")
        except StoreError as error:
            return [OlderVersions(place, unknown=str(error))]
        last = max((it.locked_until for it in old if it.locked_until is not None), default=None)
        return [OlderVersions(place, len(old), last, sum(it.is_soft_deleted for it in old))]

    def probe(self) -> bool:
        """Tries every right, with an object that is removed again."""
        return probe_store(self, self._cloud.rights, self._refuses_overwrite)

    def _name(self, key: str) -> str:
        return self._prefix + checked_key(key, self.url)

    def _told(self, name: str) -> Any:
        """Returns what the server tells of an object; None where there is none."""
        try:
            return self._ask(
                "look at", name.removeprefix(self._prefix), lambda: obstore.head(self._client, name)
            )
        except NotFound:
            return None

    def _put(self, key: str, data: bytes, mode: Any, lock: Lock | None = None) -> None:
        usual, patient = (self._client, self._patient) if lock is None else self._clients_with(lock)
        name, client = self._name(key), usual if len(data) <= _LARGE else patient
        self._try("put", lambda: obstore.put(client, name, data, mode=mode, use_multipart=False))

    def _clients_with(self, lock: Lock) -> tuple[Any, Any]:
        """Returns the clients that put with a lock: all of a run have the same."""
        with self._guard:
            if self._locking is None or self._locking[0] != lock:
                self._locking = lock, self._connected(self._cloud.locks.headers(lock))
            return self._locking[1]

    def _delete(self, keys: Sequence[str]) -> bool:
        """Returns whether they were all there, by one request; one that is gone ends what the client does."""
        names, client = [self._name(key) for key in keys], self._patient if len(keys) > 1 else self._client
        try:
            self._ask("delete", keys[0], lambda: obstore.delete(client, names))
        except NotFound:
            return False
        return True

    def _pages(self, prefix: str, wanted: str, start: str) -> Iterator[Sequence[Any]]:
        """Yields pages of the objects whose names begin with `wanted` and come after `start`. A listing that
        fails begins again behind the pages that it has given."""
        opened, seen = list[Iterator[Sequence[Any]]](), ""

        def turn() -> Sequence[Any] | None:
            nonlocal seen
            is_first = not opened
            seen = "" if is_first else seen
            try:
                opened[:] = opened or [self._opened(wanted, start)]
                page = next(opened[0], None)
            except _FAILURES:
                self.requests.count("list")
                opened.clear()
                raise
            if is_first or page is not None:
                self.requests.count("list")
            return page

        while (page := self._ask("list", prefix, turn, requests=0)) is not None:
            names = [str(it["path"]) for it in page]
            if names and min(names) <= seen:
                what = f"the server lists {min(names)!r} after {seen!r}, and names have to be in order"
                raise StoreError("list", f"{self.url}/{prefix}", what)
            seen = max(names, default=seen)
            yield [it for it in page if it["path"].startswith(wanted) and it["path"] > start]
            start = max(start, seen)
            if seen > wanted and not seen.startswith(wanted):
                break

    def _opened(self, wanted: str, start: str) -> Iterator[Sequence[Any]]:
        """Returns the pages of a listing. If it can begin at a name, it begins near the first one wanted."""
        folder, _, rest = wanted.rpartition("/")
        offset = max(start, wanted[:-1] if rest else "").rstrip("./")  # no name that obstore would refuse
        begin = offset if offset and self._cloud.lists_from else None
        return iter(obstore.list(self._client, folder or None, offset=begin, chunk_size=self._cloud.page))

    def _ask(self, operation: str, key: str, act: Callable[[], T], requests: int = 1) -> T:
        try:
            return self._try(operation, act, requests)
        except Failure as failure:
            raise self._error(operation, key, failure) from failure.error

    def _asked(self, operation: str, key: str, ask: Callable[[Inquiry], T], request: str = "head") -> T:
        """Returns what the cloud's own client is told."""

        def act() -> T:
            self.requests.count(request)
            with self._guard:
                if self._inquiry is None:
                    self._inquiry = self._cloud.locks.inquire(*self._place, self._limits.timeout)
            return ask(self._inquiry)

        try:
            return self._ask(operation, key, act, requests=0)
        except ImportError as error:
            reason = f"what asks for locks and versions is not installed here ({error})"
            remedy = f"Run: pip install 'bucketwise[{self._cloud.extra}]'"
            raise StoreError(operation, f"{self.url}/{key}", reason, remedy) from error

    def _try(self, operation: str, act: Callable[[], T], requests: int = 1) -> T:
        """Returns what a request does. Raises Failure where no attempt succeeds."""
        global _process
        _process = _process or os.getpid()
        if _process != os.getpid():  # it would wait forever
            raise StoreError(operation, self.url, _FORKED)
        had_effect = may_still_happen = False
        for attempt in itertools.count(1):
            for _ in range(requests):
                self.requests.count("head" if operation == "look at" else operation)
            if attempt > 1:
                self.requests.count_retry()
            try:
                return act()
            except (Failure, *_FAILURES) as error:
                failure = error if isinstance(error, Failure) else Failure.of_obstore(error)
                had_effect = failure.had_effect = had_effect or not failure.is_harmless
                may_still_happen = failure.may_still_happen = may_still_happen or failure.is_slow
                if attempt == self._limits.attempts or not failure.is_transient:
                    raise failure from error
            time.sleep(random.random() * 2 ** (attempt - 1))
        raise AssertionError("unreachable")

    def _error(self, operation: str, key: str, failure: Failure, *, is_locking: bool = False) -> StoreError:
        cloud, place, reason = self._cloud, f"{self.url}/{key}", failure.reason
        if failure.is_of_credentials:
            return StoreError(
                operation, place, f"no valid credentials were found: {reason}", cloud.credentials
            )
        if failure.code in cloud.absent:
            remedy = f"Create the {cloud.container}, or correct store.url."
            return StoreError(operation, place, f"there is no such {cloud.container}", remedy)
        if failure.code in cloud.unknown or failure.status == 401:
            return StoreError(operation, place, reason, cloud.credentials)
        if failure.code in cloud.remedies:
            return StoreError(operation, place, reason, cloud.remedies[failure.code])
        if isinstance(failure.error, InvalidPathError):
            return StoreError(operation, place, reason, "Rename that object, or remove it.")
        if isinstance(failure.error, FileNotFoundError):
            return NotFound(operation, place, "no such object")
        if failure.status == 403:
            more = f" To lock files: {cloud.locks.right}." if is_locking else ""
            return Denied(operation, place, reason, f"Grant these credentials that right.{more}")
        if failure.is_unreachable:
            return StoreError(operation, place, reason, _ENDPOINT)
        if failure.code in cloud.taken:
            return AlreadyExists(operation, place, "it already exists")
        if is_locking and failure.status in _REFUSED_LOCKS:
            return StoreError(operation, place, reason, f"If {cloud.locks.absent}: {cloud.locks.remedy}")
        return StoreError(operation, place, reason, _AGAIN if failure.is_transient else "")

    def _refuses_overwrite(self, key: str) -> bool:
        try:
            self._put(key, b"overwritten", "create")
        except Failure as failure:
            if failure.code in self._cloud.taken:
                return True
            raise self._error("put", key, failure) from failure.error
        return False
