"""`bucketwise history`: the runs that the ledger tells of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.job import Job
from bucketwise.jobs.core.turn import RunOptions, Step, StepResult, Turn, perform, pick
from bucketwise.jobs.output.bodies import asking
from bucketwise.jobs.output.report import Report, Result, own_error
from bucketwise.jobs.output.tables import closing, counted, instant, number, outcome_table
from bucketwise.jobs.output.text import printable, size

if TYPE_CHECKING:
    from bucketwise.jobs.core.ledger import Run

Body = dict[str, Any]

Limit = Annotated[
    int, typer.Option("--limit", min=1, max=10_000, metavar="N", help="So many runs of each policy.")
]


def history(call: Call, limit: Limit = 20) -> Report:
    """Show the runs of each policy, the newest first.

    What each did, when, how it ended, and who ran it where, as the ledger tells. Consecutive runs that did
    nothing are one line.
    """
    results = perform(call, [_step(limit)], RunOptions(dry_run=True))
    return Report(call.command, call.now, results, list(history_tables(results)))


def _step(limit: int) -> Step:
    from bucketwise.jobs.core.ledger import Ledger

    def do(turn: Turn) -> StepResult:
        runs = Ledger(turn.context.database).last_runs(turn.policy.identity, limit)
        return StepResult({"runs": [run_body(it) for it in runs]})

    return Step("history", do)


def run_body(run: Run) -> Body:
    """Returns a run as JSON. `buckets` and `bytes` are those that it archived; null where it did not archive.
    `runs`: so many of them, since `since`, of which all but the last did nothing."""
    steps = {name: it for name, it in run.counts.items() if isinstance(it, dict) and name != "worth"}
    archived = steps.get("archive", run.counts if run.verb == "archive" else {})
    return {
        **pick(run, "run", "verb"),
        "started_at": run.started,
        "ended_at": run.ended,
        **pick(run, "exit_code", "outcome", "error"),
        "steps": list(steps) if run.verb == "run" else [run.verb],
        "buckets": archived.get("buckets"),
        "bytes": archived.get("bytes"),
        **pick(run, "runs", "since", "host", "user", "version", "now_given"),
    }


def history_tables(results: Sequence[Result]) -> Iterator[Any]:
    """Yields what `history` prints: a table, and a line about all of it."""
    heads = ("policy", "started", "verb", "took", "runs", "buckets", "bytes", "by", "error")
    table = outcome_table("Runs", *heads, minor=("by", "runs", "took"))
    bodies = [(result.policy, it) for result in results for it in result.body.get("runs", ())]
    for policy, it in bodies:
        who = f"{it['user'] or '?'}@{it['host'] or '?'}"
        error = Text(own_error(it["error"], policy).partition("\n")[0] or "–")
        what = (it["verb"], _took(it), number(it["runs"]), number(it["buckets"]), size(it["bytes"]))
        table.add_row(policy, instant(it["started_at"]), *what, printable(who), error, it["outcome"])
    yield table
    bad = sum(it["exit_code"] not in (0, 3) for _, it in bodies)
    tail = f"; {bad:,} of them failed, or did not come to the end" if bad else ""
    yield from closing(results, f"{counted(len(bodies), 'run')}{tail}")


def _took(run: Body) -> str:
    if run["ended_at"] is None:
        return "–"
    return f"{(run['ended_at'] - run['started_at']).total_seconds():,.1f} s"


JOB = Job(
    history,
    body=asking.History,
    examples=("bucketwise history", "bucketwise history -p ticks --limit 100 --json"),
    reads_departed=True,
    answers=True,
)
