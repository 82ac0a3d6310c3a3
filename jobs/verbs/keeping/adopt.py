"""`bucketwise adopt`."""

from __future__ import annotations

from typing import Annotated

import typer

from bucketwise.config.errors import UsageError
from bucketwise.jobs.call import Call
from bucketwise.jobs.output.report import Report
from bucketwise.jobs.output.text.cells import printable
from bucketwise.jobs.output.text.keeping import adopted_table
from bucketwise.jobs.running.runner import perform
from bucketwise.jobs.steps.adopting import adopt_step

EXAMPLES = [
    'bucketwise adopt --reason "The cluster has moved to Frankfurt"',
    'bucketwise adopt -p ticks --reason "Restored from the backup of Monday"',
]
Reason = Annotated[
    str | None,
    typer.Option("--reason", metavar="TEXT", help="Reason for taking it over. Receipts keep it forever."),
]


def adopt(call: Call, reason: Reason = None) -> Report:
    """Take archives over that belong to another database or lineage.

    Needed once where a database was restored from a backup or moved to another cluster, or a store was put
    back. What is taken over is verified first. The former owner of the archive halts from then on.
    """
    if not (why := printable(" ".join((reason or "").split()))):
        raise UsageError("adopt: say why with --reason TEXT; receipts keep it")
    results = perform(call, [adopt_step(why)])
    return Report(call.command, call.now, results, [adopted_table(results)])
