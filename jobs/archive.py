"""`bucketwise archive`: copies, verifies, commits and deletes what has expired."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType

from bucketwise.config.errors import HaltedError
from bucketwise.jobs.copy import following_copies
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.job import AllowLarge, Job, Since, Until
from bucketwise.jobs.core.turn import (
    LEFT_SOMETHING,
    RunOptions,
    Step,
    StepResult,
    Turn,
    archivable_through,
    limit_body,
    note_policy,
    perform,
    pick,
    quarantine_body,
)
from bucketwise.jobs.lake import registering
from bucketwise.jobs.output.bodies import running
from bucketwise.jobs.output.grid import Grid
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.tables import (
    fit_lines,
    in_future,
    job_table,
    leftover_lines,
    notes,
    plan_closing,
    run_closing,
)
from bucketwise.jobs.publish.verb import published

if TYPE_CHECKING:
    from bucketwise.archivers.context import ArchiveReport, DeleteLimit
    from bucketwise.archivers.upkeep import Upkeep
    from bucketwise.config.policies import Policy

Body = dict[str, Any]

DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be archived, and change nothing.")]


def archive(
    call: Call,
    since: Since = None,
    until: Until = None,
    dry_run: DryRun = False,
    allow_large: AllowLarge = False,
) -> Report:
    """Archive the buckets that have expired.

    They are copied, verified, committed, and only then deleted.
    """
    within = call.ranges(since, until)
    open_executor = call.open_executor()
    settings = call.settings
    followers = (*registering(settings.lake), *following_copies(settings.store), *published(settings))
    results = perform(call, [ARCHIVE], RunOptions(within, dry_run, open_executor, allow_large, followers))
    if dry_run:
        planned = [in_future(archive_table(results)), *archive_tables(results)[1:], *plan_closing(results)]
        return Report(call.command, call.now, results, planned)
    tables = [*archive_tables(results), *notes(results), *run_closing(results)]
    return Report(call.command, call.now, results, tables)


#: What an archive run counts as it goes on.
_COUNTED = ("to", "buckets", "readings", "parts", "bytes", "deleted", "removed_bytes")


def _archive(turn: Turn) -> StepResult:
    from bucketwise.archivers.context import ArchiveReport
    from bucketwise.archivers.kinds import archive_of
    from bucketwise.archivers.moving.archive import ArchiveOptions
    from bucketwise.archivers.upkeep import Upkeep
    from bucketwise.jobs.core.fit import archives_now, check_fit, require_fit, step_body

    context = turn.context
    if context.policy.archive is None:
        return StepResult(_archive_body(ArchiveReport("none"), context.policy))
    note_policy(turn)
    fit = check_fit(turn) if archives_now(turn) else None
    require_fit(turn, fit)
    upkeep = Upkeep(context, turn.readers, is_deleted_early=turn.is_archived_by_another, dry_run=turn.dry_run)
    options = ArchiveOptions(turn.within, archivable_through(turn), upkeep, turn.allow_large, upkeep.left)
    archive = archive_of(context)
    report = archive.plan(options) if turn.dry_run else archive.run(options)
    stays = bool(report.quarantined or report.changed or report.valueless or upkeep.gone)
    limit = report.limit if turn.dry_run else None
    body = _archive_body(report, context.policy, upkeep) | step_body(fit) | _limit_body(limit)
    if turn.dry_run:
        del body["removed_bytes"]  # documents that are not read have no size
    would_stop = limit is not None and limit.is_exceeded
    return StepResult(body, HaltedError.exit_code if would_stop else LEFT_SOMETHING if stays else 0)


def _archived_so_far(turn: Turn) -> Body | None:
    """Returns the counts of an archive run that was stopped, or failed; not those that only its end tells."""
    report = turn.context.state.report
    return None if report is None else pick(report, *_COUNTED)


def _archive_body(report: ArchiveReport, policy: Policy, upkeep: Upkeep | None = None) -> Body:
    return {
        **pick(report, *_COUNTED, "left"),
        "reasons": [{"reason": reason, "count": count} for reason, count in report.reasons.items()],
        "summaries": upkeep.written if upkeep else 0,
        "gone": upkeep.gone if upkeep else 0,
        "valueless": valueless(report, policy),
        **quarantine_body(report.quarantined, report.quarantined_total),
    }


def _limit_body(limit: DeleteLimit | None) -> Body:
    """Returns `max_delete` as a plan's JSON."""
    if limit is None:
        return {}
    return {"limit": limit_body(limit)}


ARCHIVE = Step("archive", _archive, _archived_so_far, by_present=True, preconditions="archiving")


def valueless(report: ArchiveReport, policy: Policy) -> list[Body]:
    """Returns which days of which series stay as they hold no number, in the words of the JSON."""
    names = policy.series_names
    return [
        {"field": it.field, "series": dict(zip(names, it.series, strict=True)), "day": it.date}
        for it in report.valueless
    ]


def archive_tables(results: Sequence[Result]) -> list[RenderableType]:
    """Returns what `archive` prints."""
    return [archive_table(results), *leftover_lines(results), *fit_lines(results)]


def archive_table(results: Sequence[Result]) -> Grid:
    """Returns the counts of an archive run, a row for each policy."""
    return job_table(JOB, results)


JOB = Job(
    archive,
    body=running.Archive,
    examples=(
        "bucketwise archive",
        "bucketwise archive --dry-run",
        "bucketwise archive -p ticks --until 2018-07-01",
    ),
    title="Archive",
    columns=("buckets", "readings", "bytes", "deleted", "left", "quarantined", "to", "parts"),
    is_pausable=True,
    is_measured=True,
    has_workers=True,
)
