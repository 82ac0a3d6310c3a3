"""`bucketwise drill`."""

from __future__ import annotations

from typing import Annotated

import typer

from bucketwise.jobs.call import Call
from bucketwise.jobs.output.report import Report
from bucketwise.jobs.output.text.tables import table_of_verb
from bucketwise.jobs.running.runner import perform
from bucketwise.jobs.steps.evidence import drill_step

EXAMPLES = ["bucketwise drill", "bucketwise drill -p ticks --days 7", "bucketwise drill --seed 42 --json"]
Days = Annotated[int, typer.Option("--days", min=1, metavar="N", help="Number of days per policy.")]
Seed = Annotated[
    int | None,
    typer.Option("--seed", metavar="N", help="Seed for choosing among days of equal age. Default: the date."),
]


def drill(call: Call, days: Days = 1, seed: Seed = None) -> Report:
    """Prove that archived days can be restored.

    Days that were never drilled come first, then those whose last drill is longest ago. Each is restored
    into a scratch collection and compared byte for byte, its summaries are compared with a recomputation,
    and the collection is dropped.
    """
    chosen = call.now.toordinal() if seed is None else seed
    results = perform(call, [drill_step(days, chosen)])
    return Report(call.command, call.now, results, [table_of_verb("drill", results)])
