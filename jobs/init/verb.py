"""`bucketwise init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bucketwise.config.errors import UsageError
from bucketwise.config.loading.load import DEFAULT_PATH
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.job import Job
from bucketwise.jobs.init.survey import free, mongodb_at, survey
from bucketwise.jobs.output.report import Report

URI = Annotated[
    str,
    typer.Argument(metavar="URI/DATABASE", help="URI of MongoDB, with the database: mongodb://host/market."),
]


Collections = Annotated[
    list[str] | None, typer.Argument(metavar="[COLLECTION…]", help="Only these collections. Default: all.")
]


Output = Annotated[
    Path, typer.Option("--output", "-o", metavar="FILE", help="The policy file to write; - for stdout.")
]


def init(call: Call, uri: URI, collections: Collections = None, *, output: Output = DEFAULT_PATH) -> Report:
    """Write a policy file for the collections of a database.

    Looks at a bounded sample of each collection and writes a policy with its bucket model, the reasons for
    it, and questions where documents don't tell. Nothing is deleted by what it writes: archive.delete is
    false. It needs no policy file, never writes over a file, and shows what `check` finds.
    """
    if call.config is not None or call.names:
        raise UsageError(
            "init reads no policy file: leave out --config and --policy. --output names the new one"
        )
    mongodb = mongodb_at(call, uri)
    target = None if str(output) == "-" else free(output)
    return survey(call, mongodb, collections or [], target)


JOB = Job(
    init,
    examples=(
        "bucketwise init '${MONGODB_URI}'",
        "bucketwise init mongodb://localhost/market ticks iot --output market.toml",
        "bucketwise init mongodb://localhost/market --output -",
    ),
)
