"""`bucketwise run`: all that is due, for every policy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from bucketwise.config.errors import HaltedError
from bucketwise.jobs import compact
from bucketwise.jobs.archive import ARCHIVE, archive_table
from bucketwise.jobs.compact import COMPACT
from bucketwise.jobs.copy import following_copies
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.job import AllowLarge, Job
from bucketwise.jobs.core.turn import (
    LEFT_SOMETHING,
    Follower,
    RunOptions,
    Step,
    StepResult,
    Turn,
    held_body,
    limit_body,
    perform,
    pick,
)
from bucketwise.jobs.lake import registering
from bucketwise.jobs.output.bodies import running
from bucketwise.jobs.output.grid import Attention, Grid
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.tables import (
    counted,
    fit_lines,
    job_table,
    leftover_lines,
    notes,
    run_closing,
    table_of,
)
from bucketwise.jobs.output.text import size
from bucketwise.jobs.publish.verb import published
from bucketwise.jobs.rollup import ROLLUP, levels_in, missing_lines, rollup_table, unreadable_lines
from bucketwise.jobs.stats import WORTH

if TYPE_CHECKING:
    from bucketwise.archivers.expiring.rule import Amount
    from bucketwise.config.policies import Settings


def _move(turn: Turn) -> StepResult:
    from bucketwise.archivers.classes import move_parts

    report = move_parts(turn.context, writes=not turn.dry_run)
    if not report:
        return StepResult({})
    return StepResult({**pick(report, "commits", "parts", "bytes", "waiting"), "to": dict(report.classes)})


CLASSES = Step("classes", _move, by_present=True, preconditions="rewriting", weight=0.1)


def class_lines(results: Sequence[Result], *, dry_run: bool = False) -> Iterator[Text]:
    """Yields what a run moved to other storage classes, if anything."""
    for result in results:
        if not (body := result.body.get("classes")):
            continue
        if body["commits"]:
            to = ", ".join(f"{parts:,} to {named}" for named, parts in sorted(body["to"].items()))
            what = f"parts of {counted(body['commits'], 'commit')}, {size(body['bytes'])}"
            yield Text(f"{result.policy}: {what}, {'would move' if dry_run else 'moved'}: {to}")
        if body["waiting"]:
            waits = "wait for a copy of the store that lags, before their parts move"
            yield Text(f"{result.policy}: {counted(body['waiting'], 'commit')} {waits}")


Body = dict[str, Any]


def _scrub(turn: Turn) -> StepResult:
    from bucketwise.archivers.copying.repairing import scrub

    found = scrub(turn.context) if turn.context.has_parts and not turn.dry_run else None
    if found is None:
        return StepResult({})
    body: Body = {
        **pick(found, "parts", "parts_read"),
        "repaired": len(found.mended),
        "lost": len(found.lost),
        "objects": [pick(it, "place", "source", "code") for it in found.mended],
        "damage": [pick(it, "code", "place", "message") for it in found.lost],
    }
    return StepResult(body, HaltedError.exit_code if found.lost else LEFT_SOMETHING if found.mended else 0)


SCRUB = Step("scrub", _scrub, by_present=True, weight=0.1)


def scrub_lines(results: Sequence[Result]) -> Iterator[Text]:
    """Yields what was put back in each policy's archive, and what is damaged everywhere."""
    for result in results:
        body = result.body.get("scrub") or {}
        for it in body.get("objects", ()):
            yield Text(f"{result.policy}: {it['code']} {it['place']}: put back from {it['source']}", "yellow")
        for it in body.get("damage", ()):
            yield Text(f"{result.policy}: {it['code']} {it['place']}: {it['message']}", "bold red")


def _end(turn: Turn) -> StepResult:
    from bucketwise.archivers.kinds import archive_of
    from bucketwise.archivers.preconditions import OF_DESTROYERS, destroying, require

    if turn.dry_run:
        report = archive_of(turn.context).plan_expiry()
        if report.tombstoned.buckets or report.expired.buckets:
            require(turn.context, OF_DESTROYERS)
    else:
        report = archive_of(destroying(turn.context)).expire()
    amounts = pick(report, "tombstoned", "standing", "expired", "lifted")
    body: Body = {name: _amount(it) for name, it in amounts.items()}
    return StepResult({**body, "held": dict(sorted(report.held.items())), "live": report.live})


def _amount(it: Amount) -> Body:
    return {"days": len(it.days), "buckets": it.buckets, "bytes": it.bytes}


def _expire(turn: Turn) -> StepResult:
    from bucketwise.archivers.preconditions import OF_DESTROYERS, destroying, require
    from bucketwise.rollups.rolling.expiry import count_expired, expire_summaries

    context = turn.context
    if turn.dry_run:
        report = count_expired(context)
        if any(report.gone.values()):
            require(context, OF_DESTROYERS)
    else:
        report = expire_summaries(destroying(context), allow_large=turn.allow_large)
    none = {"hourly": 0, "daily": 0}
    body = {**none, **report.gone, "waiting": {**none, **report.waiting}, **held_body(report.held)}
    if not turn.dry_run or turn.allow_large:
        return StepResult(body)
    limits = [{"level": it.level, "collection": it.collection, **limit_body(it)} for it in report.limits]
    would_stop = any(it.is_exceeded for it in report.limits)
    return StepResult(body | {"limits": limits}, HaltedError.exit_code if would_stop else 0)


