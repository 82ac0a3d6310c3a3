"""`bucketwise erase`: its options, its step and what it shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType

from bucketwise.config.errors import UsageError
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.job import Job, Since, Until, one_policy, parse_series
from bucketwise.jobs.core.turn import LEFT_SOMETHING, RunOptions, Step, StepResult, Turn, perform, prepare
from bucketwise.jobs.lake import registering
from bucketwise.jobs.output.bodies import keeping
from bucketwise.jobs.output.grid import Grid
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.tables import closing, counted, job_table, lake_lines, sums
from bucketwise.jobs.publish.verb import Publishing, publishing, remaining_in_redis

if TYPE_CHECKING:
    from bucketwise.archivers.erasing.erasure import Erasure
    from bucketwise.config.policies import Policy

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
    commits that hold it are rewritten without it, and so are buckets that hold other series as well. Nothing
    of it can be restored. With --since and --until only what lies in that range goes. At the end everything
    is searched for the series, and what remains is told. Without --confirm nothing is changed.
    """
    from bucketwise.archivers.erasing.erasure import Erasure, check_erasure
    from bucketwise.jobs.core.ranges import parse_range

    asked = parse_range(since, until)
    policy = one_policy(call)
    within = asked.exact(call.command, [policy])
    if confirm not in (None, policy.name):
        raise UsageError(f"--confirm {confirm}: write the name of the policy to erase from: {policy.name}")
    erasure = Erasure(policy, parse_series(series), within, reason)
    check_erasure(erasure)
    known = call.settings.policies.values()
    others = [it for it in known if it.collection == policy.collection and it is not policy]
    found = publishing(call.settings)
    followers = (*registering(call.settings.lake), *((found.follower(),) if found else ()))
    options = RunOptions(lambda _: within, dry_run=confirm is None, followers=followers)
    results = perform(call, [erase_step(erasure, others, found)], options, policies=[policy])
    tables = [*erase_tables(results), *lake_lines(results)]
    return Report(call.command, call.now, results, tables, is_answer=confirm is None)


def erase_step(erasure: Erasure, others: Sequence[Policy], publishing: Publishing | None) -> Step:
    """Returns the step that erases, or counts what it would erase. `others`: policies that read the same
    collection. `publishing`: what has published summaries elsewhere."""
    from bucketwise.archivers.copying.remaining import remaining_in_copies
    from bucketwise.archivers.kinds import series_of
    from bucketwise.jobs.erase.erasing import ErasureFacts, erase_series, plan_erasure

    def do(turn: Turn) -> StepResult:
        if turn.dry_run:
            report = plan_erasure(turn.context, series_of(turn.context), erasure, others)
        else:
            prepare(turn)
            turn.context.listener("", (), ())  # summaries are about to go
            facts = ErasureFacts(others, turn.is_archived_by_another)
            report = erase_series(turn.context, series_of, erasure, facts)
            report.remaining[:0] = (
                *remaining_in_copies(turn.context),
                *(publishing.forget(turn, erasure.series) if publishing else remaining_in_redis(turn)),
            )
        remaining = [it._asdict() for it in report.remaining]
        body = {**report.counts, "dry_run": turn.dry_run, "remaining": remaining}
        return StepResult(body, LEFT_SOMETHING if report.is_found and not turn.dry_run else 0)

    return Step("erase", do, preconditions="erasing")


def erase_tables(results: Sequence[Result]) -> list[RenderableType]:
    """Returns the tables: what was erased, or would be; and where something remains, or may."""
    left = Grid("Remaining", ("place", "why"))
    for result in results:
        for it in result.body.get("remaining", []):
            left.add_row(it["place"], it["why"], style="yellow" if it["found"] else None)
    buckets, summaries, commits = sums(results, "buckets", "summaries", "commits_rewritten")
    what = f"{counted(buckets, 'bucket')} and {counted(summaries, 'summary')}"
    rewritten = f"; {counted(commits, 'commit')} written again without them" if commits else ""
    if not (buckets or summaries):
        done = "nothing of this series was found: is --series correct?"
    elif any(result.body.get("dry_run") for result in results):
        done = f"would erase {what}. Nothing was changed. To erase them, add --confirm and the policy's name"
    else:
        done = f"{what} erased{rewritten}"
    return [job_table(JOB, results), left, *closing(results, done)]


JOB = Job(
    erase,
    body=keeping.Erase,
    examples=(
        'bucketwise erase -p iot --series deviceid=1234 --reason "case 17"',
        'bucketwise erase -p iot --series deviceid=1234 --reason "case 17" --confirm iot',
    ),
    title="Erase",
    columns=("buckets", "summaries", "live", "archived", "online", "rewritten", "commits_rewritten"),
    reads_departed=True,
)
