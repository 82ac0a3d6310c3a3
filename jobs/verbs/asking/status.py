"""`bucketwise status`."""

from __future__ import annotations

from typing import Annotated

import typer

from bucketwise.jobs.call import Call
from bucketwise.jobs.output.report import Report
from bucketwise.jobs.output.text.keeping import pause_lines
from bucketwise.jobs.output.text.tables import status_tables
from bucketwise.jobs.output.text.working import failed_lines
from bucketwise.jobs.running.runner import RunOptions, perform
from bucketwise.jobs.steps.status import STATUS, failed_step

EXAMPLES = ["bucketwise status", "bucketwise status -p ticks --json", "bucketwise status --failed"]
Failed = Annotated[
    bool, typer.Option("--failed", help="List the runs that failed or died, and the commands to repeat them.")
]


def status(call: Call, failed: Failed = False) -> Report:
    """Show where each policy stands.

    How far it is rolled up and archived, what waits, whether it is paused, and how the last runs
    went. With --failed: which runs have to be repeated, and how.
    """
    step = failed_step(call.config) if failed else STATUS
    results = perform(call, [step], RunOptions(dry_run=True))
    if failed:
        return Report(call.command, call.now, results, [*failed_lines(results)])
    return Report(call.command, call.now, results, [*status_tables(results), *pause_lines(results)])
