"""`bucketwise publish`."""

from __future__ import annotations

from typing import Annotated

import typer

from config.errors import UsageError
from jobs.call import Call
from jobs.output.report import Report
from jobs.output.text.publish import publish_table
from jobs.running.runner import Runner
from jobs.steps.publish import publishing

EXAMPLES = ["bucketwise publish", "bucketwise publish -p ticks --all"]
All = Annotated[bool, typer.Option("--all", help="Write every key again, and remove what no longer belongs.")]


def publish(call: Call, *, everything: All = False) -> Report:
    """Publish the newest summaries in Redis.

    `run`, `rollup` and `archive` do this as well, for what they have changed. This makes up for what they
    could not publish, because Redis was down or full.
    """
    found, policies = publishing(call.settings), call.policies
    if found is None:
        raise UsageError(
            f"{call.settings.path} has no [publish.redis]: nothing is published. Add it with a `url`"
        )
    with call.database() as database:
        step = found.step(everything=everything)
        results = Runner.of(call, database, [step]).run_all(policies)
    return Report(call.command, call.now, results, [publish_table(results)])
