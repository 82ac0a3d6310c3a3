"""`bucketwise archive`."""

from __future__ import annotations

from typing import Annotated

import typer

from jobs.call import Call
from jobs.clock import parse_range
from jobs.options import AllowLarge, Executor, Since, Until, WorkerCount
from jobs.output.report import Report
from jobs.output.text.keeping import pause_lines
from jobs.output.text.tables import archive_tables
from jobs.output.text.working import lake_lines, publish_lines
from jobs.running.runner import RunOptions, perform
from jobs.steps.lake import registering
from jobs.steps.publish import published
from jobs.steps.working import ARCHIVE

EXAMPLES = [
    "bucketwise archive",
    "bucketwise archive --dry-run",
    "bucketwise archive -p ticks --until 2018-07-01",
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be archived, and change nothing.")]


def archive(
    call: Call,
    since: Since = None,
    until: Until = None,
    dry_run: DryRun = False,
    allow_large: AllowLarge = False,
    workers: WorkerCount = None,
    executor: Executor = None,
) -> Report:
    """Archive the buckets that have expired.

    They are copied, verified, committed, and only then deleted.
    """
    within = parse_range(since, until)
    open_executor = call.open_executor(workers, executor)
    followers = (*registering(call.settings.lake), *published(call.settings))
    results = perform(call, [ARCHIVE], RunOptions(within, dry_run, open_executor, allow_large, followers))
    lines = [*lake_lines(results), *publish_lines(results), *pause_lines(results)]
    return Report(call.command, call.now, results, [*archive_tables(results), *lines])
