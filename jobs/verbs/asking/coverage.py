"""`bucketwise coverage`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from bucketwise.config.errors import UsageError
from bucketwise.jobs.call import Call
from bucketwise.jobs.clock import parse_range
from bucketwise.jobs.options import Series, Since, Until, parse_series
from bucketwise.jobs.output.report import Report
from bucketwise.jobs.output.text.coverage import coverage_csv, coverage_tables
from bucketwise.jobs.running.runner import RunOptions, perform
from bucketwise.jobs.steps.evidence import coverage_step

EXAMPLES = [
    "bucketwise coverage",
    "bucketwise coverage -p ticks --since 2018-06-01 --until 2018-07-01 --series symbol=MDB",
    "bucketwise coverage -p ticks --since 2018-06-30 --until 2018-07-01 --by hour --format csv",
]


ByWhat = Annotated[Literal["day", "hour"], typer.Option("--by", help="A row per UTC day, or per hour.")]
How = Annotated[
    Literal["table", "csv"], typer.Option("--format", help="Output format: a table with a strip, or CSV.")
]


def coverage(
    call: Call,
    *,
    since: Since = None,
    until: Until = None,
    series: Series = None,
    by: ByWhat = "day",
    form: How = "table",
) -> Report:
    """Show where each day is.

    Live, archived (in which commit), both, online, only summarised, expired, or a gap; with counts of
    readings. Manifests and summaries tell what is archived: no part is read.
    """
    within, selector = parse_range(since, until), parse_series(series)
    if call.json and form != "table":
        raise UsageError(f"--json prints a report, and --format {form}: other output. Give one of the two")
    # It changes nothing, so it needs no lease: dry.
    results = perform(call, [coverage_step(selector, by)], RunOptions(within, dry_run=True))
    show = coverage_csv if form == "csv" else coverage_tables
    return Report(call.command, call.now, results, show(results))
