"""`bucketwise plan`."""

from __future__ import annotations

from jobs.call import Call
from jobs.options import Executor, WorkerCount
from jobs.output.report import Report
from jobs.output.tables import run_tables
from jobs.running.runner import Runner, RunOptions
from jobs.running.steps import RUN

EXAMPLES = ["bucketwise plan", "bucketwise plan -p ticks --now 2026-12-01"]


def plan(call: Call, workers: WorkerCount = None, executor: Executor = None) -> Report:
    """Show what `run` would do now.

    And why what stays stays. Changes nothing.
    """
    policies, staff = call.policies, call.staff(workers, executor)
    with call.database() as database:
        results = Runner.of(call, database, RUN, RunOptions(dry_run=True, staff=staff)).run_all(policies)
    return Report(call.command, call.now, results, run_tables(results))
