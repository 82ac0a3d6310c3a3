"""The steps that place, release and list holds, in the words of the JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pymongo
from pymongo.database import Database
from pymongo.errors import PyMongoError

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.kinds import archive_of
from bucketwise.archivers.kinds.evidence import Evidence
from bucketwise.archivers.records.holds import HoldFiles, HoldWriter, lost
from bucketwise.archivers.records.receipts import Receipts
from bucketwise.archivers.writes import holds_any
from bucketwise.buckets.bson.cursor import SIMPLE
from bucketwise.config.errors import HaltedError, UsageError
from bucketwise.config.policies import Policy
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.lease import touching
from bucketwise.jobs.core.turn import Document, Step, StepResult, Turn, hold_body
from bucketwise.rollups.calendar.levels import levels_of
from bucketwise.rollups.holds import Hold, Holds

Body = dict[str, Any]


def place_step(hold: Hold) -> Step:
    """Returns the step that places a hold."""

    def do(turn: Turn) -> StepResult:
        placed = _holding(turn).place(hold)
        return StepResult({"placed": placed, **_list(turn)})

    return Step("hold", do, by_present=True, preconditions="knowing")


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

    return Step("hold", do, by_present=True, preconditions="holding")


LIST = Step("hold", lambda turn: StepResult(_list(turn)))


def _holding(turn: Turn) -> HoldWriter:
    """Returns what places and releases a policy's holds. It takes no lease: a hold is placed while a run
    works."""
    context = turn.context
    _check_signed(context)
    guard = touching(context.database, turn.policy.identity)
    files = context.hold_files
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


#: Seconds after which it is not looked for any further.
_PATIENCE_S = 20


def covers_anything(context: ArchiveContext, archived: Evidence, hold: Hold) -> bool:
    """Returns whether a hold covers anything. It goes by what queries and manifests can tell, which may be a
    little more; and says so as well where that takes too long, or the archive is damaged."""
    try:
        with pymongo.timeout(_PATIENCE_S):
            return any(_looks(context, archived, hold))
    except PyMongoError as error:
        if not error.timeout:
            raise
    except HaltedError:
        pass
    return True


def _looks(context: ArchiveContext, archived: Evidence, hold: Hold) -> Iterator[bool]:
    database, policy = context.database, context.policy
    for level in levels_of(policy):
        query = hold.summaries(policy.series_names, level.reach)
        yield database[level.collection].find_one(query, {"_id": 1}, collation=SIMPLE) is not None
    yield holds_any(context.source, hold)
    yield archived.may_cover(hold)
