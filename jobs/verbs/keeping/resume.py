"""`bucketwise resume`."""

from __future__ import annotations

from typing import Annotated

import typer

from jobs.call import Call
from jobs.output.report import Report
from jobs.running.machine import this_user
from jobs.running.pausing import resume_step
from jobs.verbs.keeping.pause import on_one_line, report

EXAMPLES = ["bucketwise resume -p ticks", 'bucketwise resume --reason "The new disks are in"']
Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Reason for resuming.")]


def resume(call: Call, reason: Reason = None) -> Report:
    """Let paused policies be worked on again.

    The next run does what has fallen due meanwhile.
    """
    return report(call, resume_step(on_one_line(reason), this_user()))
