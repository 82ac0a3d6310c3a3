"""`bucketwise rollup`."""

from __future__ import annotations

from jobs.call import Call
from jobs.clock import parse_range
from jobs.options import Executor, Since, Until, WorkerCount
from jobs.output.pauses import pause_lines
from jobs.output.publish import publish_lines
from jobs.output.report import Report
from jobs.output.tables import rollup_tables
from jobs.running.runner import Runner, RunOptions
from jobs.steps.publish import publishing
from jobs.steps.working import ROLLUP

EXAMPLES = [
    "bucketwise rollup",
    "bucketwise rollup -p ticks --since 2018-06-01 --until 2018-07-01",
]


def rollup(
    call: Call,
    since: Since = None,
    until: Until = None,
    workers: WorkerCount = None,
    executor: Executor = None,
) -> Report:
    """Roll up what is due.

    Summaries of every level are written where they are new or have changed. With --since and --until
    the windows in that range are computed anew, also where nothing changed.
    """
    within = parse_range(since, until)
    policies, staff = call.policies, call.staff(workers, executor)
    with call.database() as database:
        runner = Runner.of(
            call, database, [ROLLUP], RunOptions(within, staff=staff, follower=publishing(call.settings))
        )
        results = runner.run_all(policies)
    return Report(
        call.command,
        call.now,
        results,
        [*rollup_tables(results), *publish_lines(results), *pause_lines(results)],
    )
