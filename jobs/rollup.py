"""`bucketwise rollup`: rolls up what is due, or a range anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from bucketwise.buckets.fields.times import TimeRange, as_date
from bucketwise.config.errors import UsageError
from bucketwise.config.problems import InvalidValueError
from bucketwise.config.times import parse_duration
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.job import Job, Since, Until
from bucketwise.jobs.core.turn import (
    LEFT_SOMETHING,
    RunOptions,
    Step,
    StepResult,
    Turn,
    note_policy,
    perform,
    pick,
    prepare,
    quarantine_body,
)
from bucketwise.jobs.output.bodies import running
from bucketwise.jobs.output.grid import Attention
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.tables import (
    fit_lines,
    leftover_lines,
    notes,
    number,
    outcome,
    outcome_table,
    run_closing,
    telling,
)
from bucketwise.jobs.publish.verb import published

if TYPE_CHECKING:
    from bucketwise.jobs.core.ranges import AskedRange
    from bucketwise.rollups.changes.late import LateSpans
    from bucketwise.rollups.rolling.plan import LeftWindows, RollupReport
    from bucketwise.rollups.rolling.records import MissingSummaries

Body = dict[str, Any]

Slices = Annotated[
    str | None,
    typer.Option(
        "--slices",
        metavar="DURATION",
        help="Save progress after each part of the range of this length (30d), and resume there.",
    ),
]

Restart = Annotated[bool, typer.Option("--restart", help="With --slices: start again from the first one.")]


def rollup(
    call: Call,
    since: Since = None,
    until: Until = None,
    slices: Slices = None,
    restart: Restart = False,
) -> Report:
    """Roll up what is due.

    Summaries of every level are written where they are new or have changed. With --since and --until
    the windows in that range are computed anew, also where nothing changed. With --slices, a call that
    was cut off goes on where it stopped when it is given again, unless with --restart.
    """
    from bucketwise.jobs.core.ranges import parse_range

    asked = parse_range(since, until)
    if restart and slices is None:
        raise UsageError("--restart: give --slices as well; without it each call starts again")
    step = ROLLUP if slices is None else backfill_step(_length(slices, asked), restart=restart)
    open_executor = call.open_executor()
    within, followers = asked.of(call.policies, call.now), published(call.settings)
    options = RunOptions(within, open_executor=open_executor, followers=followers)
    results = perform(call, [step], options)
    tables = [*rollup_tables(results), *_resumed(results), *notes(results), *run_closing(results)]
    return Report(call.command, call.now, results, tables)


def _length(slices: str, asked: AskedRange) -> timedelta:
    """Returns the length of a slice. Raises UsageError."""
    try:
        length = parse_duration(slices)
    except InvalidValueError as error:
        raise UsageError(f"--slices {slices}: {error.fault.message}; {error.fault.remedy}") from None
    if not length:
        raise UsageError(f"--slices {slices}: a slice has an end; give its length, such as 30d")
    if asked.since is None or asked.until is None:
        raise UsageError(f"--slices {slices}: give --since and --until as well; the range is what is resumed")
    return length


def _resumed(results: Sequence[Result]) -> Iterator[Text]:
    for result in results:
        it = result.body.get("slices", {})
        if it.get("before"):
            before, total = it["before"], it["total"]
            yield Text(f"{result.policy}: resumed; an earlier call had done {before:,} of {total:,} slices")


def backfill_step(length: timedelta, *, restart: bool) -> Step:
    """Returns the step that rolls up the turn's range in slices of a length. It resumes where an
    earlier call stopped, unless `restart` is given."""
    from bucketwise.rollups.rolling.plan import Backfill

    def do(turn: Turn) -> StepResult:
        span = turn.within.start_ms, turn.within.end_ms
        slice_ms = length // timedelta(milliseconds=1)
        backfill = Backfill(turn.context.database, turn.policy, span, slice_ms, restart=restart)
        rest = TimeRange(as_date(backfill.begins), turn.within.until)
        done = _roll_up(replace(turn, within=rest), backfill.reach)
        backfill.finish()
        slices = {"total": backfill.total, "before": backfill.before}
        return replace(done, body={**done.body, "slices": slices})

    return replace(ROLLUP, do=do, follows_changes=False)


def _roll_up(turn: Turn, reached: Callable[[int], None] | None = None) -> StepResult:
    from bucketwise.archivers.upkeep import roll_up_all
    from bucketwise.jobs.core.fit import archives_now, check_fit, misfits_of, require_certainty, step_body
    from bucketwise.rollups.rolling.plan import RollupOptions, no_report

    require_certainty(turn)
    prepare(turn)
    note_policy(turn)
    report = roll_up_all(
        turn.context,
        RollupOptions(
            turn.within,
            is_deleted_early=turn.is_archived_by_another,
            dry_run=turn.dry_run,
            shared=turn.shared,
            reached=reached or no_report,
            leaves_unreadable=True,
        ),
    )
    empty = report.empty_fields(turn.policy)
    body = {
        **_by_level(report),
        **pick(report, "readings", "kept", "missed", "outdated", "gone"),
        "empty_fields": empty,
        **late_body(report.late),
        **missing_body(report.missing),
        **_left_body(report.left),
        **quarantine_body(report.quarantined, report.quarantined_total),
    }
    fit = None if archives_now(turn) or turn.policy.rollup is None else check_fit(turn)
    is_short = report.missed or report.outdated or report.gone or any(it.lost for it in report.missing)
    is_left = report.quarantined_total or report.left or empty or is_short or misfits_of(fit)
    return StepResult(body | step_body(fit), LEFT_SOMETHING if is_left else 0)


def _by_level(report: RollupReport) -> Body:
    """Returns the counts of summaries of each level; hours and days are always there."""
    counts = {"hourly": report.hourly, "daily": report.daily, **report.counts}
    return {level: {"written": it.written, "unchanged": it.unchanged} for level, it in counts.items()}


ROLLUP = Step("rollup", _roll_up, by_present=True, follows_changes=True, preconditions="rolling up")


def missing_body(missing: Sequence[MissingSummaries]) -> dict[str, Any]:
    """Returns the summaries that somebody had removed as JSON; nothing where there are none. `lost`: null in
    a plan."""
    found = [
        {
            **pick(it, "level", "collection", "missing", "lost"),
            "since": as_date(it.span[0]),
            "until": as_date(it.span[1]),
        }
        for it in missing
    ]
    return {"missing": found} if found else {}


def _left_body(left: Sequence[LeftWindows]) -> dict[str, Any]:
    """Returns the windows that stay as they are as JSON; nothing where there are none."""
    found = [{"since": as_date(it.span[0]), "until": as_date(it.span[1]), "reason": it.reason} for it in left]
    return {"unreadable": found} if found else {}


def late_body(late: LateSpans | None) -> dict[str, Any]:
    """Returns how late readings were looked for as JSON; nothing where a range was asked for."""
    if late is None:
        return {}
    return {"late": {"mode": late.mode, "events": late.events, "reason": late.reason}}


def rollup_tables(results: Sequence[Result]) -> list[RenderableType]:
    """Returns what `rollup` prints."""
    return [
        rollup_table(results),
        *missing_lines(results),
        *unreadable_lines(results),
        *leftover_lines(results),
        *fit_lines(results),
    ]


def rollup_table(results: Sequence[Result]) -> RenderableType:
    """Returns the counts of a roll-up, a row for each policy."""
    bodies = [result.body.get("rollup", result.body) for result in results]
    levels = levels_in(bodies)
    heads = [head for level in levels for head in (f"{level} written", "unchanged")]
    table = outcome_table("Roll-up", "policy", "readings", *heads, minor=("unchanged",))
    of_levels = [[it.get(name, {}).get(key) for name in levels for key in _COUNTED] for it in bodies]
    counts = [[body.get("readings"), *more] for body, more in zip(bodies, of_levels, strict=True)]
    for result, values in telling(list(zip(results, counts, strict=True))):
        table.add_row(result.policy, *map(number, values), outcome(result))
    return table


_COUNTED = ("written", "unchanged")


def levels_in(bodies: Iterable[Body]) -> list[str]:
    """Returns the levels that any policy has, the finest first; hours and days are always there."""
    from bucketwise.config.policies import LEVEL_NAMES

    found = {name for body in bodies for name in body}
    return [name for name in LEVEL_NAMES if name in found or name in ("hourly", "daily")]


def missing_lines(results: Sequence[Result]) -> Iterator[Text]:
    """Yields a line for the summaries of each month that somebody had removed."""
    for result in results:
        for it in result.body.get("rollup", result.body).get("missing", ()):
            lost = f"; {it['lost']:,} stay lost, since their readings are gone" if it["lost"] else ""
            what = f"{it['missing']:,} {it['level']} summaries of {it['since']:%Y-%m} had been removed"
            yield Attention(f"{result.policy}: {what} by somebody{lost}")


def unreadable_lines(results: Sequence[Result]) -> Iterator[Text]:
    """Yields a line for the windows that stay as they are, since archived readings can't be read."""
    for result in results:
        for it in result.body.get("rollup", result.body).get("unreadable", ()):
            span = f"{it['since']:%Y-%m-%d %H:%M} to {it['until']:%Y-%m-%d %H:%M} UTC"
            what = f"summaries from {span} stay as they are, since archived readings can't be read"
            yield Attention(f"{result.policy}: {what}: {it['reason']}. Run bucketwise repair or verify")


JOB = Job(
    rollup,
    body=running.Rollup,
    examples=(
        "bucketwise rollup",
        "bucketwise rollup -p ticks --since 2018-06-01 --until 2018-07-01",
        "bucketwise rollup -p ticks --since 2014-01-01 --until 2018-07-01 --slices 30d",
    ),
    is_pausable=True,
    is_measured=True,
    has_workers=True,
)
