"""What proves an archive: the end of its chain, the key that signs, and which of its days were restored."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from archivers.context import ArchiveContext
from archivers.format.checkpoint import CheckpointRecord
from archivers.format.manifest import LastReceipt, Link
from archivers.records.days import CommitDays
from archivers.records.deletions import last_receipt
from archivers.records.heads import read_heads


class Attestation(NamedTuple):
    """What proves an archive. `heads`, `checkpoint` and `receipt` as MongoDB records them. `key`: the id of
    the key that signs."""

    heads: tuple[Link, ...]
    checkpoint: CheckpointRecord | None
    receipt: LastReceipt | None
    key: str | None
    days: int  # UTC days on which commits begin
    drilled: int  # days of which all commits were drilled
    oldest_drill: datetime | None  # of the drilled days
    last_drill: datetime | None


def attestation(context: ArchiveContext) -> Attestation:
    """Returns what MongoDB records of the archive. Reads nothing of the store."""
    heads = read_heads(context.receipts)
    drilled = CommitDays(context.receipts).drilled()
    times = [it for it in drilled.values() if it is not None]
    return Attestation(
        heads.links if heads else (),
        heads.checkpoint if heads else None,
        last_receipt(context.receipts),
        context.keys.first,
        len(drilled),
        len(times),
        min(times, default=None),
        max(times, default=None),
    )
