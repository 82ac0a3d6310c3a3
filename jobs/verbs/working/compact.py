"""`bucketwise compact`."""

from __future__ import annotations

from typing import Annotated

import typer

from jobs.call import Call
from jobs.clock import parse_range
from jobs.options import Since, Until
from jobs.output.report import Report
from jobs.output.text.keeping import pause_lines
from jobs.output.text.tables import table_of_verb
from jobs.output.text.working import lake_lines
from jobs.running.runner import RunOptions, perform
from jobs.steps.lake import registering
from jobs.steps.working import COMPACT_ALL

EXAMPLES = [
    "bucketwise compact --dry-run",
    "bucketwise compact -p ticks --since 2018-06-01 --until 2018-07-01",
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be merged, and change nothing.")]


def compact(call: Call, since: Since = None, until: Until = None, dry_run: DryRun = False) -> Report:
    """Merge small commits of offline archives.

    The commits that begin on the same UTC day become one, as far as one commit may hold them. `bucketwise
    run` does this as well, once a day has come to rest.
    """
    within = parse_range(since, until)
    options = RunOptions(within, dry_run, followers=registering(call.settings.lake))
    results = perform(call, [COMPACT_ALL], options)
    tables = [table_of_verb("compact", results), *lake_lines(results), *pause_lines(results)]
    return Report(call.command, call.now, results, tables)
