"""`bucketwise drill`: proves that archived days can be restored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType

from bucketwise.config.errors import HaltedError
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.job import Job
from bucketwise.jobs.core.turn import LEFT_SOMETHING, Step, StepResult, Turn, perform, pick
from bucketwise.jobs.output.bodies import proving
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.tables import closing, counted, job_table, sums

if TYPE_CHECKING:
    from bucketwise.archivers.kinds.drill import DrilledDay

Body = dict[str, Any]
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
    return Report(call.command, call.now, results, drill_tables(results))


def drill_step(days: int, seed: int) -> Step:
    """Returns the step that proves a sample of archived days restorable."""
    from bucketwise.archivers.kinds import archive_of

    def do(turn: Turn) -> StepResult:
        found = archive_of(turn.context).drill(days, seed)
        buckets, equal = sum(it.buckets for it in found), sum(it.equal for it in found)
        body = {
            "days": len(found),
            "buckets": buckets,
            "equal": equal,
            "differing": buckets - equal,
            "summaries_differing": sum(it.summaries for it in found),
            "seed": seed,
            "drilled": [_day_body(it) for it in found],
        }
        if equal != buckets:
            return StepResult(body, HaltedError.exit_code)
        return StepResult(body, LEFT_SOMETHING if body["summaries_differing"] else 0)

    return Step("drill", do, preconditions="reading")


def drill_tables(results: Sequence[Result]) -> list[RenderableType]:
    """Returns what `drill` prints."""
    days, buckets, equal = sums(results, "days", "buckets", "equal")
    what = f"{counted(days, 'day')} restored; {equal:,} of {counted(buckets, 'bucket')} equal byte for byte"
    return [job_table(JOB, results), *closing(results, what if days else "no archived day to restore")]


def _day_body(found: DrilledDay) -> Body:
    counts = pick(found, "commits", "buckets", "equal", "drilled_before")
    return {"day": found.name, **counts, "summaries_differing": found.summaries}


JOB = Job(
    drill,
    body=proving.Drill,
    examples=(
        "bucketwise drill",
        "bucketwise drill -p ticks --days 7",
        "bucketwise drill --seed 42 --json",
    ),
    title="Restore drill",
    columns=("days", "buckets", "equal", "differing"),
    is_measured=True,
    reads_departed=True,
)
