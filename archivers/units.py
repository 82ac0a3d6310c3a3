"""Units of work with a database and a store: functions of plain values that give plain values and write
nothing to MongoDB. They are done here, or in other processes that open both by the settings."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from pymongo.database import Database

from archivers.format.archive import OfflineArchive
from archivers.stores.base import ObjectStore
from config.errors import BucketwiseError
from config.policies import USUAL_MEMORY, Policy
from rollups.units import at_once

Document = dict[str, Any]
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Opened:
    """What a unit works with, in the process that does it."""

    database: Database[Document]
    store: ObjectStore | None
    #: The fence of the lease of a policy, as it is now; None where none was ever taken.
    fence_of: Callable[[str], int | None] = lambda _policy: None


class Units(Protocol):
    """Where units are done."""

    @property
    def workers(self) -> int:
        """How many are done at once."""

    @property
    def memory(self) -> int:
        """Bytes that a run may take: for results that wait for their turn, and for what is copied."""

    def submit(
        self, unit: Callable[Concatenate[Opened, P], T], *plain: P.args, **named: P.kwargs
    ) -> Future[T]:
        """`unit`: a function of a module. What it raises, the future's `result()` raises."""


@dataclass(frozen=True)
class Here:
    """In this process, one after another, each when it is submitted."""

    opened: Opened
    workers: int = 1
    memory: int = USUAL_MEMORY

    def submit(
        self, unit: Callable[Concatenate[Opened, P], T], *plain: P.args, **named: P.kwargs
    ) -> Future[T]:
        return at_once(unit, self.opened, *plain, **named)


@dataclass(frozen=True)
class Sight:
    """What tells the collections and the archive of a policy from others of the same name. A URI such as
    mongodb://localhost, or a file:// store, is another place on another machine: a worker that found nothing
    there would give what passes for an empty slice."""

    collections: frozenset[tuple[str, str]]  # name, uuid
    commits: str  # SHA-256 of their names


def sight(opened: Opened, policy: Policy) -> Sight:
    names = [*policy.sources, f"system.buckets.{policy.collection}"]
    names += [policy.archive.collection] if policy.archive and policy.archive.collection else []
    found = opened.database.list_collections(filter={"name": {"$in": names}})
    uuids = frozenset((it["name"], str(it["info"].get("uuid"))) for it in found)
    commits: list[str] = []
    if policy.archive is not None and policy.archive.to == "offline" and opened.store is not None:
        commits = [it.name for it in OfflineArchive(policy, opened.store).commits()]
    return Sight(uuids, sha256("\n".join(commits).encode()).hexdigest())


def check_sight(opened: Opened, policy: Policy, expected: Sight) -> None:
    """Raises BucketwiseError where this process sees other collections, or another archive."""
    found = sight(opened, policy)
    if found == expected:
        return
    what = "another archive" if found.collections == expected.collections else "other collections"
    place = opened.store.url if what == "another archive" and opened.store else opened.database.name
    raise BucketwiseError(
        f"policy {policy.name}: a worker sees {what} in {place} than this run does. Name MongoDB and "
        "the store so that they are the same from every machine that works (no localhost, no folder that is "
        "not shared). Nothing was written from what it read; it is safe to run again"
    )
