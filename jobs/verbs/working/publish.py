"""`bucketwise publish`."""

from __future__ import annotations

from typing import Annotated

import typer

from config.errors import UsageError
from jobs.call import Call
from jobs.output.report import Report
from jobs.output.text.tables import table_of_verb
from jobs.running.runner import perform
from jobs.steps.publish import publishing

EXAMPLES = ["bucketwise publish", "bucketwise publish -p ticks --all"]
All = Annotated[bool, typer.Option("--all", help="Write every key again, and remove what no longer belongs.")]


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
