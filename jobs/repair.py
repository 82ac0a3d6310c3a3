"""`bucketwise repair`: puts damaged and missing objects back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from bucketwise.config.errors import HaltedError, UsageError
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.job import Job
from bucketwise.jobs.core.turn import LEFT_SOMETHING, RunOptions, Step, StepResult, Turn, perform, pick
from bucketwise.jobs.output.bodies import proving
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.tables import closing, counted, job_table, sums

Body = dict[str, Any]

DryRepair = Annotated[bool, typer.Option("--dry-run", help="Show what would be put back. Writes nothing.")]


def repair(call: Call, dry_run: DryRepair = False) -> Report:
    """Put damaged and missing objects back.

    The store and each of its copies are verified by themselves. What is damaged in one and as it was written
    in another is put back from there, read back and compared, and verified again. A store that is new is
    filled first. Nothing comes back that was deleted. What is damaged everywhere ends with exit code 5.
    """
    store = call.settings.store
    if store is None or not store.copies:
        raise UsageError(
            f"{call.settings.path} names no copies of the store, from which anything could be put back: add "
            "[[store.copies]] with a name and a url, and fill it: `bucketwise copy`"
        )
    results = perform(call, [REPAIR], RunOptions(dry_run=dry_run), call.archived_policies)
    return Report(call.command, call.now, results, repair_tables(results, dry_run=dry_run))


def _repair(turn: Turn) -> StepResult:
    from bucketwise.archivers.copying.repairing import Repair
    from bucketwise.archivers.mirroring.places import copied

    store = copied(turn.context)
    if store is None:
        return StepResult({"repaired": 0, "lost": 0, "objects": [], "damage": []})
    found = Repair(turn.context, store, writes=not turn.dry_run).run()
    body = {
        "repaired": len(found.objects),
        "lost": len(found.lost),
        "objects": [pick(it, "place", "source", "code") for it in found.objects],
        "damage": [pick(it, "code", "place", "message") for it in found.lost],
    }
    if found.lost:
        return StepResult(body, HaltedError.exit_code)
    return StepResult(body, LEFT_SOMETHING if turn.dry_run and found.objects else 0)


REPAIR = Step("repair", _repair, preconditions="reading")


def repair_tables(results: Sequence[Result], *, dry_run: bool) -> list[RenderableType]:
    """Returns what `repair` prints: counts, and what is lost."""
    lost = [
        Text(f"{result.policy}: {it['code']} {it['place']}: {it['message']}", style="bold red")
        for result in results
        for it in result.body.get("damage", [])
    ]
    (count,) = sums(results, "repaired")
    what = f"{counted(count, 'object')} {'would be' if dry_run else 'were'} put back"
    return [job_table(JOB, results), *lost, *closing(results, what)]


JOB = Job(
    repair,
    body=proving.Repair,
    examples=("bucketwise repair --dry-run", "bucketwise repair -p ticks --json"),
    title="Repair",
    columns=("repaired", "lost"),
    is_measured=True,
    reads_departed=True,
)
