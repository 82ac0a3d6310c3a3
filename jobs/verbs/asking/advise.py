"""`bucketwise advise`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from config.errors import UsageError
from jobs.advising.advise import Options, advise_on
from jobs.call import Call
from jobs.output.report import Report

EXAMPLES = [
    "bucketwise advise ticks",
    "bucketwise advise iot --html iot.html",
    "bucketwise advise ticks --scratch advise_scratch --readings 200000 --json",
]
Name = Annotated[str, typer.Argument(metavar="COLLECTION", help="The collection to look at.")]
Scratch = Annotated[
    str | None,
    typer.Option(
        "--scratch",
        metavar="DATABASE",
        help="Try models in a new database of the server itself, dropped in the end. Default: an embedded MongoDB.",
    ),
]
Readings = Annotated[
    int, typer.Option("--readings", min=100, max=5_000_000, help="Number of readings to try models with.")
]
NoCandidates = Annotated[bool, typer.Option("--no-candidates", help="Only findings: try no other models.")]
Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Also write an HTML page.")]


def advise(
    call: Call,
    name: Name,
    *,
    scratch: Scratch = None,
    readings: Readings = 50_000,
    no_candidates: NoCandidates = False,
    html: Html = None,
) -> Report:
    """Tell how well a collection's model is kept, and what others would take.

    Looks at a bounded sample and changes nothing: fill and sizes of buckets, fields that disagree,
    duplicates, gaps, late arrival, indexes, the working set; each with its cost and its remedy. Then the
    sample is written in other models, measured, and scaled to the whole collection.
    """
    if html is not None and not html.parent.is_dir():
        raise UsageError(f"--html {html}: there is no folder {html.parent}")
    call.needs_policies = False
    return advise_on(call, name, Options(scratch, readings, not no_candidates, html))
