"""Slices of live and archived buckets, read by tasks."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import Future
from dataclasses import dataclass

from bucketwise.archivers.context import ArchiveContext, offline_archive
from bucketwise.archivers.reading.archived import ArchivedReader, archived_reader
from bucketwise.archivers.records.heads import commit_of_link, read_heads
from bucketwise.archivers.records.receipts import Receipts
from bucketwise.archivers.tasks import Connections, LocalExecutor
from bucketwise.buckets.layouts.groups import Unions
from bucketwise.buckets.source import Source
from bucketwise.config.errors import BucketwiseError
from bucketwise.config.policies import Policy
from bucketwise.rollups.context import run_now
from bucketwise.rollups.rolling.slices import ArchivedHalf, SliceReader, SliceRequest, SliceStates, read


def slice_reader(context: ArchiveContext, archived: ArchivedReader) -> SliceReader:
    """Returns the reader of slices for one roll-up, during which the archive does not change."""
    executor, connections, policy = context.executor, context.connections, context.policy
    if isinstance(executor, LocalExecutor):
        source, unions = Source(connections.database, policy), Unions()
        return SliceReader(
            lambda request: run_now(_read, source, archived, policy, request, unions), memory=executor.memory
        )
    run, seen = uuid.uuid4().hex, SourceIdentity.of(connections, policy)

    def read_elsewhere(request: SliceRequest) -> Future[SliceStates]:
        return executor.submit(read_slice, policy, run, seen, request)

    return SliceReader(read_elsewhere, executor.workers, executor.memory)


def read_slice(
    connections: Connections, policy: Policy, run: str, expected: SourceIdentity, request: SliceRequest
) -> SliceStates:
    """Reads a slice, as a task. A worker reads the archive's manifests once for each `run`."""
    if getattr(_KEPT, "run", None) != run:
        expected.check(connections, policy)
        _KEPT.archived = archived_reader(connections, policy)
        _KEPT.run, _KEPT.unions = run, Unions()
    return _read(Source(connections.database, policy), _KEPT.archived, policy, request, _KEPT.unions)


def _read(
    source: Source, archived: ArchivedReader, policy: Policy, request: SliceRequest, unions: Unions
) -> SliceStates:
    """Also returns which commits were read."""
    found = read(source, ArchivedHalf(archived.batches, archived.restored), policy, request, unions)
    found.commits = archived.take_read()
    return found


#: One for each thread: a worker of a cluster may have several.
_KEPT = threading.local()


@dataclass(frozen=True)
class SourceIdentity:
    """Tells the collections and the archive of a policy from others of the same name. A URI such as
    mongodb://localhost, or a file:// store, is another place on another machine: a worker that found nothing
    there would return what looks like an empty slice."""

    collections: frozenset[tuple[str, str]]  # name, uuid
    has_heads: bool  # the store has the last commits that the database knows of

    @classmethod
    def of(cls, connections: Connections, policy: Policy) -> SourceIdentity:
        """Returns the identity of what these connections reach."""
        names = [*policy.sources, f"system.buckets.{policy.collection}"]
        names += [policy.archive.collection] if policy.archive and policy.archive.collection else []
        found = connections.database.list_collections(filter={"name": {"$in": names}})
        archive = offline_archive(connections, policy)
        heads = read_heads(Receipts(connections.database, policy.identity))
        links = heads.links if archive is not None and heads is not None else ()
        return cls(
            frozenset((it["name"], str(it["info"].get("uuid"))) for it in found),
            all(archive is not None and archive.is_there(commit_of_link(it)) for it in links),
        )

    def check(self, connections: Connections, policy: Policy) -> None:
        """Raises BucketwiseError where this process sees other collections, or another archive."""
        found = SourceIdentity.of(connections, policy)
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
