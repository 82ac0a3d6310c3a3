"""`bucketwise status`."""

from __future__ import annotations

from jobs.call import Call
from jobs.output.pauses import pause_lines
from jobs.output.report import Report
from jobs.output.tables import status_tables
from jobs.running.runner import Runner, RunOptions
from jobs.steps.status import STATUS

EXAMPLES = ["bucketwise status", "bucketwise status -p ticks --json"]


def status(call: Call) -> Report:
    """Show where each policy stands.

    How far it is rolled up and archived, what waits, whether it is paused, and how the last runs
    went.
    """
    policies = call.policies
    with call.database() as database:
        results = Runner.of(call, database, [STATUS], RunOptions(dry_run=True)).run_all(policies)
    return Report(call.command, call.now, results, [*status_tables(results), *pause_lines(results)])
