"""`bucketwise explain`."""

from __future__ import annotations

from typing import Annotated, Any

import bson
import typer
from bson import json_util
from bson.binary import UuidRepresentation
from bson.errors import BSONError

from bucketwise.archivers.evidence.explain import ExplainQuery
from bucketwise.buckets.fields.selectors import EXTENDED_JSON
from bucketwise.buckets.fields.times import as_ms
from bucketwise.config.errors import UsageError
from bucketwise.jobs.call import Call
from bucketwise.jobs.clock import parse_instant
from bucketwise.jobs.options import Series, parse_series
from bucketwise.jobs.output.report import Report
from bucketwise.jobs.output.text.explain import explain_lines
from bucketwise.jobs.running.runner import RunOptions, perform
from bucketwise.jobs.steps.evidence import explain_step

EXAMPLES = [
    "bucketwise explain -p ticks --at 2018-06-30T12:00 --series symbol=MDB",
    """bucketwise explain -p ticks --id '{"$oid": "5b3717f0e1f2a3b4c5d6e7f8"}'""",
    "bucketwise explain -p iot --id 4711 --at 2018-06-30 --json",
]
#: A UUID stays binary: Python's type needs settings to encode.
_AS_GIVEN = EXTENDED_JSON.with_options(uuid_representation=UuidRepresentation.UNSPECIFIED)
Id = Annotated[
    str | None,
    typer.Option(
        "--id", metavar="JSON", help="The bucket with this _id, as JSON; --at then names its day, if known."
    ),
]
At = Annotated[
    str | None, typer.Option("--at", metavar="INSTANT", help="The buckets that cover this instant.")
]


def explain(call: Call, *, identity: Id = None, at: At = None, series: Series = None) -> Report:
    """Explain what becomes of a bucket.

    Where it is, how it got there, which rule of its policy applies, and what happens next and when.
    """
    question = _question(identity, at, series)
    # It changes nothing, so it needs no lease: dry.
    results = perform(call, [explain_step(question)], RunOptions(dry_run=True))
    return Report(call.command, call.now, results, explain_lines(results))


def _question(identity: str | None, at: str | None, series: list[str] | None) -> ExplainQuery:
    selector = parse_series(series)
    if identity is None and at is None:
        raise UsageError("explain needs --id JSON or --at INSTANT: say which bucket, or which instant")
    if identity is not None and selector:
        raise UsageError("--id and --series: an _id names one bucket. Give one of the two")
    return ExplainQuery(
        None if identity is None else parse_id(identity),
        identity is not None,
        None if at is None else as_ms(parse_instant(at, "--at")),
        selector,
    )


def parse_id(text: str) -> Any:
    """Returns the `_id` that extended JSON names. Raises UsageError."""
    try:
        found = json_util.loads(text, json_options=_AS_GIVEN)
        bson.encode({"_id": found})
    except (ValueError, TypeError, KeyError, BSONError, OverflowError, RecursionError) as error:
        raise UsageError(
            f"--id {text}: it is not valid Extended JSON: {error}. Write such as 4711, '\"abc\"' or "
            '\'{"$oid": "5b3717f0e1f2a3b4c5d6e7f8"}\''
        ) from None
    return found
