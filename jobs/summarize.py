"""`bucketwise summarize`: answers from summaries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import RenderableType
from rich.text import Text

from bucketwise.buckets.fields.times import as_date
from bucketwise.config.errors import UsageError
from bucketwise.config.times import format_duration
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.job import NO_STEPS, SINCE, UNTIL, Job, Series, Steps, one_policy, parse_series
from bucketwise.jobs.core.turn import RunOptions, Step, StepResult, Turn, perform, pick
from bucketwise.jobs.output.bodies import asking
from bucketwise.jobs.output.grid import Grid
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.tables import counted, instant, statistic
from bucketwise.jobs.output.text import printable

if TYPE_CHECKING:
    from bucketwise.config.policies import LevelName, Policy
    from bucketwise.rollups.answers import Answer, Question
    from bucketwise.rollups.calendar.tiling import TilingPiece
    from bucketwise.rollups.grids import Fill, GridAnswer, GridQuestion, Point

INCOMPLETE = 3

Percentiles = Annotated[
    str | None,
    typer.Option(
        "--percentiles",
        metavar="LIST",
        help="Percentiles from 0 to 100, such as 50,99.9. Default: those of the policy.",
    ),
]

By = Literal["series", "none"]
ByWhat = Annotated[By, typer.Option("--by", help="One result per series, or one for all series together.")]


@dataclass(frozen=True)
class Shown:
    """The options that say what an answer shows."""

    percentiles: Percentiles = None
    by: ByWhat = "series"


_USUAL = Shown()


def summarize(
    call: Call,
    since: Annotated[str, SINCE],
    until: Annotated[str, UNTIL],
    series: Series = None,
    shown: Shown = _USUAL,
    steps: Steps = NO_STEPS,
) -> Report:
    """Summarize a range from its summaries.

    Any statistic and any percentile, by merging summaries, the coarsest that fit; raw readings are never
    read. The range must be made up of whole windows: hours (UTC), days of the policy's time zone, or of the
    further levels that the policy names. Where a part of it is not rolled up yet, or past retention, the
    answer says so and ends with exit code 3.

    With --every it answers step by step, each made up of whole windows. Steps without readings are left out,
    or with --fill filled up to `max_gap` (7d, unless the policy says otherwise), and marked.
    """
    from bucketwise.jobs.core.ranges import parse_range
    from bucketwise.rollups.answers import Question

    asked = parse_range(since, until)
    percents = None if shown.percentiles is None else _parse_percentiles(shown.percentiles)
    selector, length = parse_series(series), steps.length()
    policy = one_policy(call)
    within = asked.of([policy], call.now)(policy)
    assert within.since is not None
    assert within.until is not None
    question = Question(within.since, within.until, selector, percents, by_series=shown.by == "series")
    # It changes nothing, so it needs no lease: dry.
    step = Step("summarize", partial(_answer, question, length, steps.fill), preconditions="knowing")
    results = perform(call, [step], RunOptions(dry_run=True), policies=[policy])
    return Report(call.command, call.now, results, summarize_tables(results))


def _answer(question: Question, length: timedelta | None, fill: Fill | None, turn: Turn) -> StepResult:
    """Answers a question, on a grid of steps of this length if there is one."""
    from bucketwise.archivers.moving.archive import check_collections
    from bucketwise.jobs.core.known_series import require_known_series
    from bucketwise.rollups.answers import summarize as summarize_range
    from bucketwise.rollups.grids import GridQuestion, summarize_grid
    from bucketwise.rollups.progress import rolled_up_through

    context, policy = turn.context, turn.policy
    check_collections(context.database, policy, context.keys)
    require_known_series(context, question.series)
    through = rolled_up_through(context.database, policy)
    if length is not None:
        asked = GridQuestion(question, length, fill)
        grid = summarize_grid(context.database, policy, asked, context.check)
        body = _grid_body(grid, asked, through)
        return StepResult(body, INCOMPLETE if grid.missing else 0)
    answer = summarize_range(context.database, policy, question, context.check)
    by: By = "series" if question.by_series else "none"
    return StepResult(_body(answer, through, by), 0 if answer.is_complete else INCOMPLETE)


def _parse_percentiles(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--percentiles {text}: write numbers and commas, such as 50,99.9") from None


def _body(answer: Answer, through: int | None, by: By) -> dict[str, Any]:
    names = answer.policy.series_names
    rows = [
        {
            "series": dict(zip(names, series, strict=True)) if by == "series" else {},
            **answer.statistics(state),
        }
        for series, state in answer.states
    ]
    span = {"since": as_date(answer.since), "until": as_date(answer.until)}
    return {**span, **_basis(answer, through, is_complete=answer.is_complete), "series": rows}


def _grid_body(answer: GridAnswer, asked: GridQuestion, through: int | None) -> dict[str, Any]:
    names = answer.policy.series_names if asked.question.by_series else []
    return {
        **pick(asked.question, "since", "until"),
        "every": format_duration(asked.every),
        "fill": asked.fill,
        **_basis(answer, through, is_complete=not answer.missing),
        "series": [
            {"series": dict(zip(names, series, strict=True)), "points": list(map(_point, points))}
            for series, points in answer.series
        ],
    }


def _basis(answer: Answer | GridAnswer, through: int | None, *, is_complete: bool) -> dict[str, Any]:
    """Returns what an answer rests on, and what it lacks."""
    return {
        "rolled_up_through": None if through is None else as_date(through),
        "windows": {name: answer.tiling.windows(name) for name in _levels(answer.policy)},
        "summaries": answer.summaries,
        "complete": is_complete,
        "missing": [_missing(piece) for piece in answer.missing],
        "percentiles": list(answer.percentiles),
    }


def _point(point: Point) -> dict[str, Any]:
    start, end = map(as_date, point.span)
    return {"start": start, "end": end, "filled": point.is_filled, **point.statistics}


def _levels(policy: Policy) -> list[LevelName]:
    """Returns the levels, the coarsest first. Days and hours are always included."""
    from bucketwise.config.policies import LEVEL_NAMES

    made = policy.rollup.targets if policy.rollup else {}
    return [name for name in reversed(LEVEL_NAMES) if name in made or name in ("daily", "hourly")]


def _missing(piece: TilingPiece) -> dict[str, Any]:
    return {"since": as_date(piece.start), "until": as_date(piece.end), "reason": piece.reason}


def summarize_tables(results: Sequence[Result]) -> list[RenderableType]:
    """Returns a row for each series and value field; below, what the answer rests on and what it lacks."""
    from bucketwise.rollups.calendar.levels import LEVEL_RULES
    from bucketwise.rollups.statistics import table_keys

    tables: list[RenderableType] = []
    for body in (result.body for result in results if result.body):
        has_steps = "every" in body
        rows = [(one, it) for one in body["series"] for it in (one["points"] if has_steps else [one])]
        told = {key for _, row in rows for value in row["values"].values() for key in value}
        keys = table_keys(body["percentiles"], told)
        head = ("series", "start", "filled") if has_steps else ("series",)
        table = Grid("Summary", (*head, "field", *keys))
        for one, row in rows:
            series = " ".join(f"{name}={value}" for name, value in one["series"].items()) or "all"
            step = [instant(row["start"]), "yes" if row["filled"] else ""] if has_steps else []
            for name, value in row["values"].items():
                shown = (statistic(value.get(key)) for key in keys)
                table.add_row(Text(printable(series)), *map(Text, step), Text(name), *shown)
        *windows, last = (
            counted(count, LEVEL_RULES[level].noun.removesuffix("s"))
            for level, count in body["windows"].items()
        )
        basis = f"{', '.join(windows)} and {last} ({counted(body['summaries'], 'summary')})"
        span = f"{instant(body['since'])} to {instant(body['until'])}"
        tables += [table, Text(f"{span}, from {basis}")]
        for gap in body["missing"]:
            text = f"incomplete: {instant(gap['since'])} to {instant(gap['until'])}: {gap['reason']}"
            tables.append(Text(text, style="yellow"))
    return tables


JOB = Job(
    summarize,
    body=asking.Summarize,
    examples=(
        "bucketwise summarize -p ticks --since 2018-06-01 --until 2018-07-01",
        "bucketwise summarize -p ticks --series symbol=MDB --since 2018-06-30T09 --until 2018-06-30T17 "
        "--percentiles 50,99.9",
        "bucketwise summarize -p iot --since 2018-06-01 --until 2018-07-01 --by none --json",
        "bucketwise summarize -p iot --since 2018-06-30 --until 2018-07-01 --every 1h --fill previous",
    ),
    reads_departed=True,
    answers=True,
)
