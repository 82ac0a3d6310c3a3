"""`bucketwise run`: all that is due, for every policy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType
from rich.text import Text

from bucketwise.jobs import compact
from bucketwise.jobs.archive import ARCHIVE, archive_table
from bucketwise.jobs.compact import COMPACT
from bucketwise.jobs.copy import following_copies
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.job import AllowLarge, Job
from bucketwise.jobs.core.turn import Follower, RunOptions, Step, perform
from bucketwise.jobs.lake import registering
from bucketwise.jobs.output.bodies import running
from bucketwise.jobs.output.closing import run_closing
from bucketwise.jobs.output.grid import Attention, Grid
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.tables import fit_lines, job_table, leftover_lines, notes, table_of
from bucketwise.jobs.publish.verb import published
from bucketwise.jobs.rollup import ROLLUP, levels_in, missing_lines, rollup_table, unreadable_lines
from bucketwise.jobs.run.classes import CLASSES, class_lines
from bucketwise.jobs.run.expiry import ARCHIVE_EXPIRY, EXPIRY
from bucketwise.jobs.run.scrub import SCRUB, scrub_lines
from bucketwise.jobs.stats import WORTH

if TYPE_CHECKING:
    from bucketwise.config.policies import Settings

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
