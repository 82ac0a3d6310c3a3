"""Releases restored buckets that are pinned in the hot collection."""

from __future__ import annotations

from functools import partial

from bucketwise.archivers.context import ArchiveContext
from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.fields.times import EVER, TimeRange
from bucketwise.rollups.guarded import transaction


def unpin(context: ArchiveContext, within: TimeRange = EVER) -> int:
    """Releases the pinned buckets with a reading in the range, or all without a range. Returns how many. If
    it is cut off, the next call finishes it."""
    pins, released = context.pins, 0
    for page in pins.pages():
        context.check()
        ids = page
        if within.is_bounded:
            ids = [
                batch.main.decode_id(i)
                for batch in context.source.by_ids(page)
                for decoded in [decode(batch, context.policy)]
                for i in decoded.units[decoded.touching(within.start_ms, within.end_ms)].tolist()
            ]
        count = transaction(context.database, context.guard, partial(pins.release, ids))
        context.progress("released buckets", count)
        released += count
    return released
