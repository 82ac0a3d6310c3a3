"""What proves an archive: the end of its chain, the key that signs, and which of its days were restored."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from bucketwise.archivers.binding.deployment import Deployment
from bucketwise.archivers.binding.records import OWNER
from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.format.checkpoint import CheckpointRecord
from bucketwise.archivers.format.manifest import LastReceipt, Link
from bucketwise.archivers.records.days import CommitDays
from bucketwise.archivers.records.deletions import last_receipt
from bucketwise.archivers.records.faults import reading
from bucketwise.archivers.records.heads import read_heads
from bucketwise.archivers.records.receipts import CODEC, Receipts
from bucketwise.archivers.records.recorded import TIME

Document = dict[str, Any]
#: Kinds of the receipts of what people decided about an archive, each with a reason.
EVENTS = (TIME, "adopt", "retire")


class Ownership(NamedTuple):
    """Whose archive it is, as the database records it. `baseline`: it was there before that was
    recorded."""

    owner: str
    since: datetime
    baseline: bool
    lineage: int


class Attestation(NamedTuple):
    """What proves an archive. `heads`, `checkpoint` and `receipt` as MongoDB records them. `last`: the last
    receipt itself; None where it lies in the store. `events`: receipts of what people decided about the
    archive. `key`: the id of the key that signs."""

    heads: tuple[Link, ...]
    checkpoint: CheckpointRecord | None
    receipt: LastReceipt | None
    last: Document | None
    events: list[Document]
    key: str | None
    days: int  # UTC days on which commits begin
    drilled: int  # days of which all commits were drilled
    oldest_drill: datetime | None  # of the drilled days
    last_drill: datetime | None
    ownership: Ownership | None  # None: nothing was archived yet


def attestation(context: ArchiveContext) -> Attestation:
    """Returns what MongoDB records of the archive. Reads nothing of the store."""
    heads = read_heads(context.receipts)
    drilled, last = CommitDays(context.receipts).drilled(), last_receipt(context.receipts)
    times = [it for it in drilled.values() if it is not None]
    return Attestation(
        heads.links if heads else (),
        heads.checkpoint if heads else None,
        last,
        next(context.receipts.numbered(last.sequence - 1, most=1), None) if last else None,
        _events(context.receipts),
        context.keys.first,
        len(drilled),
        len(times),
        min(times, default=None),
        max(times, default=None),
        _ownership(context),
    )


def _events(receipts: Receipts) -> list[Document]:
    query = {"_id.policy": receipts.policy, "kind": {"$in": list(EVENTS)}}
    return list(receipts.collection.with_options(codec_options=CODEC).find(query).sort("sequence"))


def _ownership(context: ArchiveContext) -> Ownership | None:
    receipts = context.receipts
    found = receipts.collection.with_options(codec_options=CODEC).find_one({"_id": receipts.identity(OWNER)})
    if found is None or "deployment" not in found:
        return None
    with reading(OWNER):
        return Ownership(
            Deployment.of(found["deployment"]).name,
            found["since"],
            found["baseline"],
            found.get("lineage", {}).get("done", 0),
        )
