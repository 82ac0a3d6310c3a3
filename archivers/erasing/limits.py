"""Reasons against an erasure: holds, an erasure that has not ended, collections that can't be deleted
from."""

from __future__ import annotations

from collections.abc import Sequence

from pymongo.client_session import ClientSession

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.erasing.erasure import Erasure
from bucketwise.archivers.records.erasures import BegunErasure, Erasures
from bucketwise.buckets.fields.times import as_text
from bucketwise.config.errors import UsageError
from bucketwise.config.policies import Policy
from bucketwise.rollups.holds import Hold, Holds


def holds_on(
    context: ArchiveContext, erasure: Erasure, others: Sequence[Policy], session: ClientSession | None = None
) -> list[Hold]:
    """Returns the holds that an erasure would break: on this policy, and on others that read the same
    collection. One that freezes keeps commits in its range from being rewritten, whatever its series."""
    found = []
    start, end = erasure.within.start_ms, erasure.within.end_ms
    for policy in (erasure.policy, *others):
        mine, its = erasure.policy.stored_series, policy.stored_series
        selector = {name: text for name, text in erasure.series.items() if its.get(name) == mine[name]}
        for hold in Holds(context.database, policy.identity).active(session):
            is_frozen = hold.freeze and policy is erasure.policy
            if hold.touches(start, end) and (is_frozen or hold.may_cover(selector)):
                found.append(hold)
    return found


def check_erasable(
    context: ArchiveContext, erasure: Erasure, others: Sequence[Policy]
) -> BegunErasure | None:
    """Returns the erasure that has begun, if it is this one. Raises UsageError where another one has begun,
    where holds forbid it, or where nothing can be deleted from the collection, and DamagedError where
    receipts were signed with another key."""
    context.deletions.check_last()
    begun = Erasures(context.receipts).begun()
    if begun is not None and not begun.is_of(erasure.text):
        raise UsageError(_other(begun, erasure))
    if holds := holds_on(context, erasure, others):
        raise UsageError(f"policy {erasure.policy.name}: {held_by(holds)}. Nothing was erased by this run")
    if what := context.undeletable:
        raise UsageError(
            f"policy {context.policy.name}: {what}, and nothing can be deleted from it. Name the collection "
            "that holds the buckets. Nothing was changed"
        )
    return begun


def held_by(holds: Sequence[Hold]) -> str:
    """Says which holds forbid it, and what to do."""
    names = ", ".join(hold.name for hold in holds)
    return (
        f"what is to be erased is held ({names}): `bucketwise hold list` says why. Release these holds, or "
        "choose another range"
    )


def check_edges(across: int) -> None:
    """Raises UsageError if any buckets (`across`: how many) hold something beyond the range as well."""
    if across:
        raise UsageError(
            f"--since, --until: {across:,} buckets of the series hold readings inside the range and "
            "beyond it, or have a time that can't be read, and a bucket is erased whole or not at all. "
            "Choose a range whose edges lie between buckets, or leave it out. Nothing was changed"
        )


def _other(begun: BegunErasure, erasure: Erasure) -> str:
    ends = (("since", begun.within.since), ("until", begun.within.until))
    span_text = "".join(f", {name} {as_text(at)}" for name, at in ends if at is not None)
    return (
        f"policy {erasure.policy.name}: another erasure was begun at {as_text(begun.at)} ({begun.reason!r}"
        f"{span_text}), and has not finished. Run it again with the same --series, --since and --until; then "
        "this one. Nothing was changed"
    )
