"""`bucketwise compact`: merges small commits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType

from bucketwise.jobs.copy import following_copies
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.job import Job, Since, Until
from bucketwise.jobs.core.turn import RunOptions, Step, StepResult, Turn, perform
from bucketwise.jobs.lake import registering
from bucketwise.jobs.output.bodies import running
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.tables import closing, counted, job_table, notes, sums
from bucketwise.jobs.output.text import size

if TYPE_CHECKING:
    from bucketwise.archivers.compact import CompactOptions

DryMerge = Annotated[bool, typer.Option("--dry-run", help="Show what would be merged, and change nothing.")]


def compact(call: Call, since: Since = None, until: Until = None, dry_run: DryMerge = False) -> Report:
    """Merge small commits of offline archives.

    The commits that begin on the same UTC day become one, as far as one commit may hold them. `bucketwise
    run` does this as well, once a day has come to rest.
    """
    within = call.ranges(since, until)
    followers = (*registering(call.settings.lake), *following_copies(call.settings.store))
    options = RunOptions(within, dry_run, followers=followers)
    results = perform(call, [COMPACT_ALL], options)
    return Report(call.command, call.now, results, compact_tables(results, dry_run=dry_run))


def compact_tables(results: Sequence[Result], *, dry_run: bool) -> list[RenderableType]:
    """Returns what `compact` prints."""
    keys = ("commits", "into", "bytes_before", "bytes_after")
    commits, into, before, after = sums(results, *keys)
    what = "no small commits to merge"
    if commits:
        sizes = f"{size(before)} before, {size(after)} after"
        what = f"{counted(commits, 'commit')} {'would be ' if dry_run else ''}merged into {into:,}; {sizes}"
    return [job_table(JOB, results), *notes(results), *closing(results, what)]


def _compact(turn: Turn) -> StepResult:
    """Merges small commits of finished days, within the budget: the step of a run."""
    from bucketwise.archivers.compact import CompactOptions, CompactReport

    archive, now = turn.policy.archive, turn.context.now
    if archive is None or archive.compact.after is None:
        return StepResult(asdict(CompactReport()))
    options = CompactOptions(turn.within, now - archive.compact.after, archive.compact.budget)
    return _compact_as_asked(turn, options)


def _compact_all(turn: Turn) -> StepResult:
    """Merges all small commits in the range: the step of the verb."""
    from bucketwise.archivers.compact import CompactOptions

    return _compact_as_asked(turn, CompactOptions(turn.within))


def _compact_as_asked(turn: Turn, options: CompactOptions) -> StepResult:
    from bucketwise.archivers.kinds import archive_of

    archive = archive_of(turn.context)
    act = archive.plan_compaction if turn.dry_run else archive.compact
    return StepResult(asdict(act(options)))


COMPACT = Step("compact", _compact, by_present=True, preconditions="rewriting", weight=0.2)
COMPACT_ALL = replace(COMPACT, do=_compact_all, by_present=False)

JOB = Job(
    compact,
    body=running.Compact,
    examples=(
        "bucketwise compact --dry-run",
        "bucketwise compact -p ticks --since 2018-06-01 --until 2018-07-01",
    ),
    title="Compaction",
    columns=("commits", "into", "buckets", "bytes_before", "bytes_after"),
    is_pausable=True,
    is_measured=True,
)
