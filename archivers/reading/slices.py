"""Slices of live and archived buckets, read by tasks."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import Future
from dataclasses import dataclass
from hashlib import sha256

from archivers.format.archive import OfflineArchive
from archivers.reading.reader import ArchivedReader
from archivers.tasks import Connections, Executor, LocalExecutor
from buckets.layouts.groups import Unions
from buckets.source import Source
from config.errors import BucketwiseError
from config.policies import Policy
from rollups.rolling.slices import Asked, Found, Reader, here, read


def slice_reader(executor: Executor, connections: Connections, policy: Policy) -> Reader:
    """Returns the reader of one roll-up: what is archived by then does not change until it is done."""
    if isinstance(executor, LocalExecutor):
        archived = ArchivedReader(connections.database, policy, connections.store)
        return here(Source(connections.database, policy), archived.batches, policy, executor.memory)
    run, seen = uuid.uuid4().hex, Sight.of(connections, policy)

    def read_elsewhere(asked: Asked) -> Future[Found]:
        return executor.submit(read_slice, policy, run, seen, asked)

    return Reader(read_elsewhere, executor.workers, executor.memory)


def read_slice(connections: Connections, policy: Policy, run: str, expected: Sight, asked: Asked) -> Found:
    """Reads a slice, as a task. Of one `run`, a worker looks at the archive's manifests once."""
    if getattr(_KEPT, "run", None) != run:
        expected.check(connections, policy)
        _KEPT.archived = ArchivedReader(connections.database, policy, connections.store)
        _KEPT.run, _KEPT.unions = run, Unions()
    return read(Source(connections.database, policy), _KEPT.archived.batches, policy, asked, _KEPT.unions)


#: Of each thread: a worker of a cluster may have several.
_KEPT = threading.local()


@dataclass(frozen=True)
class Sight:
    """What tells the collections and the archive of a policy from others of the same name. A URI such as
    mongodb://localhost, or a file:// store, is another place on another machine: a worker that found nothing
    there would give what passes for an empty slice."""

    collections: frozenset[tuple[str, str]]  # name, uuid
    commits: str  # SHA-256 of their names

    @classmethod
    def of(cls, connections: Connections, policy: Policy) -> Sight:
        names = [*policy.sources, f"system.buckets.{policy.collection}"]
        names += [policy.archive.collection] if policy.archive and policy.archive.collection else []
        found = connections.database.list_collections(filter={"name": {"$in": names}})
        commits: list[str] = []
        if policy.archive is not None and policy.archive.to == "offline" and connections.store is not None:
            commits = [it.name for it in OfflineArchive(policy, connections.store).commits()]
        return cls(
            frozenset((it["name"], str(it["info"].get("uuid"))) for it in found),
            sha256("\n".join(commits).encode()).hexdigest(),
        )

    def check(self, connections: Connections, policy: Policy) -> None:
        """Raises BucketwiseError where this process sees other collections, or another archive."""
        found = Sight.of(connections, policy)
        if found == self:
            return
        what, place = "other collections", connections.database.name
        if found.collections == self.collections and connections.store is not None:
            what, place = "another archive", connections.store.url
        raise BucketwiseError(
            f"policy {policy.name}: a worker sees {what} in {place} than this run does. Name MongoDB and "
            "the store so that they are the same from every machine that works (no localhost, no folder that "
            "is not shared). Nothing was written from what it read; it is safe to run again"
        )
