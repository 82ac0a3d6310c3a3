"""The steps that place, release and list holds, in the words of the JSON."""

from __future__ import annotations

from typing import Any

from pymongo.database import Database

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.evidence.covering import covers_anything
from bucketwise.archivers.holds import hold_files
from bucketwise.archivers.kinds import archive_of
from bucketwise.archivers.preconditions import has_store, is_known, is_ours
from bucketwise.archivers.records.hold_files import HoldFiles, lost
from bucketwise.archivers.records.holding import HoldWriter
from bucketwise.archivers.records.receipts import Receipts
from bucketwise.config.errors import HaltedError, UsageError
from bucketwise.config.policies import Policy
from bucketwise.jobs.call import Call
from bucketwise.jobs.running.lease import touching
from bucketwise.jobs.running.turn import Document, Step, StepResult, Turn, pick
from bucketwise.rollups.holds import Hold, Holds

Body = dict[str, Any]
#: A hold is not told to the store of somebody else.
OF_HOLDERS = (has_store, is_ours)


def place_step(hold: Hold) -> Step:
    """Returns the step that places a hold."""

    def do(turn: Turn) -> StepResult:
        placed = _holding(turn).place(hold)
        return StepResult({"placed": placed, **_list(turn)})

    return Step("hold", do, by_present=True, preconditions=[is_known])


def covers_step(hold: Hold) -> Step:
    """Returns the step that tells whether a hold covers anything that is there."""

    def do(turn: Turn) -> StepResult:
        archived = archive_of(turn.context).evidence
        return StepResult({"covers": covers_anything(turn.context, archived, hold)})

    return Step("hold", do)


def release_step(name: str, by: str, reason: str | None = None) -> Step:
    """Returns the step that releases a hold."""

    def do(turn: Turn) -> StepResult:
        released = _holding(turn).release(name, by, reason)
        return StepResult({"released": released, **_list(turn)})

    return Step("hold", do, by_present=True, preconditions=OF_HOLDERS)


def _listed(turn: Turn) -> StepResult:
    return StepResult(_list(turn))


LIST = Step("hold", _listed)


def _holding(turn: Turn) -> HoldWriter:
    """Returns what places and releases a policy's holds. It takes no lease: a hold is placed while a run
    works."""
    context = turn.context
    _check_signed(context)
    guard = touching(context.database, turn.policy.identity)
    files = hold_files(context)
    return HoldWriter(context.database, turn.policy.identity, context.deletions, guard, files)


def _check_signed(context: ArchiveContext) -> None:
    """Raises DamagedError where the last commits are signed, and not by one of the keys: receipts of holds
    are signed as they are."""
    try:
        archive_of(context).heads()
    except HaltedError as error:  # a hold may be placed on what is damaged otherwise
        if getattr(error, "code", "").startswith("signature"):
            raise


def _list(turn: Turn) -> Body:
    return {"holds": [hold_body(it) for it in Holds(turn.context.database, turn.policy.identity).active()]}


def hold_body(hold: Hold) -> Body:
    """Returns a hold as JSON."""
    return {
        **pick(hold, "name", "reason", "placed_at", "by", "freeze"),
        **pick(hold.within, "since", "until"),
        "series": dict(hold.series),
    }


def policies_with_hold(call: Call, database: Database[Document], name: str) -> list[Policy]:
    """Returns the policies that have a hold of this name, also one that only the store tells of. Raises
    UsageError if there are none."""
    standing = {it.name: _names(call, database, it, name) for it in call.policies}
    found = [it for it in call.policies if name in standing[it.name]]
    if not found:
        there = ", ".join(sorted({it for names in standing.values() for it in names})) or "none"
        on = ", ".join(standing)
        raise UsageError(f"hold release {name}: no such hold stands on {on}. There are: {there}")
    return found


def _names(call: Call, database: Database[Document], policy: Policy, name: str) -> list[str]:
    """Returns the names of a policy's holds; of those that the database lacks where it does not have this
    one."""
    names = [hold.name for hold in Holds(database, policy.identity).active()]
    if name in names or call.store is None:
        return names
    files = HoldFiles(call.store, policy.identity, call.keys)
    return [*names, *(it.hold for it in lost(Receipts(database, policy.identity), files))]
