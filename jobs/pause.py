"""`bucketwise pause` and `bucketwise resume`: no run works on a policy while it is paused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import typer
from rich.console import RenderableType

from bucketwise.config.errors import UsageError
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.clock import iso
from bucketwise.jobs.core.job import Job
from bucketwise.jobs.core.turn import RunOptions, Step, StepResult, Turn, perform
from bucketwise.jobs.output.bodies import running
from bucketwise.jobs.output.grid import Grid
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.tables import closing, counted
from bucketwise.jobs.output.text import printable

Document = dict[str, Any]

Reason = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Reason, shown wherever the pause is met.")
]

ResumeReason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Reason for resuming.")]

LiftTime = Annotated[
    bool, typer.Option("--time", help="Lift a time in the future that was recorded by mistake.")
]


def pause(call: Call, reason: Reason = None) -> Report:
    """Keep policies from being worked on.

    Until `bucketwise resume`, the commands run, rollup, archive, compact and schedule leave them alone. A run
    that is at work ends after the step in hand. All other commands go on.
    """
    from bucketwise.jobs.core.machine import this_user

    if (why := _on_one_line(reason)) is None:
        raise UsageError("pause: say why with --reason TEXT; others will need to know")
    return _report(call, pause_step(why, this_user()))


def resume(call: Call, reason: ResumeReason = None, time: LiftTime = False) -> Report:
    """Let paused policies be worked on again.

    The next run does what has fallen due meanwhile. With --time it lifts a time in the future that a run has
    recorded by mistake, and that keeps later runs from archiving; pauses stay. Receipts keep the reason.
    """
    from bucketwise.jobs.core.machine import this_user

    why = _on_one_line(reason)
    if not time:
        return _report(call, resume_step(why, this_user()))
    if why is None:
        raise UsageError("resume --time: say why with --reason TEXT; receipts keep it")
    if call.is_now_given:
        raise UsageError("resume --time: what lies in the future goes by the clock; leave --now out")
    return _report(call, lift_step(why, this_user()))


def _on_one_line(reason: str | None) -> str | None:
    """Returns a reason as messages and logs can show it; None where there is none."""
    return printable(" ".join((reason or "").split())) or None


def _report(call: Call, step: Step) -> Report:
    # A pause must not have to wait for a run to end, so it takes no lease.
    results = perform(call, [step], RunOptions(dry_run=True))
    return Report(call.command, call.now, results, pauses_tables(results))


def pause_step(reason: str, by: str) -> Step:
    """Returns the step that pauses a policy. One that is paused already stays so, for its own reason."""
    from pymongo.errors import DuplicateKeyError

    from bucketwise.jobs.core.lease import leases, pauses, pausing

    def do(turn: Turn) -> StepResult:
        update = pausing({"reason": reason, "since": turn.context.now, "by": by})

        def put() -> Document | None:
            return leases(turn).find_one_and_update({"_id": turn.policy.identity}, update, upsert=True)

        try:
            before = put()
        except DuplicateKeyError:  # a run made the document meanwhile
            before = put()
        return StepResult({"changed": not (before or {}).get("paused"), **pauses(turn)})

    return Step("pause", do, by_present=True)


def resume_step(reason: str | None, by: str) -> Step:
    """Returns the step that ends a policy's pause."""
    from bucketwise.jobs.core.lease import leases, pauses

    def do(turn: Turn) -> StepResult:
        end = {"paused": None, "resumed": {"reason": reason, "at": turn.context.now, "by": by}}
        is_paused = {"_id": turn.policy.identity, "paused": {"$ne": None}}
        found = leases(turn).update_one(is_paused, {"$set": end})
        return StepResult({"changed": bool(found.modified_count), "lifted": None, **pauses(turn)})

    return Step("resume", do, by_present=True)


def lift_step(reason: str, by: str) -> Step:
    """Returns the step that lifts a time in the future which a run has recorded by mistake."""
    from bucketwise.archivers.preconditions import lift_time
    from bucketwise.jobs.core.lease import pauses, touching

    def do(turn: Turn) -> StepResult:
        lifting = replace(turn.context, guard=touching(turn.context.database, turn.policy.identity))
        lifted = lift_time(lifting, reason, by)
        return StepResult({"changed": True, "lifted": lifted, **pauses(turn)})

    return Step("resume", do, by_present=True)


def pauses_tables(results: Sequence[Result]) -> list[RenderableType]:
    """Returns a row for each policy that is paused, and what has changed."""
    table = Grid("Pauses", ("policy", "paused since", "by", "reason"))
    for result in results:
        if it := result.body.get("paused"):
            table.add_row(result.policy, *map(printable, (iso(it["since"]), it["by"], it["reason"])))
    lifted = sum(bool(it.body.get("lifted")) for it in results)
    changed = sum(bool(it.body.get("changed")) for it in results)
    paused = f"{len(table.rows):,}" if table.rows else "none"
    times = f"; a later time of {counted(lifted, 'policy')} was lifted" if lifted else ""
    return [table, *closing(results, f"{paused} paused; {changed:,} changed by this command{times}")]


_RIGHTS = {"bucketwise_lease": ("insert", "update")}
PAUSE = Job(
    pause,
    body=running.Pause,
    rights=_RIGHTS,
    examples=(
        'bucketwise pause -p ticks --reason "The cluster is being moved"',
        'bucketwise pause --reason "Nothing is archived before the new disks are in"',
    ),
)

RESUME = Job(
    resume,
    body=running.Resume,
    rights=_RIGHTS,
    examples=(
        "bucketwise resume -p ticks",
        'bucketwise resume --reason "The new disks are in"',
        'bucketwise resume --time -p ticks --reason "Somebody typed --now 2096 for 2026"',
    ),
)
