"""Checkpoints of an archive: what the chain of its manifests leads to, at one number of it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial

from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.format.chain import Checkpoint, CheckpointRecord
from bucketwise.archivers.format.manifest import DamagedError, LastReceipt, Link, Manifest, encoded
from bucketwise.archivers.format.names import checkpoint_key, checkpoints_prefix
from bucketwise.archivers.records.deletions import are_known, last_receipt
from bucketwise.archivers.records.heads import (
    Heads,
    last_checkpoint,
    link_of,
    unreached,
    write_checkpoint_record,
)
from bucketwise.archivers.run import ArchiveRun
from bucketwise.rollups.context import transaction

_logger = logging.getLogger(__name__)
#: Manifests between two checkpoints; or an eighth of the commits that the last one lists, if that is more:
#: so writes stay in proportion to commits.
EVERY, SHARE = 64, 8
_LOST = "manifests tell of receipts that the database does not have (`bucketwise verify` says which)"


def make_due_checkpoint(run: ArchiveRun, archive: OfflineArchive, heads: Heads) -> None:
    """Makes a checkpoint where one is due. Raises DamagedError where the chain does not lead to all."""
    if is_due(heads) or is_gone(archive, heads.checkpoint):
        checkpoint = _proven(run, heads)
        if checkpoint is None:
            return
        archive.chain.put(checkpoint.key, encoded(checkpoint))
        record = partial(write_checkpoint_record, run.receipts, checkpoint.record)
        transaction(run.database, run.guard, record)
        drop_others(archive, checkpoint)


def is_due(heads: Heads) -> bool:
    """Returns whether enough manifests have come since the last checkpoint."""
    last = heads.checkpoint or CheckpointRecord(0, "", 0)
    return heads.sequence - last.sequence >= max(EVERY, last.commits // SHARE)


def is_gone(archive: OfflineArchive, record: CheckpointRecord | None) -> bool:
    """Returns whether the recorded checkpoint is not in the store."""
    if record is None:
        return False
    key = checkpoint_key(archive.policy.identity, record.sequence, record.sha256)
    return archive.store.head(key) is None


def _proven(run: ArchiveRun, heads: Heads) -> Checkpoint | None:
    """Returns a checkpoint for all commits that the chain has been verified to lead to. Returns None where
    manifests name receipts that are missing: a checkpoint would keep them from being read again, and so from
    being reported."""
    archive, receipts = run.offline(run.keys), run.receipts
    registered = receipts.all_registered()
    archive.chain.expect({name: it.seal for name, it in registered.items()})
    named: dict[tuple[int, str], LastReceipt] = {}
    reached = _vouched(run, archive, heads)
    for it in heads.walk(archive.chain, registered.values(), frozenset(reached)):
        run.check()
        if not isinstance(it, Manifest):
            raise it
        reached.add(it.link)
        if it.receipt is not None:
            named[it.receipt.sequence, it.receipt.sha256] = it.receipt
    for error in unreached(receipts, archive, heads, registered.values(), reached):
        raise error
    if not are_known(receipts, run.receipt_files, named.values()):
        _logger.warning("policy %s: no checkpoint was made: %s", run.policy.name, _LOST)
        return None
    listed = [link_of(it) for it in sorted(registered.values(), key=lambda it: it.sequence)]
    made = Checkpoint(
        policy=archive.policy.identity,
        sequence=heads.sequence,
        heads=heads.links,
        commits=tuple(listed),
        receipt=last_receipt(receipts),
        created=run.now,
    )
    return archive.chain.sealed(made)


def _vouched(run: ArchiveRun, archive: OfflineArchive, heads: Heads) -> set[Link]:
    try:
        last = last_checkpoint(run.receipts, archive, heads)
    except DamagedError as error:
        _logger.warning("%s", error)
        return set()
    return set(last.links) if last else set()


def drop_others(archive: OfflineArchive, checkpoint: Checkpoint) -> None:
    """Removes earlier checkpoints, and those left by interrupted runs."""
    policy = archive.policy.identity
    found = archive.store.list(checkpoints_prefix(policy))
    archive.store.delete(outdated(policy, checkpoint.record, (it.key for it in found)))


def outdated(policy: str, last: CheckpointRecord | None, keys: Iterable[str]) -> list[str]:
    """Returns those of these keys that are of other checkpoints than the last one. Leaves those with a larger
    number: they may belong to a run that has taken over the lease."""
    if last is None:
        return []
    begin, end = checkpoints_prefix(policy), checkpoint_key(policy, last.sequence + 1, "")
    return [it for it in keys if begin < it < end and it != checkpoint_key(policy, *last[:2])]
