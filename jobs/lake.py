"""`bucketwise lake`: registers archives in Iceberg tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import RenderableType
from rich.text import Text

from bucketwise.config.errors import UsageError
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.job import Code, Job
from bucketwise.jobs.core.turn import Finding, Follower, Step, StepResult, Turn, perform, prepare
from bucketwise.jobs.output.bodies import running
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.tables import closing, counted, lake_line, sums

if TYPE_CHECKING:
    from bucketwise.archivers.context import ArchiveContext
    from bucketwise.archivers.lake.records import LakeReport
    from bucketwise.config.tables import Lake

Body = dict[str, Any]

What = Annotated[Literal["sync"], typer.Argument(metavar="ACTION", help="sync: bring the tables up to date.")]


def lake(call: Call, action: What) -> Report:  # noqa: ARG001  # there is one
    """Bring Iceberg tables up to what the offline archives hold.

    All that a table lists is compared with the archive: parts that it lacks are added, others are taken out.
    Commands that archive do as much as has changed by themselves; this mends what they could not.
    """
    settings = call.settings.lake
    if settings is None:
        raise UsageError(f"lake: {call.settings.path} has no table [lake]. Add one; its keys may be left out")
    results = perform(call, [sync_step(settings)])
    return Report(call.command, call.now, results, sync_lines(results))


@contextmanager
def installed() -> Iterator[None]:
    """Makes the block raise UsageError where what works with Iceberg can't be imported."""
    try:
        yield
    except ImportError as error:
        raise UsageError(
            f"[lake]: pyiceberg is not installed here ({error}). Install it: pip install 'bucketwise[lake]'; "
            "or remove the table from the policy file"
        ) from error


def sync_step(lake: Lake) -> Step:
    """Returns the step that compares a table with its archive, and registers what it lacks."""

    def do(turn: Turn) -> StepResult:
        prepare(turn)
        return StepResult(_body(_sync(turn.context, lake, whole=True)))

    return Step("lake sync", do, preconditions="working")


def registering(lake: Lake | None) -> tuple[Follower, ...]:
    """Returns the follower that registers, at the end, what a run has archived; or none. Where the run
    failed, something may be half-done, and the next one registers it."""
    if lake is None:
        return ()
    return (Follower("lake", lambda turn: _body(_sync(turn.context, lake, whole=False))),)


def lake_findings(lake: Lake | None, turn: Turn) -> list[Finding]:
    """Returns how a policy's table differs from its archive, for an audit."""
    from bucketwise.archivers.kinds import archive_of

    if lake is None:
        return []
    with installed():
        found = archive_of(turn.context).lake_differences(lake)
    return [
        Finding("lake-behind", turn.policy.name, it.place, "warning", it.message)
        if it.is_behind
        else Finding("lake-differs", turn.policy.name, it.place, "error", it.message)
        for it in found
    ]


def _sync(context: ArchiveContext, lake: Lake, *, whole: bool) -> LakeReport:
    from bucketwise.archivers.kinds import archive_of

    with installed():
        return archive_of(context).sync_lake(lake, whole=whole)


def _body(report: LakeReport) -> Body:
    return report._asdict()


def sync_lines(results: Sequence[Result]) -> list[RenderableType]:
    """Returns a line for each table that was compared with its archive, and one on all."""
    bodies = ((it.policy, it.body) for it in results if "added" in it.body)
    added, removed = sums(results, "added", "removed")
    lines = [
        Text(f"{policy}: nothing is archived offline, so it has no Iceberg table")
        if body["snapshot"] is None
        else lake_line(policy, body["added"], body["removed"], body["snapshot"])
        for policy, body in bodies
    ]
    what = f"{counted(added, 'part')} added to Iceberg tables, {removed:,} taken out"
    return [*lines, *closing(results, what if added or removed else "every Iceberg table is up to date")]


JOB = Job(
    lake,
    body=running.Lake,
    audited=(
        Code(
            "lake-behind",
            "Run `bucketwise lake sync`. If it stays: its message says why.",
            severities=("warning",),
        ),
        Code("lake-differs", "Find out who else writes to the table. Run `bucketwise lake sync`."),
    ),
    examples=(
        "bucketwise lake sync",
        "bucketwise lake sync -p ticks --json",
    ),
)
