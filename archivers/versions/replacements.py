"""Holds records of commits against what is sealed: only a manifest that has taken a commit over, or a receipt
that names it, says that it is no longer needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.format.keys import Keys
from bucketwise.archivers.format.manifest import DamagedError, Manifest
from bucketwise.archivers.format.names import commit_at
from bucketwise.archivers.records.heads import link_of
from bucketwise.archivers.records.receipt_checks import unrecorded
from bucketwise.archivers.records.receipt_files import LAST
from bucketwise.archivers.records.receipts import HELD, REPLACED, Receipts, commit_of, record_fault
from bucketwise.archivers.records.registry import KnownFences, ended, unregistered
from bucketwise.archivers.versions.superseded import RemovedBuckets, Superseded
from bucketwise.buckets.fields.times import TimeRange, as_ms


def lies_elsewhere(receipts: Receipts, archive: OfflineArchive, manifest: Manifest) -> bool:
    """Returns whether nothing is lost with a commit that an earlier version has emptied."""
    aside = Superseded(archive)
    kept = [aside.read(it) for it in aside.files() if it.commit.name == manifest.commit]
    missing = _missing(archive, manifest, kept)
    return missing == 0 or missing <= _erased(receipts, manifest)


def _missing(archive: OfflineArchive, manifest: Manifest, kept: list[RemovedBuckets]) -> int:
    """Returns how many buckets of a commit lie neither in these files nor in a current commit. Where its own
    files are gone by now, those in the files count by their positions."""
    if not archive.is_there(manifest.name):
        return len(set(range(manifest.buckets)).difference(*(it.positions for it in kept)))
    there = {unit for it in kept for unit in it.batch.units}
    missing = [unit for it in archive.sections(manifest) for unit in it.batch.units if unit not in there]
    for other in archive.manifests(as_ms(manifest.first), as_ms(manifest.last) + 1) if missing else ():
        for held in archive.sections(other):
            missing = list(set(missing).difference(held.batch.units))
    return len(missing)


def _erased(receipts: Receipts, manifest: Manifest) -> int:
    """Returns how many archived buckets an erasure of that time has taken that earlier versions have begun; 0
    once this version has written a receipt, since it records which commits it empties."""
    mine = {"_id.policy": receipts.policy}
    is_older = receipts.collection.find_one({**mine, "done_at": {"$exists": True}}, {"_id": 1}) is None
    if not is_older or "latest" in (receipts.get(LAST) or {}):
        return 0
    span = as_ms(manifest.first), as_ms(manifest.last)
    found = receipts.collection.find({**mine, "kind": {"$in": ["erase", "erasing"]}})
    erased = [
        int((it.get("erased") or it.get("counts") or {}).get("archived", 0))
        for it in found
        for within in [TimeRange(it["since"], it["until"])]
        if within.start_ms <= span[1] and within.end_ms > span[0]
    ]
    return max(erased, default=0)


Document = dict[str, Any]


def check_replaced(receipts: Receipts, archive: OfflineArchive, record: Document, keys: Keys) -> None:
    """Raises DamagedError where a commit is recorded as replaced, or ended, and nothing that is sealed says
    so."""
    name, by = record["_id"]["name"], record.get("replaced_by")
    successor = commit_of(found) if by and "seal" in (found := receipts.get(by) or {}) else None
    if successor is not None and name in archive.chain.link(link_of(successor)).replaces:
        return
    if by is not None:
        what = f"it says that the commit was replaced by {by}, and the manifest of that one does not"
        raise record_fault(name, what)
    if ended(receipts, record, keys) is None and not _is_emptied(receipts, archive, record):
        raise record_fault(name, "it says that the commit has ended, and no receipt does")


def _is_emptied(receipts: Receipts, archive: OfflineArchive, record: Document) -> bool:
    commit = commit_of(record)
    return commit is not None and lies_elsewhere(receipts, archive, archive.chain.link(link_of(commit)))


def incomplete(
    receipts: Receipts, archive: OfflineArchive, span: tuple[int, int], known_fences: KnownFences
) -> Iterator[tuple[str, DamagedError]]:
    """Yields the name of each commit of the span, and an error, that the records lack or hide, or that is
    foreign: what is read by the records would lack it, or it is not of this archive."""
    known = {it.name for it in archive.within(*span)}
    others = {it.name: it for it in archive.commits() if it.may_hold(*span) and it.name not in known}
    records, keys = receipts.get_all(others), archive.keys or Keys(is_strict=False)
    for name, commit in others.items():
        record = records.get(name, {})
        if record.get("kind") != "offline":
            found = unregistered(receipts, archive, [commit], known_fences)
            yield from ((name, error) for error in found.errors(archive))
            continue
        try:
            _check_hidden(receipts, archive, record, span, keys)
        except DamagedError as hidden:
            yield name, hidden
    named = {
        name: seal for name, seal in receipts.deleted_from().items() if name not in known | others.keys()
    }
    for name, error in unrecorded(receipts, named):
        commit_named = commit_at(name, 0, named[name])
        if commit_named is None or commit_named.may_hold(*span):
            yield name, error


def _check_hidden(
    receipts: Receipts, archive: OfflineArchive, record: Document, span: tuple[int, int], keys: Keys
) -> None:
    """Raises DamagedError where a record keeps a commit of the span from being found, and nothing sealed says
    that it has ended, or has been replaced."""
    if record.get("state") in (REPLACED, HELD):
        check_replaced(receipts, archive, record, keys)
        return
    commit = commit_of(record)
    assert commit is not None  # the store has it under that name
    if any(it.touches(*span) for it in archive.manifest(commit).sections):
        raise record_fault(commit.name, "it does not say which days the commit holds readings of")
