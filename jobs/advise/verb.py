"""`bucketwise advise`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bucketwise.config.errors import UsageError
from bucketwise.jobs.advise.advise import AdviseOptions, advise_on
from bucketwise.jobs.advise.shard_keys import DEFAULT_SHARDS, ShardOptions, shard_keys_of
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.job import Job
from bucketwise.jobs.output.report import Report

Name = Annotated[str, typer.Argument(metavar="COLLECTION", help="The collection to look at.")]


Scratch = Annotated[
    str | None,
    typer.Option(
        "--scratch",
        metavar="DATABASE",
        help="Try models in a new database of the server, dropped at the end. Default: an embedded MongoDB.",
    ),
]


Readings = Annotated[
    int, typer.Option("--readings", min=100, max=5_000_000, help="Number of readings to try models with.")
]


NoCandidates = Annotated[bool, typer.Option("--no-candidates", help="Only findings: try no other models.")]


Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Also write an HTML page.")]


ShardKeys = Annotated[
    str | None,
    typer.Option(
        "--shard-keys",
        metavar="A,B;C",
        help="Compare shard keys: these and likely ones. A:hashed for a hashed field.",
    ),
]


Shards = Annotated[
    int | None,
    typer.Option(
        "--shards",
        min=2,
        max=1000,
        metavar="N",
        help=f"Compare shard keys for this many shards. Default: {DEFAULT_SHARDS}.",
    ),
]


Queries = Annotated[
    Path | None,
    typer.Option(
        "--queries",
        metavar="FILE",
        help="For shard keys: JSON filters, one a line. Default: those of the profiler, else usual ones.",
    ),
]


ShardReadings = Annotated[
    float | None,
    typer.Option(
        "--shard-readings",
        min=1,
        max=1e12,
        metavar="N",
        help="For shard keys: simulate this many readings, up to 1e12. Default: as many as there are.",
    ),
]


def advise(
    call: Call,
    name: Name,
    *,
    scratch: Scratch = None,
    readings: Readings = 50_000,
    no_candidates: NoCandidates = False,
    html: Html = None,
    shard_keys: ShardKeys = None,
    shards: Shards = None,
    queries: Queries = None,
    shard_readings: ShardReadings = None,
) -> Report:
    """Tell how well a collection's model is kept, and what others would take.

    Looks at a bounded sample and changes nothing: fill and sizes of buckets, fields that disagree,
    duplicates, gaps, late arrival, indexes, the working set; each with its cost and its remedy. Then the
    sample is written in other models, measured, and scaled to the whole collection. With --shard-keys or
    --shards it compares shard keys instead: where writes and data go, and how many shards a query needs.
    """
    if html is not None and not html.parent.is_dir():
        raise UsageError(f"--html {html}: there is no folder {html.parent}")
    call.needs_policies = False
    if any(it is not None for it in (shard_keys, shards, queries, shard_readings)):
        if html is not None or scratch is not None:
            raise UsageError(
                "--html and --scratch are about models, not about shard keys: leave them out, or run twice"
            )
        options = ShardOptions(shard_keys, shards or DEFAULT_SHARDS, queries, shard_readings)
        return shard_keys_of(call, name, options)
    return advise_on(call, name, AdviseOptions(scratch, readings, not no_candidates, html))


JOB = Job(
    advise,
    examples=(
        "bucketwise advise ticks",
        "bucketwise advise iot --html iot.html",
        "bucketwise advise ticks --scratch advise_scratch --readings 200000 --json",
        "bucketwise advise ticks --shard-keys 'symbol,d;_id:hashed' --shards 4",
    ),
)
