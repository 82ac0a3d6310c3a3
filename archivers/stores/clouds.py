"""What the stores of Azure and Google have in common: obstore as their client, and what it tells of failures.

obstore would try again by itself, and tells neither that it did nor what became of the first try. So it
tries once, and requests are repeated and counted here.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError, InvalidPathError

from bucketwise.archivers.stores.base import (
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
from bucketwise.config.tables import StorePlace

T = TypeVar("T")
#: What obstore raises: a missing object is a FileNotFoundError.
_FAILURES = (BaseError, OSError, ValueError, NotImplementedError)
_AGAIN = "It is safe to run again."
_ENDPOINT = "Look at store.endpoint_url and the network, then run again."
_TRANSIENT = {408, 429, 500, 502, 503, 504}
_LARGE = 1_000_000  # bytes of a put that may take longer than other requests, as deletes of many may
_DELETE_BATCH = 256  # what Azure takes in one request
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
    connect: Callable[[str, str | None, dict[str, Any]], Any]
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


class Failure(Exception):
    """An attempt of a request that failed."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        text, _, details = str(error).partition("\n\nDebug source:")
        self.error = error
        # Whether this attempt, or one before it, may have had an effect, and whether it still may.
        self.had_effect = self.may_still_happen = False
        status = re.search(r"(?:status code|\(code): (\d{3})", text)
        self.status = int(status[1]) if status else None  # None: there was no answer
        self.code = _inside("Code", text)
        self.is_of_credentials = bool(
            re.search("token re(quest|sponse)|federated token|get-access-token", text)
        )
        wire = re.search(r"\bkind: (Connect|Request|Timeout|Interrupted|Decode|Unknown)\b", details)
        self._wire = wire[1] if wire and status is None else None
        self._text, self._details = text, details

    @property
    def is_transient(self) -> bool:
        """Returns whether the same request may do better the next time."""
        return self.status in _TRANSIENT if self.status else self._wire is not None

    @property
    def is_harmless(self) -> bool:
        """Returns whether this attempt certainly had no effect: it was refused, or never sent."""
        refused = self.status is not None and 400 <= self.status < 500
        unsendable = isinstance(self.error, ValueError | InvalidPathError)
        return refused or unsendable or self.is_of_credentials or self.is_unreachable

    @property
    def is_slow(self) -> bool:
        """Returns whether the server may still carry this attempt out: it was too slow to answer."""
        return self._wire == "Timeout" or self.status == 504

    @property
    def is_unreachable(self) -> bool:
        """Returns whether there was no connection."""
        return self._wire == "Connect"

    @property
    def reason(self) -> str:
        """Returns what is known, without URLs, in which there may be signatures."""
        if self.code:
            return f"{self.code}: {_inside('Message', self._text) or 'the server says no more'}"[:300]
        if self.status is not None:
            return f"the server answered with status {self.status}"
        if self._wire == "Timeout":
            return "no answer in time"
        if self._wire is not None:
            details = re.findall(r'(?:message|error): "([^"]+)"', self._details)
            told = "the connection failed" if self.is_unreachable else "it broke off"
            return ": ".join([told, *details[-1:]])
        first = self._text.partition("\n")[0] or type(self.error).__name__
        return re.sub(r"\S+://\S+", "…", re.sub(r"^Generic \w+ error: ", "", first))


