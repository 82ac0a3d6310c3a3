"""`bucketwise thaw`: has S3 make archived parts readable that are in a cold storage class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from bucketwise.config.errors import UsageError
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.job import Job, Since, Until
from bucketwise.jobs.core.thaws import DAYS, Days, Speed, TierOption, thaw_body
from bucketwise.jobs.core.turn import LEFT_SOMETHING, RunOptions, Step, StepResult, Turn, perform
from bucketwise.jobs.output.bodies import keeping
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.tables import closing, counted, instant, job_table, sums
from bucketwise.jobs.output.text import size


def thaw(
    call: Call,
    *,
    since: Since = None,
    until: Until = None,
    days: Days = DAYS,
    tier: TierOption = Speed.standard,
) -> Report:
    """Make parts in a cold storage class readable.

    S3 is asked for the parts of all commits that touch the range, and takes hours. Called again, it tells how
    many can be read by then. Parts that a copy of the store can give are not asked for. Ends with exit code 3
    until all can be read. It changes nothing that is archived, and does not wait for a run.
    """
    if since is None or until is None:
        raise UsageError("thaw takes --since and --until: S3 charges for each part that is thawed")
    results = perform(call, [thaw_step(days, tier)], RunOptions(call.ranges(since, until), dry_run=True))
    return Report(call.command, call.now, results, list(thaw_tables(results)))


def thaw_step(days: int, tier: Speed) -> Step:
    """Returns the step that asks for the parts of the turn's range."""
    from bucketwise.archivers.classes import ThawOptions
    from bucketwise.archivers.classes import thaw as thaw_parts

    def do(turn: Turn) -> StepResult:
        options = ThawOptions(turn.within, days, tier.value)
        report = thaw_parts(turn.context, options)
        return StepResult(thaw_body(report, options), 0 if report.is_ready else LEFT_SOMETHING)

    return Step("thaw", do, by_present=True, preconditions="reading")


def thaw_tables(results: Sequence[Result]) -> Iterator[RenderableType]:
    """Yields what `thaw` prints."""
    yield job_table(JOB, results)
    for result in results:
        if not (classes := result.body.get("classes")):
            continue
        held = ", ".join(f"{count:,} in {named}" for named, count in sorted(classes.items()))
        yield Text(f"{result.policy}: cold parts, {size(result.body['bytes'])}: {held}")
        if (at := result.body["ready_at"]) is not None:
            yield Text(f"{result.policy}: all can be read by {instant(at)} UTC: call again then")
    ready, parts = sums(results, "ready", "parts")
    yield from closing(results, f"{ready:,} of {counted(parts, 'part')} can be read now")


JOB = Job(
    thaw,
    body=keeping.Thaw,
    examples=(
        "bucketwise thaw -p ticks --since 2018-06-01 --until 2018-07-01 --days 3",
        "bucketwise thaw -p ticks --since 2018-06 --until 2018-07 --tier bulk --json",
    ),
    title="Thaw",
    columns=("commits", "parts", "asked", "waiting", "ready"),
    reads_departed=True,
)
