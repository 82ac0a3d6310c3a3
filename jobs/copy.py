"""`bucketwise copy`: fills the copies of the store. Also brings them up to the store at the end of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from bucketwise.config.errors import HaltedError, UsageError
from bucketwise.config.times import format_duration
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.job import Code, Job
from bucketwise.jobs.core.logs import log
from bucketwise.jobs.core.turn import (
    LEFT_SOMETHING,
    Finding,
    Follower,
    Step,
    StepResult,
    Turn,
    perform,
    prepare,
)
from bucketwise.jobs.output.bodies import proving
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.tables import closing, counted, job_table, sums
from bucketwise.jobs.output.text import size

if TYPE_CHECKING:
    from bucketwise.archivers.context import ArchiveContext
    from bucketwise.archivers.copying.filling import Filled
    from bucketwise.archivers.mirroring.changes import CopyStanding
    from bucketwise.config.tables import Store

Body = dict[str, Any]
#: What a run that was cut off has left of a copy that is required may stay so long.
_DAY = timedelta(days=1)

Forget = Annotated[
    str | None,
    typer.Option(
        "--forget",
        metavar="NAME",
        help="Forget a copy that the policy file names no more. What lies there stays.",
    ),
]


def copy(call: Call, forget: Forget = None) -> Report:
    """Fill the copies of the store.

    What a copy lacks is read from the store, held against its manifest, written, read back and compared. Both
    are listed once. Cut off, it goes on where it was. A copy that was never filled holds up runs if it is
    required. Archives of policies that have left the file are copied too.
    """
    store = call.settings.store
    if forget is not None:
        if store is not None and any(it.name == forget for it in store.copies):
            raise UsageError(f"--forget {forget}: the policy file names this copy. Remove it there first")
    elif store is None or not store.copies:
        raise UsageError(
            f"{call.settings.path} names no copies of the store: add [[store.copies]] with a name and a url"
        )
    step = COPY if forget is None else _forgetting(forget)
    results = perform(call, [step], policies=call.archived_policies)
    return Report(call.command, call.now, results, copy_tables(results))


def _copy(turn: Turn) -> StepResult:
    from bucketwise.archivers.copying.filling import fill
    from bucketwise.archivers.mirroring.changes import standings
    from bucketwise.archivers.mirroring.places import copied

    context = turn.context
    store = copied(context)
    if store is None:  # an online archive, or none
        return StepResult({"copied": 0, "bytes": 0, "behind": 0, "copies": []})
    prepare(turn)
    found = {it.name: fill(context, store, it) for it in store.copies}
    bodies = [_filled_body(it, found[it.name]) for it in standings(context)]
    body = {
        "copied": sum(it.copied for it in found.values()),
        "bytes": sum(it.bytes for it in found.values()),
        "behind": sum(it["behind"] or 0 for it in bodies),
        "copies": bodies,
    }
    damaged = any(it.damaged for it in found.values())
    return StepResult(body, HaltedError.exit_code if damaged else LEFT_SOMETHING if body["behind"] else 0)


def _filled_body(standing: CopyStanding, found: Filled) -> Body:
    behind = (standing.behind or 0) + len(found.damaged)
    return {**standing._asdict(), "behind": behind, **asdict(found)}


COPY = Step("copy", _copy, preconditions="reading")


def _forgetting(name: str) -> Step:
    from bucketwise.archivers.records.changes import CopyRecords

    def do(turn: Turn) -> StepResult:
        records = CopyRecords(turn.context.receipts)
        is_known = name in records.known()
        records.forget(name)
        return StepResult({"forgotten": [name] if is_known else []})

    return Step("copy", do)


def copy_tables(results: Sequence[Result]) -> list[RenderableType]:
    """Returns what `copy` prints."""
    if any("forgotten" in it.body for it in results):
        names = [name for it in results for name in it.body.get("forgotten", ())]
        return [Text("Forgotten" if names else "No policy has such a copy")]
    lines = [
        Text(f"{result.policy}: copy {it['name']}: {place} is damaged, and was not copied", "red")
        for result in results
        for it in result.body.get("copies", ())
        for place in it["damaged"]
    ]
    count, total = sums(results, "copied", "bytes")
    what = f"copied {counted(count, 'object')}, {size(total)}"
    return [job_table(JOB, results), *lines, *closing(results, what)]


def following_copies(store: Store | None) -> tuple[Follower, ...]:
    """Returns the follower that brings copies up to the store at the end of a run; or none. Copies that are
    required are so already."""
    if store is None or not store.copies:
        return ()
    return (Follower("copies", lambda turn: _caught_up_body(turn.context)),)


def _caught_up_body(context: ArchiveContext) -> Body | None:
    from bucketwise.archivers.mirroring.changes import caught_up

    found = caught_up(context)
    if not found:
        return None
    for it in found:
        if it.error is not None:
            log.warning("copy is behind", policy=context.policy.name, copy=it.standing.name, reason=it.error)
    return {
        "copied": sum(it.changed for it in found),
        "behind": sum(it.standing.behind or 0 for it in found),
        "copies": [{**it.standing._asdict(), "copied": it.changed, "error": it.error} for it in found],
    }


def copy_findings(store: Store | None, turn: Turn) -> list[Finding]:
    """Returns which copies of a policy's archive are late or unfilled, or were removed from the policy file.
    `store`: what says how far a copy may lag."""
    from bucketwise.archivers.mirroring.changes import is_new, removed_copies, standings

    context, name, found = turn.context, turn.policy.name, []
    lags = {it.name: it.lag for it in store.copies} if store else {}
    for it in standings(context):
        lag = _DAY if it.required else lags.get(it.name)
        if it.filled_at is None and not it.required and not is_new(context):
            message = f"copy {it.name} was never filled: `bucketwise copy`"
            found.append(Finding("copy-unfilled", name, it.url, "warning", message))
        elif it.behind_since is not None and lag is not None and context.now - it.behind_since > lag:
            message = (
                f"copy {it.name} is behind by {it.behind:,} objects since {it.behind_since:%Y-%m-%d %H:%M} "
                f"UTC, which is more than {format_duration(lag)}: a run brings it up to the store. Look at "
                "why it can't"
            )
            found.append(Finding("copy-behind", name, it.url, "error", message))
    for copy, url in removed_copies(context).items():
        message = (
            f"copy {copy} is no longer in the policy file: what is erased, expires or is merged stays there. "
            f"Remove what lies there, then `bucketwise copy --forget {copy}`; or name it again"
        )
        found.append(Finding("copy-removed", name, url, "warning", message))
    return found


JOB = Job(
    copy,
    body=proving.Copy,
    examples=("bucketwise copy", "bucketwise copy -p ticks --json", "bucketwise copy --forget b"),
    title="Copies",
    columns=("copied", "bytes", "behind"),
    is_pausable=True,
    is_measured=True,
    reads_departed=True,
    audited=(
        Code("copy-behind", "Look at why the copy can't be reached; then `bucketwise run`."),
        Code("copy-unfilled", "Fill it: `bucketwise copy`.", severities=("warning",)),
        Code(
            "copy-removed",
            "Remove what lies there, then `bucketwise copy --forget NAME`; or name it again.",
            severities=("warning",),
        ),
    ),
)
