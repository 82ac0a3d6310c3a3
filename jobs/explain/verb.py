"""`bucketwise explain`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from bucketwise.buckets.fields.times import as_date, as_ms
from bucketwise.config.errors import UsageError
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.clock import iso, parse_instant
from bucketwise.jobs.core.job import Job, Series, parse_series
from bucketwise.jobs.core.turn import (
    RunOptions,
    Step,
    StepResult,
    Turn,
    archivable_through,
    hold_body,
    perform,
    pick,
)
from bucketwise.jobs.output.bodies import asking
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.tables import closing, counted
from bucketwise.jobs.output.text import printable

if TYPE_CHECKING:
    from bucketwise.archivers.kinds.evidence import Event
    from bucketwise.config.policies import Policy
    from bucketwise.jobs.explain.buckets import ExplainedBucket, ExplainQuery, ExplainResult

Body = dict[str, Any]

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
    from bucketwise.jobs.explain.buckets import ExplainQuery

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
    import bson
    from bson import json_util
    from bson.binary import UuidRepresentation
    from bson.errors import BSONError

    from bucketwise.buckets.fields.selectors import EXTENDED_JSON

    # A UUID stays binary: Python's type needs settings to encode.
    options = EXTENDED_JSON.with_options(uuid_representation=UuidRepresentation.UNSPECIFIED)
    try:
        found = json_util.loads(text, json_options=options)
        bson.encode({"_id": found})
    except (ValueError, TypeError, KeyError, BSONError, OverflowError, RecursionError) as error:
        raise UsageError(
            f"--id {text}: it is not valid Extended JSON: {error}. Write such as 4711, '\"abc\"' or "
            '\'{"$oid": "5b3717f0e1f2a3b4c5d6e7f8"}\''
        ) from None
    return found


#: Fence -> the run under it, and its verb.
Runs = Mapping[int, tuple[str | None, str | None]]


def explain_step(question: ExplainQuery) -> Step:
    """Returns the step that tells what happens to a bucket, or to those of an instant."""
    from bucketwise.archivers.kinds import archive_of
    from bucketwise.jobs.core.ledger import Ledger
    from bucketwise.jobs.explain.buckets import explained_buckets

    def do(turn: Turn) -> StepResult:
        archived = archive_of(turn.context).evidence
        answer = explained_buckets(turn.context, archived, question, archivable_through(turn), turn.readers)
        fences = {it.fence for bucket in answer.buckets for it in bucket.history if it.fence is not None}
        runs = Ledger(turn.context.database).runs_under(turn.policy.identity, fences)
        return StepResult(_answer_body(answer, turn.policy, runs))

    return Step("explain", do, preconditions="reading")


def _answer_body(answer: ExplainResult, policy: Policy, runs: Runs) -> Body:
    """Returns the answer as JSON. For one bucket, its values also stand above the list; for several, the
    state that they share."""
    buckets = [_bucket_body(it, policy, runs) for it in answer.buckets]
    states = {it["state"] for it in buckets}
    alone = buckets[0] if len(buckets) == 1 else {}
    state = states.pop() if len(states) == 1 else "both" if states else answer.hour or "unknown"
    searched = answer.searched
    return {
        "state": state,
        "rule": alone.get("rule"),
        "history": alone.get("history", []),
        "next": alone.get("next", {"action": None, "at": None}),
        "holds": alone.get("holds", []),
        "buckets": buckets,
        "searched": None if searched is None else searched._asdict(),
    }


def _bucket_body(it: ExplainedBucket, policy: Policy, runs: Runs) -> Body:
    from bucketwise.buckets.fields.selectors import id_as_json

    series = None if it.series is None else dict(zip(policy.series_names, it.series, strict=True))
    return {
        "id": id_as_json(it.id),
        **pick(it, "readings", "versions"),
        "series": series,
        "first": None if it.first is None else as_date(it.first),
        "last": None if it.last is None else as_date(it.last),
        **pick(it.fate, "state", "rule"),
        "history": [_event_body(event, runs) for event in it.history],
        "next": pick(it.fate, "action", "at"),
        "holds": [hold_body(hold) for hold in it.holds],
    }


def _event_body(event: Event, runs: Runs) -> Body:
    """Returns an event as JSON, with the run that did it, if the ledger still knows it."""
    run, verb = runs.get(event.fence, (None, None)) if event.fence is not None else (None, None)
    return {**pick(event, "at", "event", "commit", "receipt", "detail"), "run": run, "verb": verb}


_STATES = {
    "live": "in the source only",
    "both": "in the source, and in the archive",
    "archived": "in the offline archive",
    "online": "in the online archive",
    "quarantined": "in the source, quarantined",
}

_DONE = {
    "archive": "archived",
    "delete": "deleted from the source",
    "expire": "removed from the archive for good",
    None: "nothing",
}


def explain_lines(results: Sequence[Result]) -> list[RenderableType]:
    """Returns a paragraph for each bucket, or what is known where there is none; and a line on all."""
    bodies = ((it.policy, it.body) for it in results if "buckets" in it.body)
    lines = [Text(printable(line)) for policy, body in bodies for line in _lines(policy, body)]
    states = Counter(it["state"] for result in results for it in result.body.get("buckets", ()))
    told = ", ".join(f"{count:,} {state}" for state, count in sorted(states.items()))
    found = f"{counted(states.total(), 'bucket')} ({told})" if told else "no bucket was found"
    return [*lines, *closing(results, found)]


def _lines(policy: str, body: Body) -> Iterator[str]:
    from bucketwise.buckets.fields.selectors import extended_json

    if not body["buckets"]:
        yield f"{policy}: no bucket is known there: {body['state']}"
    if searched := body["searched"]:
        yield f"  {searched['read']:,} of {searched['commits']:,} commits were searched; --at names the day"
    for it in body["buckets"]:
        series = " ".join(f"{name}={value}" for name, value in (it["series"] or {}).items())
        yield f"{policy}: _id {extended_json(it['id'])}{f', {series}' if series else ''}"
        if it["first"] is not None:
            count = "" if it["readings"] is None else f"{it['readings']:,} readings, "
            yield f"  holds  {count}{iso(it['first'])} to {iso(it['last'])}"
        yield f"  is     {_STATES[it['state']]}"
        yield f"  rule   {it['rule']}"
        yield f"  next   {_next(it['next'])}"
        yield from (f"  held   by {hold['name']}: {hold['reason']}" for hold in it["holds"])
        yield from (f"  was    {_event(event)}" for event in it["history"])


def _next(it: Body) -> str:
    done = _DONE[it["action"]]
    return done if it["at"] is None else f"{done} by a run after {iso(it['at'])}"


def _event(it: Body) -> str:
    parts = [it["event"]]
    parts += [f"in commit {it['commit']}"] if it["commit"] else []
    parts += [f"receipt {it['receipt']}"] if it["receipt"] else []
    parts += [f"by `{it['verb']}`, run {it['run']}"] if it["run"] else []
    parts += [it["detail"]] if it["detail"] else []
    at = iso(it["at"]) if it["at"] else "–"
    return f"{at}  {', '.join(parts)}"


JOB = Job(
    explain,
    body=asking.Explain,
    examples=(
        "bucketwise explain -p ticks --at 2018-06-30T12:00 --series symbol=MDB",
        """bucketwise explain -p ticks --id '{"$oid": "5b3717f0e1f2a3b4c5d6e7f8"}'""",
        "bucketwise explain -p iot --id 4711 --at 2018-06-30 --json",
    ),
    reads_departed=True,
    answers=True,
)
