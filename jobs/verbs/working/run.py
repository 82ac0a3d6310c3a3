"""`bucketwise run`."""

from __future__ import annotations

from jobs.call import Call
from jobs.options import AllowLarge, Executor, WorkerCount
from jobs.output.report import Report
from jobs.output.text.keeping import pause_lines
from jobs.output.text.tables import run_tables
from jobs.output.text.working import lake_lines, publish_lines
from jobs.running.runner import RunOptions, perform
from jobs.steps.lake import registering
from jobs.steps.publish import published
from jobs.steps.working import RUN

EXAMPLES = [
    "bucketwise run",
    "bucketwise run -p ticks -p iot --json",
    "*/10 * * * * bucketwise run --quiet --config /etc/bucketwise.toml   # a line for cron",
]


def run(
    call: Call, allow_large: AllowLarge = False, workers: WorkerCount = None, executor: Executor = None
) -> Report:
    """Roll up, archive, expire summaries.

    For every policy, or those named: the entry for cron.
    """
    open_executor = call.open_executor(workers, executor)
    followers = (*registering(call.settings.lake), *published(call.settings))
    options = RunOptions(open_executor=open_executor, allow_large=allow_large, followers=followers)
    results = perform(call, RUN, options)
    lines = [*lake_lines(results), *publish_lines(results), *pause_lines(results)]
    return Report(call.command, call.now, results, [*run_tables(results), *lines])
