"""`bucketwise lake` and `bucketwise publish`: they make up for what could not follow a run."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from bucketwise.config.errors import UsageError
from bucketwise.jobs.call import Call
from bucketwise.jobs.output.report import Report
from bucketwise.jobs.output.text.tables import table_of_verb
from bucketwise.jobs.output.text.working import sync_lines
from bucketwise.jobs.running.runner import perform
from bucketwise.jobs.steps.lake import sync_step
from bucketwise.jobs.steps.publish import publishing

EXAMPLES = [
    "bucketwise lake sync",
    "bucketwise lake sync -p ticks --json",
    "bucketwise publish",
    "bucketwise publish -p ticks --all",
]
All = Annotated[bool, typer.Option("--all", help="Rewrite every key, and remove stale ones.")]
What = Annotated[Literal["sync"], typer.Argument(metavar="ACTION", help="sync: bring the tables up to date.")]


def lake(call: Call, action: What) -> Report:  # noqa: ARG001  # there is one
    """Bring Iceberg tables up to what the offline archives hold.

    All that a table lists is compared with the archive: parts that it lacks are added, others are taken out.
    Commands that archive do as much as has changed by themselves; this mends what they could not.
    """
    settings = call.settings.lake
    if settings is None:
        raise UsageError(f"lake: {call.settings.path} has no table [lake]. Add one; its keys may be left out")
    results = perform(call, [sync_step(settings)])
    return Report(call.command, call.now, results, sync_lines(results))


def publish(call: Call, *, everything: All = False) -> Report:
    """Publish the newest summaries in Redis.

    `run`, `rollup` and `archive` do this as well, for what they have changed. This makes up for what they
    could not publish, because Redis was down or full.
    """
    found = publishing(call.settings)
    if found is None:
        raise UsageError(
            f"{call.settings.path} has no [publish.redis]: nothing is published. Add it with a `url`"
        )
    results = perform(call, [found.step(everything=everything)])
    return Report(call.command, call.now, results, [table_of_verb("publish", results)])
