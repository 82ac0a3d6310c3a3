"""`bucketwise remodel`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bucketwise.config.errors import UsageError
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.job import Job, collection_names
from bucketwise.jobs.output.bodies import keeping
from bucketwise.jobs.output.report import Report

Document = dict[str, Any]

Name = Annotated[
    str,
    typer.Argument(
        metavar="COLLECTION",
        autocompletion=collection_names,
        help="The collection to rewrite; it is only read.",
    ),
]

To = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="MODEL",
        help="reading, slots-minute, slots-hour, samples-50, samples-200, samples-1000, timeseries, or any "
        "number of samples: samples-N.",
    ),
]

Into = Annotated[
    str, typer.Option("--into", metavar="COLLECTION", help="The collection to write: a new one.")
]

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only report what the model has no place for.")]


def remodel(call: Call, name: Name, *, to: To, into: Into, dry_run: DryRun = False) -> Report:
    """Rewrite a collection in another bucket model.

    Writes a new collection, compares it with the source reading by reading, and shows the policy for it.
    The source is not touched. What the model has no place for is told first: readings that it can't hold
    keep all from being written. Run again after an interruption: it goes on where it was.
    """
    from bucketwise.buckets.writing import ALIASES, TARGETS, target_named
    from bucketwise.config.checks.names import collection_fault, reserved
    from bucketwise.jobs.remodel.rewriting import remodel_collection

    model = target_named(to)
    if model is None:
        known = ", ".join((*TARGETS, *ALIASES))
        raise UsageError(f"--to {to}: there is no such model. There are: {known}, and samples-N up to 10000")
    call.needs_policies = False
    if fault := collection_fault(into, call.settings.mongodb.database):
        raise UsageError(f"--into {into}: {fault.message}; {fault.remedy}")
    if key := reserved(call.settings.policies.values()).get(into):
        raise UsageError(f"--into {into}: {key} is this collection. Name another one")
    return remodel_collection(call, name, model, into, dry_run=dry_run)


JOB = Job(
    remodel,
    beside=keeping.RemodelWhole,
    unused=("now",),
    rights={"bucketwise_remodel": ("insert", "update"), "bucketwise_lease": ("insert", "update")},
    examples=(
        "bucketwise remodel prices --to slots-minute --into prices_by_minute",
        "bucketwise remodel iot --to samples-200 --into iot_200 --dry-run",
        "bucketwise remodel ticks --to timeseries --into ticks_native",
    ),
)
