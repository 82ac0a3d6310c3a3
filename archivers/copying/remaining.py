"""Tells what copies of a store still have of what was erased."""

from __future__ import annotations

from collections.abc import Iterator

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.erasing.kind import Remaining
from bucketwise.archivers.mirroring.changes import caught_up, removed_copies
from bucketwise.archivers.records.changes import CopyRecords


def remaining_in_copies(context: ArchiveContext) -> Iterator[Remaining]:
    """Brings copies up to what an erasure has left in the first store. Yields those that can still have what
    was erased: they can't be reached, were never filled, or the policy file names them no more."""
    known = CopyRecords(context.receipts).known()
    for it in caught_up(context):
        if (record := known.get(it.standing.name)) is not None and record.others:
            why = f"it has {record.others:,} objects that the store does not have. Remove them"
            yield Remaining(it.standing.url, f"copy {it.standing.name}: {why}", True)
        if it.standing.filled_at is None:
            why = "this copy was never filled, and may have objects of before: `bucketwise copy`"
            yield Remaining(it.standing.url, f"copy {it.standing.name}: {why}", True)
        elif it.standing.behind:
            why = (
                f"{it.standing.behind:,} objects wait for it; a later run removes what was erased: {it.error}"
            )
            yield Remaining(it.standing.url, f"copy {it.standing.name}: {why}", True)
    for name, url in removed_copies(context).items():
        why = "the policy file names it no more, and it keeps what it had. Remove what lies there"
        yield Remaining(url, f"copy {name}: {why}", True)
