"""`bucketwise stats`: what the policies are worth, in bytes before and after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.job import Job
from bucketwise.jobs.core.turn import Follower, RunOptions, Step, StepResult, Turn, perform
from bucketwise.jobs.output.bodies.common import Worth
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.tables import counted, outcome, outcome_table, telling
from bucketwise.jobs.output.text import size

Body = dict[str, Any]


def stats(call: Call) -> Report:
    """Show what the policies are worth.

    Bytes as they would be had nothing been removed, bytes now, and what a month adds, with the
    policies and without them.
    """
    results = perform(call, [STATS], RunOptions(dry_run=True))
    return Report(call.command, call.now, results, [stats_table(results), *total_lines(results)])


def _stats(turn: Turn) -> StepResult:
    from bucketwise.archivers.worth import worth_of

    return StepResult(worth_of(turn.context).body)


STATS = Step("stats", _stats)


def _worth(turn: Turn) -> Body | None:
    """Returns what the policy is worth, where this run has moved anything: its ledger entry keeps it."""
    from bucketwise.archivers.worth import known_worth

    report = turn.context.state.report
    if report is None or not (report.buckets or report.deleted):
        return None
    worth = known_worth(turn.context)
    return None if worth is None else worth.body


#: Follows the steps of a run.
WORTH = Follower("worth", _worth)


def stats_table(results: Sequence[Result]) -> RenderableType:
    """Returns what `stats` prints: a row for each policy."""
    heads = ("policy", "before", "live", "summaries", "archive", "removed", "a month", "without")
    table = outcome_table("What it is worth", *heads, minor=("removed", "a month", "without"))
    for result, values in telling([(it, _row(it.body)) for it in results]):
        table.add_row(result.policy, *map(size, values), outcome(result))
    return table


def _row(body: Body) -> list[int | None]:
    if "now" not in body:
        return [None] * 7
    now, forecast = body["now"], body["forecast"]
    live = now["data_bytes"] + now["index_bytes"]
    kept = (live, now["summary_bytes"], now["store_bytes"], body["removed_bytes"])
    return [sum(body["before"].values()), *kept, forecast["with"], forecast["without"]]


def total_lines(results: Sequence[Result]) -> list[RenderableType]:
    """Returns a sentence on all policies; nothing where none is known."""
    bodies = [it.body for it in results if "now" in it.body]
    if not bodies:
        return []
    before, now = (sum(sum(it[key].values()) for it in bodies) for key in ("before", "now"))
    policies = counted(len(bodies), "policy")
    text = f"{policies}: {size(before)} without bucketwise, {size(now)} now{_share(now, before)}"
    told = [it["forecast"] for it in bodies if it["forecast"]["without"] is not None]
    if told:
        growth = [sum(it[key] for it in told) for key in ("with", "without")]
        text += f"; a month adds {size(growth[0])}, and would add {size(growth[1])} without"
    return [Text(text)]


def _share(now: int, before: int) -> str:
    """Returns how much smaller or larger it is."""
    if not before or now == before:
        return ""
    return f" ({abs(now - before) / before:.0%} {'less' if now < before else 'more'})"


JOB = Job(
    stats,
    body=Worth,
    examples=("bucketwise stats", "bucketwise stats -p ticks --json"),
    answers=True,
)
