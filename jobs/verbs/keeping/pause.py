"""`bucketwise pause` and `bucketwise resume`."""

from __future__ import annotations

from typing import Annotated

import typer

from bucketwise.config.errors import UsageError
from bucketwise.jobs.call import Call
from bucketwise.jobs.output.report import Report
from bucketwise.jobs.output.text.cells import printable
from bucketwise.jobs.output.text.keeping import pauses_table
from bucketwise.jobs.running.machine import this_user
from bucketwise.jobs.running.pausing import lift_step, pause_step, resume_step
from bucketwise.jobs.running.runner import RunOptions, perform
from bucketwise.jobs.running.turn import Step

EXAMPLES = [
    'bucketwise pause -p ticks --reason "The cluster is being moved"',
    'bucketwise pause --reason "Nothing is archived before the new disks are in"',
    "bucketwise resume -p ticks",
    'bucketwise resume --reason "The new disks are in"',
    'bucketwise resume --time -p ticks --reason "Somebody typed --now 2096 for 2026"',
]
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
    if (why := _on_one_line(reason)) is None:
        raise UsageError("pause: say why with --reason TEXT; others will need to know")
    return _report(call, pause_step(why, this_user()))


def resume(call: Call, reason: ResumeReason = None, time: LiftTime = False) -> Report:
    """Let paused policies be worked on again.

    The next run does what has fallen due meanwhile. With --time it lifts a time in the future that a run has
    recorded by mistake, and that keeps later runs from archiving; pauses stay. Receipts keep the reason.
    """
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
    return Report(call.command, call.now, results, [pauses_table(results)])
