"""`bucketwise run`, and the parts of it that move data: `archive` and `compact`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import RenderableType

from jobs.call import Call
from jobs.clock import parse_range
from jobs.options import AllowLarge, Executor, Since, Until, WorkerCount
from jobs.output.report import Report, Result
from jobs.output.text.keeping import pause_lines
from jobs.output.text.tables import archive_tables, run_tables, table_of_verb
from jobs.output.text.working import lake_lines, publish_lines
from jobs.running.runner import RunOptions, perform
from jobs.steps.lake import registering
from jobs.steps.publish import published
from jobs.steps.working import ARCHIVE, COMPACT_ALL, RUN

EXAMPLES = [
    "bucketwise run",
    "bucketwise run -p ticks -p iot --json",
    "*/10 * * * * bucketwise run --quiet --config /etc/bucketwise.toml   # a line for cron",
    "bucketwise archive",
    "bucketwise archive --dry-run",
    "bucketwise archive -p ticks --until 2018-07-01",
    "bucketwise compact --dry-run",
    "bucketwise compact -p ticks --since 2018-06-01 --until 2018-07-01",
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be archived, and change nothing.")]
DryMerge = Annotated[bool, typer.Option("--dry-run", help="Show what would be merged, and change nothing.")]


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
    return Report(call.command, call.now, results, [*run_tables(results), *_notes(results)])


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
    return Report(call.command, call.now, results, [*archive_tables(results), *_notes(results)])


def compact(call: Call, since: Since = None, until: Until = None, dry_run: DryMerge = False) -> Report:
    """Merge small commits of offline archives.

    The commits that begin on the same UTC day become one, as far as one commit may hold them. `bucketwise
    run` does this as well, once a day has come to rest.
    """
    within = parse_range(since, until)
    options = RunOptions(within, dry_run, followers=registering(call.settings.lake))
    results = perform(call, [COMPACT_ALL], options)
    return Report(call.command, call.now, results, [table_of_verb("compact", results), *_notes(results)])


def _notes(results: Sequence[Result]) -> list[RenderableType]:
    """Returns what followed the steps, and which policies were left alone."""
    return [*lake_lines(results), *publish_lines(results), *pause_lines(results)]
