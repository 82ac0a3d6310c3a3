"""Copies of buckets that are being made, by threads of this process or by tasks in others.

Nothing here writes to MongoDB, and no copy is part of the archive before the run that asked for it commits
it. The files of a copy that was given up are cleared by a later run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

from bucketwise.archivers.context import offline_archive
from bucketwise.archivers.format.archive import Copied, OfflineArchive
from bucketwise.archivers.format.manifest import Manifest
from bucketwise.archivers.format.writing import Maker
from bucketwise.archivers.tasks import Connections, Executor
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.decoding.decode import BucketSet
from bucketwise.buckets.source import Source
from bucketwise.config.errors import BucketwiseError, HaltedError
from bucketwise.config.policies import Policy
from bucketwise.rollups.tasks import result_of

#: Copies that this process makes while the one before is committed and its buckets are deleted; and one more
#: once the next is ready. Two at once keep two cores busy; each takes memory.
MAX_PENDING = 1


class _PendingCopy(NamedTuple):
    copy: Future[Any]
    accept: Callable[[Any], Copied]  # of what it gives


class Copies:
    """The copies of one run."""

    def __init__(
        self, archive: OfflineArchive, maker: Maker, executor: Executor, check: Callable[[], None]
    ) -> None:
        """`check` raises where the run must stop. It is called from threads too."""
        self._archive = archive
        self._maker = maker
        self._executor = executor
        self._check = check
        # Measurements of a native time-series collection can't be queried by `_id`.
        self._uses_workers = executor.workers > 1 and maker.timeseries is None
        self._threads = ThreadPoolExecutor(MAX_PENDING + 1, "bucketwise-copier")
        self._pending: deque[_PendingCopy] = deque()
        self._largest = 1  # bytes of the buckets of one copy

    @property
    def max_pending(self) -> int:
        """Returns how many copies may be pending while others are committed. Buckets that workers copy are
        held here as well, to be compared with what was written."""
        if not self._uses_workers:
            return MAX_PENDING
        return max(1, min(self._executor.workers, self._executor.memory // (2 * self._largest)))

    def begin(self, buckets: BucketSet) -> None:
        """Begins to copy buckets, and takes them over: a thread frees what was decoded of them."""
        types = self._archive.types_for(buckets.decoded.columns.series)
        self._largest = max(self._largest, buckets.batch.size)
        if self._uses_workers:
            buckets.forget()
            given = buckets.batch.main.raw_ids, buckets.batch.digest, types, self._maker
            copy = self._executor.submit(copy_buckets, buckets.policy, *given)
            self._pending.append(_PendingCopy(copy, partial(self._accept, buckets, types)))
        else:  # no longer needs the buckets once they are copied
            copied = self._threads.submit(self._copy, buckets, types)
            self._pending.append(_PendingCopy(copied, lambda it: it))

    def completed(self, pending: int) -> Iterator[Copied]:
        """Waits until at most `pending` copies are left, and yields the others in the order in which they
        were begun. Raises what copying raised."""
        while len(self._pending) > pending:
            copy, accept = self._pending.popleft()
            yield accept(result_of(copy, self._check))

    def close(self) -> None:
        """Gives up pending copies. Raises HaltedError where one of them was not equal to its originals, since
        the run may be ending for another reason and would not report it."""
        for begun in self._pending:
            begun.copy.cancel()
        self._threads.shutdown(cancel_futures=True)
        for begun in self._pending:
            done = begun.copy.done() and not begun.copy.cancelled()
            if done and isinstance(error := begun.copy.exception(), HaltedError):
                raise error

    def _copy(self, buckets: BucketSet, types: dict[str, str]) -> Copied:
        return self._archive.copy([buckets], types, self._maker, self._check)

    def _accept(self, buckets: BucketSet, types: dict[str, str], draft: Manifest | None) -> Copied:
        """Reads a worker's copy back in this process, without trusting the worker's own check."""
        if draft is None:  # a bucket has changed since it was read here
            return self._copy(buckets, types)
        for file in draft.files:
            found = self._archive.store.head(file.key)
            if found is None or found.size != file.bytes:
                raise BucketwiseError(
                    f"{self._archive.store.url}/{file.key}: a worker wrote it, and it is not there. "
                    "Name the store so that it is the same from every machine that works (no folder that is "
                    "not shared). Nothing was deleted; it is safe to run again"
                )
        if not self._archive.holds(draft, buckets.batch):
            raise HaltedError(
                f"policy {buckets.policy.name}: commit {draft.commit}, copied by a worker to "
                f"{self._archive.store.url}, does not contain the documents that were read. Nothing was "
                "deleted. Look at the worker and the store, then run again"
            )
        return Copied(draft, buckets.batch)


def copy_buckets(
    connections: Connections,
    policy: Policy,
    raw_ids: Sequence[bytes],
    digest: str,
    types: dict[str, str],
    maker: Maker,
) -> Manifest | None:
    """Reads the buckets with these `_id`s, copies them, and verifies the copy, as a task. Returns None, and
    writes nothing, where they are no longer as the run has read them. `digest`: of the run's batch."""
    found = Batch.concat(list(Source(connections.database, policy).by_raw_ids(raw_ids)))
    place = {raw_id: i for i, raw_id in enumerate(found.main.raw_ids)}
    if any(raw_id not in place for raw_id in raw_ids):
        return None
    batch = found.take([place[raw_id] for raw_id in raw_ids])
    if batch.digest != digest:
        return None

    def check() -> None:
        if (connections.fence_of(policy.identity) or 0) > maker.fence:
            raise BucketwiseError(
                f"policy {policy.name}: another run holds the lease by now, and what a worker was asked to "
                "copy is that run's. It is safe to run again"
            )

    archive = offline_archive(connections, policy)
    assert archive is not None
    return archive.copy([BucketSet(batch, policy)], types, maker, check).draft
