"""Verifies an online archive: every document of it by its receipt, every receipt by its document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
from pymongo.client_session import ClientSession

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.format.manifest import DamagedError
from bucketwise.archivers.moving.archive import check_collections
from bucketwise.archivers.records.copies import CopyReceipts, id_hashes
from bucketwise.archivers.records.deletions import KEPT, facts_of_archived
from bucketwise.archivers.records.online_heads import ArchivedDays
from bucketwise.archivers.verifying.report import VerifyReport, verify_receipts
from bucketwise.archivers.versions.kept import KeptVersions, beside
from bucketwise.archivers.writes import archive_collections, archived_source, chunks
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.fields.selectors import extended_json
from bucketwise.buckets.fields.times import EVER, FIRST_MS, LAST_MS, TimeRange
from bucketwise.rollups.context import transaction
from bucketwise.rollups.progress import note_left


def unknown(context: ArchiveContext) -> Iterator[Batch]:
    """Yields the archived buckets that no receipt names, not even as erased."""
    receipts = CopyReceipts(context.database, context.policy, None)
    for batch in archived_source(context.database, context.policy).ending(FIRST_MS, LAST_MS + 1):
        context.check()
        if found := receipts.never_named(batch):
            yield batch.take(found)


def adopt_unknown(context: ArchiveContext) -> None:
    """Has receipts name them from now on, as copies whose originals somebody else has deleted."""
    for batch in unknown(context):
        for piece in chunks(batch):
            decoded = decode(piece, context.policy)
            if not len(decoded.units):
                continue
            found, spans = piece.take(np.sort(decoded.units)), decoded.spans()
            note_left(context.database, context.policy, [(int(spans.min()), int(spans.max()) + 1)])
            facts = {"buckets": len(found), **facts_of_archived(found.main.ids, found, spans)}
            transaction(context.database, context.guard, partial(_adopt, context, found, facts))


def _adopt(context: ArchiveContext, found: Batch, facts: dict[str, Any], session: ClientSession) -> None:
    context.deletions.record_of_copies(KEPT, facts, session)
    ArchivedDays(context.receipts, context.policy).note(found, context.now, session)


def verify(context: ArchiveContext, within: TimeRange = EVER) -> VerifyReport:
    """Reads all documents that touch the range, which have to be those that receipts name, and looks for what
    these name besides. Without a range also the receipts, and the versions beside the archive."""
    report = VerifyReport()
    is_there = verify_heads(context, report)
    if not within.is_bounded:
        verify_beside(context, report)
    if is_there:
        source = archived_source(context.database, context.policy)
        if within.is_bounded:
            verify_range(context, report, source.batches(within.start_ms, within.end_ms), within, is_all=True)
        else:
            verify_range(context, report, source.ending(FIRST_MS, LAST_MS + 1), within, is_all=False)
    return report


def verify_heads(context: ArchiveContext, report: VerifyReport) -> bool:
    """Verifies that the collections are those that were left. Returns whether they are there."""
    try:
        check_collections(context.database, context.policy, context.keys)
    except DamagedError as error:
        report.add(error)
        return error.code == "archive-short"
    return True


def verify_beside(context: ArchiveContext, report: VerifyReport) -> None:
    """Verifies the receipts, documents that no time finds, overflow that belongs to no bucket, and the
    versions beside the archive."""
    source = archived_source(context.database, context.policy)
    receipts = CopyReceipts(context.database, context.policy, None)
    for batch in source.untimed():
        _compare(context, report, batch, receipts)
    for found in source.orphans():
        for i in range(len(found)):
            place = f"{archive_collections(context.policy)[1]}, _id {extended_json(found.legible_id(i))}"
            what, remedy = "it belongs to no archived bucket", "Find out who put it there, and move it away"
            report.add(DamagedError("copy-unknown", place, what, remedy))
    for faults, versions in KeptVersions(context.database, context.policy).pages():
        context.check()
        report.add(*faults, *receipts.altered(beside(versions)))
    verify_receipts(context, report)
    report.add(*ArchivedDays(context.receipts, context.policy).faults())


def verify_range(
    context: ArchiveContext,
    report: VerifyReport,
    found: Iterable[Batch],
    within: TimeRange,
    *,
    is_all: bool,
) -> None:
    """Compares the documents of a range with receipts, and looks for what receipts of the range name
    besides. `is_all`: no other documents are compared, which may have been of the range, nor are receipts
    verified otherwise."""
    keys = context.keys if is_all else None
    receipts, seen = CopyReceipts(context.database, context.policy, keys), set[int]()
    try:
        for batch in found:
            seen.update(id_hashes(batch))
            _compare(context, report, batch, receipts)
        report.add(*receipts.missing(within.start_ms, within.end_ms - 1, seen if is_all else None))
    except DamagedError as error:  # a receipt: what it tells can't be compared with
        report.add(error)


def _compare(context: ArchiveContext, report: VerifyReport, batch: Batch, receipts: CopyReceipts) -> None:
    context.check()
    report.add(*receipts.mismatches(batch).values())
    report.parts += len(batch)
    report.readings += len(decode(batch, context.policy).columns.time)
    context.progress("verified buckets", len(batch))
