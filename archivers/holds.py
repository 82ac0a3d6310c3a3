"""Holds that the store tells of and the database lacks: it was put back to a state before they were placed.

What they cover is not known then, so nothing is destroyed until they are placed again, or released by name.
"""

from __future__ import annotations

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.format.manifest import DamagedError
from bucketwise.archivers.records.hold_files import HoldFile, HoldFiles, lost
from bucketwise.buckets.fields.times import as_text


def hold_files(context: ArchiveContext) -> HoldFiles:
    """Returns the files of the holds on the policy."""
    return HoldFiles(context.store, context.policy.identity, context.keys)


def damage_of(context: ArchiveContext) -> list[DamagedError]:
    """Returns an error for each hold that the database lacks, and for a file that is not as it was
    written."""
    try:
        files = hold_files(context)
        return [_lost(it, files.place(it)) for it in lost(context.receipts, files, mends=context.fence > 0)]
    except DamagedError as error:
        return [error]


def are_known(context: ArchiveContext) -> bool:
    """Returns whether the database has all holds that the store tells of."""
    return not damage_of(context)


def _lost(file: HoldFile, place: str) -> DamagedError:
    ends = (("since", file.since), ("until", file.until))
    span = "".join(f", {name} {as_text(at)}" for name, at in ends if at is not None)
    what = (
        f"the hold {file.hold} was placed at {as_text(file.placed_at)} by {file.by} ({file.reason}{span}), "
        "and the database does not have it: it was put back to a state before, or somebody took the hold "
        "out. Nothing expires, and nothing is erased"
    )
    remedy = (
        f"Place it again: `bucketwise hold add {file.hold}` with its series and range. Or, if it is over: "
        f"`bucketwise hold release {file.hold} --reason TEXT`"
    )
    return DamagedError("hold-missing", place, what, remedy)
