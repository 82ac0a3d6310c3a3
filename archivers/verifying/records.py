"""Holds the records of commits against what is sealed: their manifests, and the receipts of deletes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.format.manifest import DamagedError, Manifest
from bucketwise.archivers.format.names import Commit, day_number
from bucketwise.archivers.records.heads import link_of
from bucketwise.archivers.records.receipt_checks import Ranges
from bucketwise.archivers.records.receipts import (
    HELD,
    REPLACED,
    Receipts,
    commit_of,
    facts_of,
    live_of,
    record_fault,
)
from bucketwise.archivers.stores.base import NotFound
from bucketwise.archivers.versions.replacements import check_replaced
from bucketwise.archivers.writes import compare_all
from bucketwise.buckets.fields.times import DAY_MS, FIRST_MS, as_ms

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
    context: ArchiveContext, archive: OfflineArchive, open_ones: Set[str], deleted: Mapping[str, Ranges]
) -> Iterator[DamagedError]:
    """Yields an error for each record which says that a bucket may be live, though a receipt says that it was
    deleted, and it is not there. `open_ones`: commits with such buckets; `deleted`: ranges of positions, by
    commit."""
    receipts, known = context.receipts, context.receipts.registered(open_ones & deleted.keys())
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


def unfounded_deletes(
    context: ArchiveContext, archive: OfflineArchive, commits: Iterable[Commit], deleted: Mapping[str, Ranges]
) -> Iterator[DamagedError]:
    """Yields an error for each record which says that a bucket was deleted, though no receipt says so, and it
    is there as it was copied. Somebody else may have deleted one, of which there is no receipt. Looks at
    commits of days on which anything is live. `deleted`: ranges of positions, by commit."""
    nearest: int | None = FIRST_MS  # nothing is live between the first day of a commit and then
    for commit in sorted(commits, key=lambda it: it.first) if not context.measured else ():
        first, end = day_number(commit.first) * DAY_MS, (day_number(commit.last) + 1) * DAY_MS
        if nearest is not None and nearest < first:
            nearest = context.source.earliest(first)
        if nearest is not None and nearest < end:
            try:
                yield from _unfounded_deletes(context, archive, archive.manifest(commit), deleted)
            except (DamagedError, NotFound):
                continue  # which is reported


def _unfounded_deletes(
    context: ArchiveContext, archive: OfflineArchive, manifest: Manifest, deleted: Mapping[str, Ranges]
) -> Iterator[DamagedError]:
    receipts, name = context.receipts, manifest.commit
    at = np.flatnonzero(~receipts.live(name, manifest.buckets))
    at = at[~_told(receipts, archive, manifest, deleted)[at]] if len(at) else at
    there = [
        it.positions[compare_all(context.database, context.policy, it.batch).deleted]
        for it in archive.buckets_at(manifest, at)
    ]
    if there and not receipts.live(name, manifest.buckets)[np.concatenate(there)].all():
        yield record_fault(name, "it says that buckets were deleted that are there, and no receipt says so")


def _told(
    receipts: Receipts, archive: OfflineArchive, manifest: Manifest, deleted: Mapping[str, Ranges]
) -> NDArray[np.bool_]:
    """Returns which buckets of a commit receipts say were deleted: because of it, or of commits that were
    merged into it. Of those of which a part was taken over it is not known."""
    told = np.zeros(manifest.buckets, dtype=np.bool_)
    for first, last in deleted.get(manifest.commit, ()):
        told[first : last + 1] = True
    known = receipts.get_all(manifest.replaces) if manifest.replaces else {}
    before = [commit_of(known[name]) for name in manifest.replaces if "seal" in known.get(name, {})]
    merged = [archive.chain.link(link_of(it)) for it in before if it is not None]
    if merged and sum(it.buckets for it in merged) == manifest.buckets:
        told |= np.concatenate([_told(receipts, archive, it, deleted) for it in merged])
    return told


def _is_any_absent(
    context: ArchiveContext, archive: OfflineArchive, manifest: Manifest, at: NDArray[np.int64]
) -> bool:
    """Returns whether one of these buckets is not in the source: a restore may have brought them back."""
    for held in archive.buckets_at(manifest, at):
        ids = held.batch.main.ids
        if len(list(context.source.present(ids))) < len(ids):
            return True
    return False