EXPIRY = Step("expiry", _expire, by_present=True, weight=0.1)
ARCHIVE_EXPIRY = Step("archive_expiry", _end, by_present=True, weight=0.1)

Profile = Annotated[
    bool,
    typer.Option(
        "--profile", help="Tell how long each step took, and each phase of the work of this process."
    ),
]


def run(
    call: Call,
    allow_large: AllowLarge = False,
    profile: Profile = False,
) -> Report:
    """Roll up, archive, expire summaries.

    For every policy, or those named: the entry for cron.
    """
    open_executor = call.open_executor()
    followers = followers_of(call.settings)
    options = RunOptions(
        open_executor=open_executor, allow_large=allow_large, followers=followers, is_profiled=profile
    )
    results = perform(call, steps_of(call.settings), options)
    tables = [*run_tables(results), *_profile_tables(results), *notes(results), *run_closing(results)]
    return Report(call.command, call.now, results, tables)


def followers_of(settings: Settings) -> tuple[Follower, ...]:
    """Returns what follows the steps of a run."""
    copies = following_copies(settings.store)
    return (*registering(settings.lake), *copies, *published(settings), WORTH)


#: All that is due. Summaries go last: their readings are archived by then.
RUN = (ROLLUP, ARCHIVE, COMPACT, ARCHIVE_EXPIRY, EXPIRY)


def steps_of(settings: Settings) -> tuple[Step, ...]:
    """Returns the steps of a run. Where parts move to other storage classes, they do so late: what goes for
    good does not move before."""
    classes = [it.storage_class for it in settings.store.copies] if settings.store else []
    moves = any(it.archive is not None and it.archive.moves for it in settings.policies.values())
    return (*RUN, CLASSES, SCRUB) if moves or any(classes) else (*RUN, SCRUB)


def run_tables(results: Sequence[Result]) -> list[RenderableType]:
    """Returns what `run` prints."""
    levels = levels_in(result.body.get("expiry", {}) for result in results)
    is_compacted = any(result.body.get("compact", {}).get("commits") for result in results)
    return [
        rollup_table(results),
        archive_table(results),
        *([job_table(compact.JOB, results)] if is_compacted else []),
        table_of("Expired summaries", results, *levels, step="expiry"),
        *missing_lines(results),
        *unreadable_lines(results),
        *archive_expiry_lines(results),
        *class_lines(results),
        *_expiry_lines(results),
        *scrub_lines(results),
        *leftover_lines(results),
        *fit_lines(results),
    ]


def _expiry_lines(results: Sequence[Result]) -> Iterator[Text]:
    for result in results:
        body = result.body.get("expiry", {})
        waiting = {level: count for level, count in body.get("waiting", {}).items() if count}
        for level, count in waiting.items():
            under = "have a tombstone, or get one: `bucketwise undelete` lifts it"
            yield Text(f"{result.policy}: {count:,} {level} summaries are past their retain, and {under}")
        for hold, count in body.get("held", {}).items():
            yield Text(f"{result.policy}: {count:,} expired summaries stay: held by {hold}")
        for limit in body.get("limits", ()):
            if limit["stops"]:
                yield Attention(f"{result.policy}: {limit['stops']}")


_ENDED = {
    "tombstoned": "were given a tombstone: `bucketwise undelete` lifts it",
    "standing": "are under a tombstone: `bucketwise undelete` lifts it",
    "expired": "were removed for good",
    "lifted": "are past retain.archive, and stay since their tombstones were lifted",
}


def archive_expiry_lines(results: Sequence[Result]) -> Iterator[Text]:
    """Yields what a run did at the end of each policy's archive, if anything."""
    for result in results:
        body = result.body.get("archive_expiry", {})
        for name, what in _ENDED.items():
            amount = body.get(name, {})
            if amount.get("buckets"):
                days, buckets = amount["days"], amount["buckets"]
                yield Text(f"{result.policy}: {buckets:,} archived buckets of {days:,} days {what}")
        for hold, count in body.get("held", {}).items():
            yield Text(f"{result.policy}: {count:,} archived buckets stay: held by {hold}")
        if live := body.get("live"):
            stay = "are past retain.archive, and stay while their originals are live"
            yield Text(f"{result.policy}: {live:,} archived buckets {stay}")


def _profile_tables(results: Sequence[Result]) -> Iterator[RenderableType]:
    """Yields the seconds of each policy's steps and, in all threads, phases; those without any left out."""
    for key in ("steps", "phases"):
        table = Grid(key.capitalize(), ("policy", key.removesuffix("s"), "seconds"))
        for result in results:
            for name, seconds in result.body.get("profile", {}).get(key, {}).items():
                if seconds:
                    table.add_row(result.policy, name.replace("_", " "), f"{seconds:.3f}")
        yield table


JOB = Job(
    run,
    body=running.Run,
    rights={
        "bucketwise_lease": ("insert", "update"),
        "bucketwise_runs": ("insert", "update", "remove", "createIndex"),
        "bucketwise_progress": ("insert", "update"),
        "bucketwise_quarantine": ("insert", "update", "remove"),
        "bucketwise_receipts": ("insert", "update", "remove", "createIndex"),
        "bucketwise_pins": ("update", "remove"),
        "bucketwise_holds": (),
    },
    examples=(
        "bucketwise run",
        "bucketwise run -p ticks -p iot --json",
        "*/10 * * * * bucketwise run --quiet --config /etc/bucketwise.toml   # a line for cron",
    ),
    is_pausable=True,
    is_measured=True,
    has_workers=True,
)
