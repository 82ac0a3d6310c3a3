"""Many commits, as runs of every hour leave them, without the runs: in a fraction of the time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from bson.raw_bson import RawBSONDocument
from pymongo.client_session import ClientSession

from bench.age.history import History
from bucketwise.archivers.context import ArchiveContext, Connections, LocalExecutor
from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.format.chain import ChainPosition
from bucketwise.archivers.format.manifest import Manifest
from bucketwise.archivers.format.writing import Maker
from bucketwise.archivers.records.deletions import last_receipt
from bucketwise.archivers.records.heads import heads_update, read_heads
from bucketwise.archivers.records.receipts import facts_of
from bucketwise.buckets.bson.raw import Batch, Docs
from bucketwise.buckets.decoding.decode import BucketSet
from bucketwise.jobs.core.lease import fence_of
from bucketwise.jobs.rollup import ROLLUP
from bucketwise.jobs.run.verb import RUN
from bucketwise.rollups.context import transaction

Document = dict[str, Any]
#: Commits that one transaction registers.
_BATCH_SIZE = 200


def commit_hourly(history: History, hours: int) -> None:
    """Writes the next hours, rolls them up, and archives each in a commit of its own; one policy alone. What
    a run does for a commit is done here, but that no document is read again before it is deleted."""
    history.cost(RUN)  # the archive gets its owner, the receipts their indexes
    history.write(hours)
    history.cost((ROLLUP,))
    (policy,) = history.all
    context = ArchiveContext(
        history.database,
        policy,
        history.now,
        guard=_nothing,
        check=_nothing,
        progress=_nothing,
        store=history.store,
        executor=LocalExecutor(Connections(history.database, history.store)),
        fence=fence_of(history.database, policy.name) or 0,
    )
    archive = context.offline()
    assert archive is not None
    source = history.database.get_collection(policy.collection, context.receipts.collection.codec_options)
    by_hour = itertools.groupby(source.find().sort("d"), key=lambda it: it["d"])
    hourly = (Batch.of(Docs.of([_raw(it) for it in documents])) for _, documents in by_hour)
    while batches := list(itertools.islice(hourly, _BATCH_SIZE)):
        _register(context, archive, batches)
    source.delete_many({})


def _raw(document: Any) -> bytes:
    assert isinstance(document, RawBSONDocument)
    return bytes(document.raw)


def _nothing(*_args: object) -> None:
    """Lets everything pass."""


def _register(context: ArchiveContext, archive: OfflineArchive, batches: Sequence[Batch]) -> None:
    maker = Maker(context.database.name, context.fence, context.now)
    heads, receipt = read_heads(context.receipts), last_receipt(context.receipts)
    sequence, links = (heads.sequence, heads.links) if heads else (0, ())
    manifests: list[Manifest] = []
    for batch in batches:
        buckets = BucketSet(batch, context.policy)
        copied = archive.copy([buckets], archive.types_for(buckets.decoded.columns.series), maker, _nothing)
        position = ChainPosition(sequence + 1, links, receipt)
        manifests.append(archive.commit(copied, position, _nothing))
        sequence, links = manifests[-1].sequence, (manifests[-1].link,)

    def step(session: ClientSession) -> None:
        for manifest, batch in zip(manifests, batches, strict=True):
            gone, count = np.zeros(manifest.buckets, dtype=np.bool_), manifest.buckets
            facts = {**facts_of(manifest), "at": context.now}
            heads = [heads_update(context.receipts, manifest)]
            context.receipts.set_live(manifest.commit, gone, facts, session, count, heads)
            held_by = {"commit": manifest.commit, "manifest_sha256": manifest.sha256}
            context.deletions.record(session, batch, {"positions": [[0, count - 1]]}, held_by)

    transaction(context.database, _nothing, step)
