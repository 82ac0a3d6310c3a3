"""Holds records of commits against what is sealed: only a manifest that has taken a commit over, or a receipt
that names it, says that it is no longer needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.format.keys import Keys
from bucketwise.archivers.format.manifest import DamagedError
from bucketwise.archivers.format.names import commit_at
from bucketwise.archivers.records.dropped import ended
from bucketwise.archivers.records.faults import record_fault
from bucketwise.archivers.records.heads import link_of
from bucketwise.archivers.records.receipt_checks import unrecorded
from bucketwise.archivers.records.receipts import HELD, REPLACED, Receipts, commit_of
from bucketwise.archivers.records.unregistered import KnownFences, unregistered
from bucketwise.archivers.versions.emptied import lies_elsewhere

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
