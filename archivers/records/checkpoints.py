"""Finds the valid checkpoint: the one that MongoDB names beside the heads of the chain."""

from __future__ import annotations

from collections.abc import Collection

from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.format.checkpoint import Checkpoint, read_checkpoint
from bucketwise.archivers.format.manifest import DamagedError, Link, Manifest
from bucketwise.archivers.format.names import Commit
from bucketwise.archivers.records.heads import Heads, link_of, read_heads
from bucketwise.archivers.records.receipts import Receipts


def last_checkpoint(receipts: Receipts, archive: OfflineArchive, heads: Heads) -> Checkpoint | None:
    """Returns the checkpoint that these heads name, or a later one; None where they name none. Raises
    DamagedError where it is not as it was written."""
    record = heads.checkpoint
    if record is None:
        return None
    try:
        return read_checkpoint(archive.store, archive.policy.identity, record, archive.chain.keys)
    except DamagedError:
        now = read_heads(receipts)
        if now is None or now.checkpoint in (None, record):
            raise
    return last_checkpoint(receipts, archive, now)  # a concurrent run has made another one


def unreached(
    receipts: Receipts,
    archive: OfflineArchive,
    heads: Heads,
    registered: Collection[Commit],
    reached: set[Link],
) -> list[DamagedError]:
    """Returns an error for each registered commit that neither the chain nor a checkpoint leads to.
    `reached`: as far as the last checkpoint. A commit that had no receipt when the checkpoint was made is
    older, and not listed in it."""
    missing = [it for it in registered if link_of(it) not in reached and it.seal not in heads.lost]
    still = receipts.registered(it.name for it in missing)  # a concurrent run may have dropped some
    missing = [it for it in missing if still.get(it.name) == it]
    if not missing:
        return []
    whole = heads.walk(archive.chain, registered)
    found = {it.link for it in whole if isinstance(it, Manifest)}
    what = "the chain of manifests does not lead to it"
    lost = [archive.place(it) for it in missing if link_of(it) not in found]
    return [DamagedError("chain-broken", place, what) for place in lost]
