"""Runs go forward in time: one whose `now` lies before what the archive has recorded changes nothing there.

By an earlier `now`, what is recent would have expired or not, and manifests and receipts would tell of times
before those that they follow.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial

from pymongo.client_session import ClientSession

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.kinds import archive_of
from bucketwise.archivers.records.receipt_files import TIME, recorded
from bucketwise.buckets.fields.times import MAX_SKEW, as_text
from bucketwise.config.errors import BucketwiseError, UsageError
from bucketwise.rollups.context import transaction


def recorded_time(context: ArchiveContext) -> datetime | None:
    """Returns the latest time that receipts and the last manifests tell; None without any. Raises HaltedError
    where the store does not hold these manifests."""
    if context.state.heads is None:
        context.state.heads = archive_of(context).heads()
    return recorded(context.receipts).among(context.state.heads)


def behind(context: ArchiveContext) -> BucketwiseError | None:
    """Returns an error where the run's `now` lies before what is recorded, by more than clocks may differ."""
    found = recorded_time(context)
    if found is None or context.now >= found - MAX_SKEW:
        return None
    return BucketwiseError(
        f"policy {context.policy.name}: the run's now is {as_text(context.now)}, and the archive recorded "
        f"{as_text(found)}, which is later. Nothing was archived, deleted or expired. Give a later --now, or "
        "none. A time in the future that was recorded by mistake is lifted by `bucketwise resume --time "
        "--reason TEXT`"
    )


def lift_time(context: ArchiveContext, reason: str, by: str) -> datetime:
    """Records that times after `now`, which is the present, were recorded by mistake. Returns the latest of
    them. Raises UsageError where there are none."""
    found = recorded_time(context)
    if found is None or found <= context.now + MAX_SKEW:
        told = "none is recorded" if found is None else f"the latest that is recorded is {as_text(found)}"
        raise UsageError(
            f"resume --time: policy {context.policy.name}: {told}; only a time in the future is lifted. "
            "Nothing was changed"
        )
    facts = {"recorded": found, "reason": reason, "by": by}
    transaction(context.database, context.guard, partial(_record, context, facts))
    return found


def _record(context: ArchiveContext, facts: dict[str, object], session: ClientSession) -> None:
    context.deletions.check_last(session)
    context.deletions.record_event(TIME, facts, session)
