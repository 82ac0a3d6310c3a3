"""Documents of an online archive that no receipt names, since the database was restored without some of its
receipts, or somebody has put them there."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.records.copies import CopyReceipts
from bucketwise.archivers.records.deletions import KEPT, facts_of_archived
from bucketwise.archivers.writes.delete import chunks
from bucketwise.archivers.writes.online import archived_source
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.fields.times import FIRST_MS, LAST_MS
from bucketwise.rollups.guarded import transaction


def unknown(context: ArchiveContext) -> Iterator[Batch]:
    """Yields the archived buckets that no receipt names."""
    receipts = CopyReceipts(context.database, context.policy, None)
    for batch in archived_source(context.database, context.policy).ending(FIRST_MS, LAST_MS + 1):
        context.check()
        if found := receipts.unknown(batch):
            yield batch.take(found)


def adopt_unknown(context: ArchiveContext) -> None:
    """Has receipts name them from now on, as copies whose originals somebody else has deleted."""
    for batch in unknown(context):
        for piece in chunks(batch):
            decoded = decode(piece, context.policy)
            if not len(decoded.units):
                continue
            found = piece.take(np.sort(decoded.units))
            facts = {"buckets": len(found), **facts_of_archived(found.main.ids, found, decoded.spans())}
            step = partial(context.deletions.record_of_copies, KEPT, facts)
            transaction(context.database, context.guard, step)
