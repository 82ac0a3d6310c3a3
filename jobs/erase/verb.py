"""`bucketwise erase`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.text import Text

from bucketwise.archivers.erasing.erasure import Erasure, check_erasure
from bucketwise.archivers.kinds import series_of
from bucketwise.archivers.preconditions import OF_DESTROYERS, OF_REWRITERS
from bucketwise.config.errors import UsageError
from bucketwise.config.policies import Policy
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.clock import parse_range
from bucketwise.jobs.core.command import Since, Until, one_policy, parse_series
from bucketwise.jobs.core.job import Job
from bucketwise.jobs.core.runner import RunOptions, perform
from bucketwise.jobs.core.turn import LEFT_SOMETHING, Step, StepResult, Turn, prepare
from bucketwise.jobs.erase.everywhere import ErasureFacts, erase_series, plan_erasure
from bucketwise.jobs.lake import registering
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.tables import job_table, lake_lines, plain_table
from bucketwise.jobs.publish.verb import Publishing, publishing, remaining_in_redis

Series = Annotated[
    list[str] | None,
    typer.Option("--series", metavar="FIELD=VALUE", help="The series to erase. Repeat for more fields."),
]


Reason = Annotated[
    str,
    typer.Option("--reason", metavar="TEXT", help="Reason. It is kept in the receipt, so name nobody in it."),
]


Confirm = Annotated[
    str | None,
    typer.Option(
        "--confirm",
        metavar="POLICY",
        help="Repeat the name of the policy to erase. Without it, only show what would be erased.",
    ),
]


def erase(
    call: Call,
    *,
    reason: Reason,
    series: Series = None,
    since: Since = None,
    until: Until = None,
    confirm: Confirm = None,
) -> Report:
    """Erase a series for good.

    It goes from its collection, the archive, the summaries, and all that lies beside them. The archive's
    commits that hold it are rewritten without it. Nothing of it can be restored. With --since and --until
    only buckets that lie in that range go. At the end everything is searched for the series, and what
    remains is told. Without --confirm nothing is changed.
    """
    within = parse_range(since, until)
    policy = one_policy(call)
    if confirm not in (None, policy.name):
        raise UsageError(f"--confirm {confirm}: write the name of the policy to erase from: {policy.name}")
    erasure = Erasure(policy, parse_series(series), within, reason)
    check_erasure(erasure)
    known = call.settings.policies.values()
    others = [it for it in known if it.collection == policy.collection and it is not policy]
    found = publishing(call.settings)
    followers = (*registering(call.settings.lake), *((found.follower(),) if found else ()))
    options = RunOptions(within, dry_run=confirm is None, followers=followers)
    results = perform(call, [erase_step(erasure, others, found)], options, policies=[policy])
    return Report(call.command, call.now, results, [*erase_tables(results), *lake_lines(results)])


def erase_step(erasure: Erasure, others: Sequence[Policy], publishing: Publishing | None) -> Step:
    """Returns the step that erases, or counts what it would erase. `others`: policies that read the same
    collection. `publishing`: what has published summaries elsewhere."""

    def do(turn: Turn) -> StepResult:
        if turn.dry_run:
            report = plan_erasure(turn.context, series_of(turn.context), erasure, others)
        else:
            prepare(turn)
            turn.context.listener("", (), ())  # summaries are about to go
            facts = ErasureFacts(others, turn.is_archived_by_another)
            report = erase_series(turn.context, series_of, erasure, facts)
            report.remaining[:0] = (
                publishing.forget(turn, erasure.series) if publishing else remaining_in_redis(turn)
            )
        remaining = [it._asdict() for it in report.remaining]
        body = {**report.counts, "dry_run": turn.dry_run, "remaining": remaining}
        return StepResult(body, LEFT_SOMETHING if report.is_found and not turn.dry_run else 0)

    return Step("erase", do, preconditions=(*OF_REWRITERS, *OF_DESTROYERS))


def erase_tables(results: Sequence[Result]) -> list[RenderableType]:
    """Returns the tables: what was erased, or would be; and where something remains, or may."""
    left = plain_table("Remaining", "place", "why")
    for result in results:
        for it in result.body.get("remaining", []):
            left.add_row(it["place"], it["why"], style="yellow" if it["found"] else None)
    none = not any(result.body.get("buckets") or result.body.get("summaries") for result in results)
    is_dry = any(result.body.get("dry_run") for result in results)
    notes = (
        [Text("Nothing was changed. Add --confirm and the policy's name to erase this.")] if is_dry else []
    )
    if none and all(result.body for result in results):
        notes.insert(0, Text("Nothing of this series was found: is --series correct?"))
    return [job_table(JOB, results), *notes, left]


JOB = Job(
    erase,
    examples=(
        'bucketwise erase -p iot --series deviceid=1234 --reason "case 17"',
        'bucketwise erase -p iot --series deviceid=1234 --reason "case 17" --confirm iot',
    ),
    title="Erase",
    columns=("buckets", "live", "online", "archived", "commits_rewritten", "summaries"),
    reads_departed=True,
)
