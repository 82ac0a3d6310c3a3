"""Holds the records of commits against what is sealed: their manifests, and the receipts of deletes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.format.manifest import DamagedError, Manifest
from bucketwise.archivers.records.faults import record_fault
from bucketwise.archivers.records.heads import link_of
from bucketwise.archivers.records.receipts import HELD, REPLACED, Receipts, commit_of, facts_of, live_of
from bucketwise.archivers.records.replacements import check_replaced
from bucketwise.archivers.stores.base import NotFound
from bucketwise.buckets.fields.times import as_ms

Document = dict[str, Any]
#: Facts that change after a commit was registered.
_CHANGING = frozenset({"compacted"})


def check_record(record: Document, manifest: Manifest) -> None:
    """Raises DamagedError where the record of a commit is not what its manifest says, or contradicts
    itself."""
    name = manifest.commit
    for key, value in facts_of(manifest).items():
        if key not in _CHANGING and not _is_same(record.get(key), value):
            raise record_fault(name, f"{key} is not what the manifest of the commit says")
    state, is_open = record.get("state"), bool(live_of(record, manifest.buckets).any())
    if "live" not in record or state not in (("open" if is_open else "closed"), REPLACED, HELD):
        raise record_fault(name, f"the state is {state!r}, which is not what its buckets are")


def _is_same(found: Any, wanted: Any) -> bool:
    try:
        return bool(found == wanted) or as_ms(found) == as_ms(wanted)
    except (TypeError, AttributeError):
        return False


def unfounded(context: ArchiveContext, archive: OfflineArchive) -> Iterator[DamagedError]:
    """Yields an error for each record of a replaced commit that nothing sealed supports."""
    receipts = context.receipts
    for name in [it["_id"]["name"] for it in receipts.replaced()]:
        try:
            record = receipts.get(name)
            if record is not None and record.get("state") in (REPLACED, HELD):
                check_replaced(receipts, archive, record, context.keys)
                commit = commit_of(record)
                assert commit is not None  # its manifest has been read
                check_record(record, archive.chain.link(link_of(commit)))
        except DamagedError as error:
            if (receipts.get(name) or {}).get("state") in (REPLACED, HELD):
                yield error  # else a concurrent run has gone on with it


def returned(receipts: Receipts, replaced: Mapping[str, int]) -> Iterator[DamagedError]:
    """Yields an error for each record which says that a commit must be there, and another one has taken it
    over. `replaced`: the number of the manifest that did so, by the name of the commit."""
    for name, commit in receipts.registered(receipts.current(list(replaced))).items():
        if commit.sequence < replaced[name]:
            what = "it says that the commit must be there, and another one has taken it over"
            yield record_fault(name, what)


def revived(
    context: ArchiveContext, archive: OfflineArchive, deleted: Mapping[str, list[list[int]]]
) -> Iterator[DamagedError]:
    """Yields an error for each record which says that a bucket may be live, though a receipt says that it was
    deleted, and it is not there. `deleted`: ranges of positions, by commit."""
    receipts, known = context.receipts, context.receipts.registered(deleted)
    for name, commit in known.items():
        try:
            manifest = archive.manifest(commit)
        except (DamagedError, NotFound):
            continue  # which is reported
        gone = np.zeros(manifest.buckets, dtype=np.bool_)
        for first, last in deleted[name]:
            gone[first : last + 1] = True
        at = np.flatnonzero(gone & receipts.live(name, manifest.buckets))
        if len(at) and _is_any_absent(context, archive, manifest, at):
            what = "it says that buckets may be live of which a receipt says that they were deleted"
            yield record_fault(name, what)


def _is_any_absent(
    context: ArchiveContext, archive: OfflineArchive, manifest: Manifest, at: NDArray[np.int64]
) -> bool:
    """Returns whether one of these buckets is not in the source: a restore may have brought them back."""
    for held in archive.buckets_at(manifest, at):
        ids = held.batch.main.ids
        if len(list(context.source.present(ids))) < len(ids):
            return True
    return False
