"""Pauses: no verb works on a policy while it is paused.

A pause is a field of the policy's lease. So the commands that acquire and renew the lease also tell a run of
a pause.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bson.codec_options import CodecOptions
from pymongo.collection import Collection
from pymongo.errors import DuplicateKeyError

from bucketwise.archivers.forward import lift_time
from bucketwise.archivers.proof.findings import Finding
from bucketwise.jobs import clock
from bucketwise.jobs.running.lease import COLLECTION, touching
from bucketwise.jobs.running.turn import Step, StepResult, Turn
from bucketwise.rollups.guarded import majority

Document = dict[str, Any]
#: The verbs that leave a paused policy alone. (`schedule` runs `run`.)
PAUSABLE = ("run", "rollup", "archive", "compact")


def pause_step(reason: str, by: str) -> Step:
    """Returns the step that pauses a policy. One that is paused already stays so, for its own reason."""

    def do(turn: Turn) -> StepResult:
        pause = {"reason": {"$literal": reason}, "since": turn.context.now, "by": {"$literal": by}}
        kept = {
            "holder": {"$ifNull": ["$holder", None]},
            "fence": {"$ifNull": ["$fence", 0]},
            "paused": {"$ifNull": ["$paused", pause]},
        }

        def put() -> Document | None:
            mine = {"_id": turn.policy.identity}
            return _leases(turn).find_one_and_update(mine, [{"$set": kept}], upsert=True)

        try:
            before = put()
        except DuplicateKeyError:  # a run made the document meanwhile
            before = put()
        return StepResult({"changed": not (before or {}).get("paused"), **pauses(turn)})

    return Step("pause", do, by_present=True)


def resume_step(reason: str | None, by: str) -> Step:
    """Returns the step that ends a policy's pause."""

    def do(turn: Turn) -> StepResult:
        end = {"paused": None, "resumed": {"reason": reason, "at": turn.context.now, "by": by}}
        is_paused = {"_id": turn.policy.identity, "paused": {"$ne": None}}
        found = _leases(turn).update_one(is_paused, {"$set": end})
        return StepResult({"changed": bool(found.modified_count), "lifted": None, **pauses(turn)})

    return Step("resume", do, by_present=True)


def lift_step(reason: str, by: str) -> Step:
    """Returns the step that lifts a time in the future which a run has recorded by mistake."""

    def do(turn: Turn) -> StepResult:
        lifting = replace(turn.context, guard=touching(turn.context.database, turn.policy.identity))
        lifted = lift_time(lifting, reason, by)
        return StepResult({"changed": True, "lifted": lifted, **pauses(turn)})

    return Step("resume", do, by_present=True)


def pauses(turn: Turn) -> Document:
    """Returns the JSON of pauses: the one that stands, and how the last one ended."""
    found = _leases(turn).find_one({"_id": turn.policy.identity}, ["paused", "resumed"]) or {}
    return {key: found.get(key) for key in ("paused", "resumed")}


def pause_findings(turn: Turn) -> list[Finding]:
    """Returns a warning where the policy is paused."""
    if (pause := pauses(turn)["paused"]) is None:
        return []
    message = f"paused since {clock.iso(pause['since'])} by {pause['by']}: {pause['reason']}"
    return [Finding("paused", turn.policy.name, turn.policy.collection, "warning", message)]


def _leases(turn: Turn) -> Collection[Document]:
    database = turn.context.database
    options: CodecOptions[Document] = CodecOptions(tz_aware=True)
    return database.get_collection(COLLECTION, options, write_concern=majority(database))
