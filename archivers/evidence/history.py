"""The history of a bucket: what became of its copies, its pin, its records of the quarantine."""

from __future__ import annotations

from collections.abc import Iterator

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.evidence.copies import FoundBucket
from bucketwise.archivers.evidence.grid import Span
from bucketwise.archivers.evidence.kind import Event, Evidence
from bucketwise.archivers.records.pins import Pin
from bucketwise.buckets.bson.raw import TOLERANT, as_queried, without_uuid
from bucketwise.buckets.fields.times import as_ms
from bucketwise.rollups.rolling import quarantine


def history(
    context: ArchiveContext, archived: Evidence, found: FoundBucket, span: Span, pin: Pin | None
) -> list[Event]:
    """Returns what has happened to a bucket, in the order of time; events without a time come last. `span`:
    its first and last time, milliseconds."""
    events = [*_quarantined(context, found.raw_id), *archived.events(found.raw_id, found.copies, span)]
    if pin is not None:
        events.append(Event(None, "pinned", detail=pin.reason))
    return sorted(dict.fromkeys(events), key=lambda it: (it.at is None, it.at and as_ms(it.at)))


def _quarantined(context: ArchiveContext, raw_id: bytes) -> Iterator[Event]:
    name = {"policy": context.policy.identity, "id": without_uuid(as_queried(raw_id))}
    records = context.database.get_collection(quarantine.COLLECTION, codec_options=TOLERANT)
    for it in records.find({"_id": name}):
        yield Event(it["first_seen"], "quarantined", detail=f"{it['field']}: {it['reason']}")
