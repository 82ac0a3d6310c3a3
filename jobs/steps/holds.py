"""The steps that place, release and list holds, in the words of the JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pymongo.database import Database

from archivers.preconditions import is_known
from archivers.records.holding import HoldWriter
from config.errors import UsageError
from config.policies import Policy
from jobs.running.lease import touching
from jobs.running.turn import Document, Step, StepResult, Turn, pick
from rollups.holds import Hold, Holds

Body = dict[str, Any]


def place_step(hold: Hold) -> Step:
    """Returns the step that places a hold."""

    def do(turn: Turn) -> StepResult:
        placed = _holding(turn).place(hold)
        return StepResult({"placed": placed, **_list(turn)})

    return Step("hold", do, by_present=True, preconditions=[is_known])


def release_step(name: str, by: str) -> Step:
    """Returns the step that releases a hold."""

    def do(turn: Turn) -> StepResult:
        released = _holding(turn).release(name, by)
        return StepResult({"released": released, **_list(turn)})

    return Step("hold", do, by_present=True)


def _listed(turn: Turn) -> StepResult:
    return StepResult(_list(turn))


LIST = Step("hold", _listed)


def _holding(turn: Turn) -> HoldWriter:
    """Returns what places and releases a policy's holds. It takes no lease: a hold is placed while a run
    works."""
    context = turn.context
    guard = touching(context.database, turn.policy.identity)
    return HoldWriter(context.database, turn.policy.identity, context.deletions, guard)


def _list(turn: Turn) -> Body:
    return {"holds": [hold_body(it) for it in Holds(turn.context.database, turn.policy.identity).active()]}


def hold_body(hold: Hold) -> Body:
    """Returns a hold as JSON."""
    return {
        **pick(hold, "name", "reason", "placed_at", "by", "freeze"),
        **pick(hold.within, "since", "until"),
        "series": dict(hold.series),
    }


def policies_with_hold(database: Database[Document], policies: Sequence[Policy], name: str) -> list[Policy]:
    """Returns the policies that have a hold of this name. Raises UsageError if there are none."""
    standing = {it.name: [hold.name for hold in Holds(database, it.identity).active()] for it in policies}
    found = [it for it in policies if name in standing[it.name]]
    if not found:
        there = ", ".join(sorted({it for names in standing.values() for it in names})) or "none"
        on = ", ".join(standing)
        raise UsageError(f"hold release {name}: no such hold stands on {on}. There are: {there}")
    return found