class CloudStore(ServedStore):
    """A store in a container of a cloud. Safe to use from several threads, and not after a fork.
    Large puts, and deletes of many objects, have ten times as long as the limits say."""

    def __init__(self, cloud: Cloud, settings: StorePlace, *, limits: RetryLimits = USUAL) -> None:
        url = urlsplit(settings.url)
        self._cloud = cloud
        self._attempts = limits.attempts
        self._prefix = f"{path}/" if (path := url.path.strip("/")) else ""
        self.url = settings.url.rstrip("/")
        self.requests = Requests()
        for name in cloud.sent:
            if not ((value := os.environ.get(name, "")).isascii() and value.isprintable()):
                reason = f"{name} holds a line break, or another character that can't be sent"
                raise StoreError("open", self.url, reason, cloud.credentials)  # its client would panic
        endpoint, patience = settings.endpoint_url, timedelta(seconds=limits.timeout)
        usual = {"connect_timeout": patience, "allow_http": (endpoint or "").startswith("http://")}
        # An answer is waited for from the beginning of the request on, and a large one takes longer to send.
        options = (usual | {"read_timeout": patience, "timeout": "1d"}, usual | {"timeout": patience * 10})
        try:
            self._client, self._patient = (
                cloud.connect(
                    url.netloc, endpoint, {"client_options": it, "retry_config": {"max_retries": 0}}
                )
                for it in options
            )
        except _FAILURES as error:
            raise StoreError("open", self.url, Failure(error).reason, cloud.credentials) from error

    def put_bytes(
        self,
        key: str,
        data: bytes,
        *,
        if_absent: bool = False,
        storage_class: str | None = None,  # noqa: ARG002 - the policy file refuses them
        locked_from: datetime | None = None,  # noqa: ARG002 - as it does locks
    ) -> None:
        """Uploads an object. If the reply is lost, finds out what the container holds."""
        try:
            self._put(key, data, "create" if if_absent else "overwrite")
        except Failure as failure:
            failed = self._error("put", key, failure)
            if not failure.had_effect:
                raise failed from failure.error
            self._look_up(key, data, failed, failure.error, may_come=failure.may_still_happen)

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
        """Removes objects, many at once. Absent ones are no error."""
        waiting = iter(keys)
        while batch := list(islice(waiting, _DELETE_BATCH)):
            try:
                self._delete(batch)
            except NotFound:  # which ends the batch
                for key in batch:
                    try:
                        self._delete([key])
                    except NotFound:
                        continue

    def versioning(self) -> Versioning:
        """Returns that it can't be asked."""
        return Versioning(keeps_versions=None, has_locks=None)

    def older_versions(self, prefix: str) -> Sequence[OlderVersions]:
        """Returns that they can't be asked for."""
        why = f"bucketwise has no way to ask this {self._cloud.container} for versions and soft-deleted files"
        return [OlderVersions(f"{self.url}/{prefix}", unknown=why)]

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

    def _put(self, key: str, data: bytes, mode: Any) -> None:
        name, client = self._name(key), self._client if len(data) <= _LARGE else self._patient
        self._try("put", lambda: obstore.put(client, name, data, mode=mode, use_multipart=False))

    def _delete(self, keys: Sequence[str]) -> None:
        names, client = [self._name(key) for key in keys], self._patient if len(keys) > 1 else self._client
        requests = 1 if self._cloud.deletes_many else len(names)
        self._ask("delete", keys[0], lambda: obstore.delete(client, names), requests)

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
            except _FAILURES as error:
                failure = Failure(error)
                had_effect = failure.had_effect = had_effect or not failure.is_harmless
                may_still_happen = failure.may_still_happen = may_still_happen or failure.is_slow
                if attempt == self._attempts or not failure.is_transient:
                    raise failure from error
            time.sleep(random.random() * 2 ** (attempt - 1))
        raise AssertionError("unreachable")

    def _error(self, operation: str, key: str, failure: Failure) -> StoreError:
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
            return Denied(operation, place, reason, "Grant these credentials that right.")
        if failure.is_unreachable:
            return StoreError(operation, place, reason, _ENDPOINT)
        if failure.code in cloud.taken:
            return AlreadyExists(operation, place, "it already exists")
        return StoreError(operation, place, reason, _AGAIN if failure.is_transient else "")

    def _refuses_overwrite(self, key: str) -> bool:
        try:
            self._put(key, b"overwritten", "create")
        except Failure as failure:
            if failure.code in self._cloud.taken:
                return True
            raise self._error("put", key, failure) from failure.error
        return False


def _inside(tag: str, text: str) -> str:
    """Returns the first line inside an XML element; empty where there is none."""
    found = re.search(rf"<{tag}>([^<\n]*)", text)
    return found[1].strip() if found else ""
