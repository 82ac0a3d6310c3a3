"""A run that dies at its n-th step: every store operation, transaction, guard and check is one, or two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

import pytest
from pymongo.client_session import ClientSession

from bucketwise.archivers import writes
from bucketwise.archivers.erasing import erasure as erasing
from bucketwise.archivers.lake import sync as lake
from bucketwise.archivers.moving import online, sweep
from bucketwise.archivers.records.receipts import Receipts
from bucketwise.archivers.recovering import commits
from bucketwise.archivers.restoring import put, settle
from bucketwise.archivers.stores.base import (
    FileKeys,
    ObjectStore,
    OlderVersions,
    Requests,
    StoreObject,
    Versioning,
)
from bucketwise.archivers.versions import merging
from bucketwise.rollups import context

T = TypeVar("T")


class Crash(BaseException):
    """The process is gone: no handler may mend what it leaves."""


@dataclass
class Steps:
    """Counts steps, and dies at one of them. `only`: those of one name count."""

    die_at: int
    only: str = ""
    passed: list[str] = field(default_factory=list)

    def step(self, name: str) -> None:
        if self.only not in ("", name):
            return
        self.passed.append(name)
        if len(self.passed) == self.die_at:
            self.reached(name)

    def reached(self, name: str) -> None:
        raise Crash(name)

    @property
    def died(self) -> bool:
        return len(self.passed) >= self.die_at


#: At some steps of a job in `make test`, at all in the proofs.
FEW_STEPS = pytest.mark.parametrize(
    "few_steps", [True, pytest.param(False, marks=pytest.mark.proof)], ids=["few", "all"]
)
#: One of each kind, after which something else lies there than before.
_TELLING = ("after put_bytes", "before commit", "after commit", "after delete", "before bury")


def deaths(passed: list[str], turn: int, of: int = 1, *, few_steps: bool) -> list[tuple[int, str]]:
    """Where a run that passed these steps is to die; `Steps(*it)` dies there. At all of them, or at
    `few_steps`: so that each kind of a step is met in one of `of` turns."""
    if not few_steps:
        return [(at, "") for at in range(1, len(passed) + 1)]
    counts = Counter(passed)
    mine = [name for at, name in enumerate(_TELLING) if name in counts and at % of == turn % of]
    return [(1 + turn * 7 % counts[name], name) for name in mine]


@dataclass(frozen=True)
class DyingStore:
    """Dies before or after each operation of the store behind it."""

    inner: ObjectStore
    steps: Steps

    def _do(self, name: str, call: Callable[[], T]) -> T:
        self.steps.step(f"before {name}")
        result = call()
        self.steps.step(f"after {name}")
        return result

    @property
    def url(self) -> str:
        return self.inner.url

    @property
    def requests(self) -> Requests:
        return self.inner.requests

    def check_there(self) -> None:
        self.inner.check_there()

    def put_bytes(self, key: str, data: bytes, **given: Any) -> None:
        self._do("put_bytes", lambda: self.inner.put_bytes(key, data, **given))

    def get_bytes(self, key: str, size: int | None = None) -> bytes:
        return self._do("get_bytes", lambda: self.inner.get_bytes(key, size))

    def file_keys(self, key: str) -> FileKeys | None:
        return self.inner.file_keys(key)

    def get_sound(self, key: str, is_sound: Callable[[bytes], bool], size: int | None = None) -> bytes:
        return self._do("get_bytes", lambda: self.inner.get_sound(key, is_sound, size))

    def is_from_copy(self, key: str) -> bool:
        return self.inner.is_from_copy(key)

    def head(self, key: str) -> StoreObject | None:
        return self._do("head", lambda: self.inner.head(key))

    def check(self, key: str, size: int | None, sha256: str) -> None:
        self._do("check", lambda: self.inner.check(key, size, sha256))

    def list(self, prefix: str = "", after: str = "") -> Iterator[StoreObject]:
        yield from self._do("list", lambda: list(self.inner.list(prefix, after)))

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:  # one by one: a crash may leave some

            def one(key: str = key) -> None:
                self.inner.delete([key])

            self._do("delete", one)

    def older_versions(self, prefix: str) -> Sequence[OlderVersions]:
        return self._do("older_versions", lambda: self.inner.older_versions(prefix))

    def versioning(self) -> Versioning:
        return self.inner.versioning()

    def clean_temporaries(self, before: datetime | None, folder: str | None = None) -> int:
        return self._do("clean_temporaries", lambda: self.inner.clean_temporaries(before, folder))

    def unfinished(self, folder: str) -> Sequence[str]:
        return self._do("unfinished", lambda: self.inner.unfinished(folder))

    def probe(self) -> bool:
        raise AssertionError("an archive run doesn't probe")


def die_in_transactions(monkeypatch: pytest.MonkeyPatch, steps: Steps) -> None:
    """Before each transaction, inside it when all is done but the commit, and after it."""
    inner = context.transaction

    def transaction(database: Any, guard: Any, step: Callable[[ClientSession], T]) -> T:
        def stepped(session: ClientSession) -> T:
            result = step(session)
            steps.step("before commit")
            return result

        steps.step("before transaction")
        result = inner(database, guard, stepped)
        steps.step("after commit")
        return result

    for module in (commits, context, erasing, lake, merging, online, put, settle, sweep, writes):
        monkeypatch.setattr(module, "transaction", transaction)
    burying = Receipts.mark_dropped

    def mark_dropped(self: Receipts, name: str) -> None:
        steps.step("before bury")
        burying(self, name)
        steps.step("after bury")

    monkeypatch.setattr(Receipts, "mark_dropped", mark_dropped)
