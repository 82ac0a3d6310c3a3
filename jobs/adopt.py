"""`bucketwise adopt`: takes archives over on purpose, after a backup was restored or a database moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType

from bucketwise.config.errors import UsageError
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.job import Job
from bucketwise.jobs.core.turn import Step, StepResult, Turn, perform
from bucketwise.jobs.output.bodies import keeping
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.tables import closing, counted, instant, number, outcome, outcome_table
from bucketwise.jobs.output.text import printable

if TYPE_CHECKING:
    from pymongo.client_session import ClientSession

    from bucketwise.archivers.binding import Adoption
    from bucketwise.archivers.context import ArchiveContext

Reason = Annotated[
    str | None,
    typer.Option("--reason", metavar="TEXT", help="Reason for taking it over. Receipts keep it forever."),
]


def adopt(call: Call, reason: Reason = None) -> Report:
    """Take archives over that belong to another database or lineage.

    Needed once where a database was restored from a backup or moved to another cluster, or a store was put
    back. What is taken over is verified first. The former owner of the archive halts from then on.
    """
    if not (why := printable(" ".join((reason or "").split()))):
        raise UsageError("adopt: say why with --reason TEXT; receipts keep it")
    results = perform(call, [adopt_step(why)])
    return Report(call.command, call.now, results, adopted_tables(results))


def adopt_step(reason: str) -> Step:
    """Returns the step that takes the policy's archive over, where it belongs to another deployment."""

    def do(turn: Turn) -> StepResult:
        adopted = take_over(turn.context, reason)
        if adopted is None:
            return StepResult({"adopted": None})
        told = {"from": adopted.taken_from, "at": adopted.at, "lineage": adopted.lineage}
        return StepResult({"adopted": told})

    return Step("adopt", do, preconditions="reading")


def take_over(context: ArchiveContext, reason: str) -> Adoption | None:
    """Takes the policy's archive over for this deployment, so that its former one halts. Returns what was
    recorded; None, and changes nothing, where there is no need. Raises HaltedError, and changes nothing,
    where what would be taken over is damaged."""
    from bucketwise.archivers.kinds import archive_of
    from bucketwise.archivers.mirroring.changes import standings
    from bucketwise.archivers.records.changes import CopyRecords
    from bucketwise.rollups.context import transaction

    archive = archive_of(context)
    if context.policy.archiving is None:
        return None
    if context.binding.reason_to_adopt() is None and not archive.needs_adoption():
        return None
    archive.check_adoptable()
    adoption = context.binding.adopt(reason)
    archive.adopt()  # what the database has forgotten, or has otherwise

    def record(session: ClientSession) -> None:
        facts = {"from": adoption.taken_from, "lineage": adoption.lineage, "reason": reason}
        context.deletions.record_event("adopt", facts, session)
        context.binding.settle_adoption(session)

    transaction(context.database, context.guard, record)
    forgotten = CopyRecords(context.receipts)
    for it in standings(context):
        if it.filled_at is not None and not it.required:  # its journal may have been lost with the database
            forgotten.note_begun(it.name, it.url)
    return adoption


def adopted_tables(results: Sequence[Result]) -> list[RenderableType]:
    """Returns what `adopt` prints: which archives were taken over, and from whom."""
    table = outcome_table("Adopt", "policy", "taken over from", "at", "lineage")
    for result in results:
        if it := result.body.get("adopted"):
            where = printable(it["from"] or "an unknown database")
            table.add_row(result.policy, where, instant(it["at"]), number(it["lineage"]), outcome(result))
    taken = f"{counted(len(table.rows), 'archive')} taken over" if table.rows else "no archive was another's"
    return [table, *closing(results, taken)]


JOB = Job(
    adopt,
    body=keeping.Adopted,
    examples=(
        'bucketwise adopt --reason "The cluster has moved to Frankfurt"',
        'bucketwise adopt -p ticks --reason "Restored from the backup of Monday"',
    ),
)
