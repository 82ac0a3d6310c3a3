"""`bucketwise run`, and parts of it by themselves: `rollup`, `archive` and `compact`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.text import Text

from bucketwise.buckets.fields.times import TimeRange
from bucketwise.config.durations import parse_duration
from bucketwise.config.errors import UsageError
from bucketwise.config.problems import InvalidValueError
from bucketwise.jobs.call import Call
from bucketwise.jobs.clock import parse_range
from bucketwise.jobs.options import AllowLarge, Executor, Since, Until, WorkerCount
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.text.keeping import pause_lines
from bucketwise.jobs.output.text.tables import archive_tables, rollup_tables, run_tables, table_of_verb
from bucketwise.jobs.output.text.working import lake_lines, publish_lines
from bucketwise.jobs.running.runner import RunOptions, perform
from bucketwise.jobs.steps.lake import registering
from bucketwise.jobs.steps.publish import published
from bucketwise.jobs.steps.working import ARCHIVE, COMPACT_ALL, ROLLUP, RUN, backfill_step

EXAMPLES = [
    "bucketwise run",
    "bucketwise run -p ticks -p iot --json",
    "*/10 * * * * bucketwise run --quiet --config /etc/bucketwise.toml   # a line for cron",
    "bucketwise rollup",
    "bucketwise rollup -p ticks --since 2018-06-01 --until 2018-07-01",
    "bucketwise rollup -p ticks --since 2014-01-01 --until 2018-07-01 --slices 30d",
    "bucketwise archive",
    "bucketwise archive --dry-run",
    "bucketwise archive -p ticks --until 2018-07-01",
    "bucketwise compact --dry-run",
    "bucketwise compact -p ticks --since 2018-06-01 --until 2018-07-01",
]
Slices = Annotated[
    str | None,
    typer.Option(
        "--slices",
        metavar="DURATION",
        help="Save progress after each part of the range of this length (30d), and resume there.",
    ),
]
Restart = Annotated[bool, typer.Option("--restart", help="With --slices: start again from the first one.")]
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


def rollup(
    call: Call,
    since: Since = None,
    until: Until = None,
    slices: Slices = None,
    restart: Restart = False,
    workers: WorkerCount = None,
    executor: Executor = None,
) -> Report:
    """Roll up what is due.

    Summaries of every level are written where they are new or have changed. With --since and --until
    the windows in that range are computed anew, also where nothing changed. With --slices, a call that
    was cut off goes on where it stopped when it is given again, unless with --restart.
    """
    within = parse_range(since, until)
    if restart and slices is None:
        raise UsageError("--restart: give --slices as well; without it each call starts again")
    step = ROLLUP if slices is None else backfill_step(_length(slices, within), restart=restart)
    open_executor = call.open_executor(workers, executor)
    options = RunOptions(within, open_executor=open_executor, followers=published(call.settings))
    results = perform(call, [step], options)
    tables = [*rollup_tables(results), *_resumed(results), *_notes(results)]
    return Report(call.command, call.now, results, tables)


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


def _length(slices: str, within: TimeRange) -> timedelta:
    """Of a slice. Raises UsageError."""
    try:
        length = parse_duration(slices)
    except InvalidValueError as error:
        raise UsageError(f"--slices {slices}: {error.fault.message}; {error.fault.remedy}") from None
    if not length:
        raise UsageError(f"--slices {slices}: a slice has an end; give its length, such as 30d")
    if within.since is None or within.until is None:
        raise UsageError(f"--slices {slices}: give --since and --until as well; the range is what is resumed")
    return length


def _resumed(results: Sequence[Result]) -> Iterator[Text]:
    for result in results:
        it = result.body.get("slices", {})
        if it.get("before"):
            before, total = it["before"], it["total"]
            yield Text(f"{result.policy}: resumed; an earlier call had done {before:,} of {total:,} slices")
