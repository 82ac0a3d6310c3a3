"""Has receipts tell the versions beside an online archive that count no more, so that each is proven."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from pymongo.client_session import ClientSession

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.records.deletions import SUPERSEDED, facts_of_archived
from bucketwise.archivers.versions.kept import KeptVersions
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.fields.times import FIRST_MS, LAST_MS
from bucketwise.rollups.guarded import transaction


def record_superseded(context: ArchiveContext, found: Sequence[Batch], session: ClientSession) -> None:
    """Records, in the transaction that keeps them, what versions are that count no more."""
    if found:
        versions = Batch.concat(found)
        decoded = decode(versions, context.policy)
        spans = decoded.spans() if len(decoded.units) == len(versions) else np.array([[FIRST_MS, LAST_MS]])
        facts = {"buckets": len(versions), **facts_of_archived(versions.main.ids, versions, spans)}
        context.deletions.record_of_copies(SUPERSEDED, facts, session)


def record_all_superseded(context: ArchiveContext) -> None:
    """Records the versions that counted no more before receipts told them."""
    for _, versions in KeptVersions(context.database, context.policy).pages():
        found = [it.bucket for some in versions.values() for it in some if it.is_superseded]
        if found:
            step = partial(record_superseded, context, found)
            transaction(context.database, context.guard, step)
