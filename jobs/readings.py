"""`bucketwise readings`: prints the readings of a range."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import RenderableType

from bucketwise.buckets.fields.times import FIRST_MS, LAST_MS, TimeRange, as_date
from bucketwise.config.errors import UsageError
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.job import NO_STEPS, Job, Series, Since, Steps, Until, one_policy, parse_series
from bucketwise.jobs.core.turn import (
    LEFT_SOMETHING,
    RunOptions,
    Step,
    StepResult,
    Turn,
    perform,
    quarantine_body,
)
from bucketwise.jobs.output.bodies import asking
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.streams import check_output, discard_buffer, write_atomically
from bucketwise.jobs.output.tables import (
    closing,
    counted,
    job_table,
    leftover_lines,
    report_quarantined,
    sums,
)

if TYPE_CHECKING:
    from bucketwise.archivers.context import ArchiveContext
    from bucketwise.archivers.reading.formats import RowSource
    from bucketwise.archivers.reading.gridded import Instants
    from bucketwise.archivers.reading.readings import Readings
    from bucketwise.config.policies import Policy
    from bucketwise.rollups.context import ProgressListener
    from bucketwise.rollups.grids import Filling

Format = Literal["csv", "json", "parquet"]
How = Annotated[
    Format, typer.Option("--format", help="Output format: CSV, JSON (one object per line) or Parquet.")
]

Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write to this file, which appears once it is complete. One that exists is replaced then.",
    ),
]


@dataclass(frozen=True)
class Destination:
    """The options that say where readings go, and as what."""

    form: How = "csv"
    output: Output = None


_AS_CSV = Destination()


def readings(
    call: Call,
    series: Series = None,
    since: Since = None,
    until: Until = None,
    to: Destination = _AS_CSV,
    steps: Steps = NO_STEPS,
) -> Report:
    """Print the readings of a range.

    From the collection and from the archive as one, each once, in the order of time; nothing is restored.
    They go to stdout, or to a file. Where a bucket breaks its model, its readings are not among them: it is
    reported, and the exit code is 3.

    With --every and --fill: what each series was at each instant of an even grid. What is filled is marked.
    """
    from bucketwise.archivers.reading.gridded import GriddedReadings
    from bucketwise.jobs.core.known_series import require_known_series
    from bucketwise.jobs.core.ranges import parse_range
    from bucketwise.rollups.grids import gaps

    asked, selector = parse_range(since, until), parse_series(series)
    form, output = to.form, to.output
    _check(call, form, output)
    policy = one_policy(call)
    within = asked.of([policy], call.now)(policy)
    grid = _parse_grid(within, steps)

    def do(turn: Turn) -> StepResult:
        require_known_series(turn.context, selector)
        found = _found(turn.context, within, selector, _reach(policy, grid))
        source: RowSource = found
        if grid is not None:
            source = GriddedReadings(found, grid.instants, grid.filling, gaps(policy))
        count = _deliver(source, form, output, turn.context.progress)
        to_file = {} if output is None else {"output": str(output)}
        body = {"format": form, **to_file, "readings": count}
        quarantine = quarantine_body(found.quarantined, found.quarantined_total)
        return StepResult({**body, **quarantine}, LEFT_SOMETHING if found.quarantined_total else 0)

    if output is None and sys.stdout.isatty():
        call = replace(call, quiet=True)  # a moving bar among the readings
    # It changes nothing, so it needs no lease: dry.
    step = Step("readings", do, preconditions="reading")
    results = perform(call, [step], RunOptions(dry_run=True), policies=[policy])
    if output is None:
        report_quarantined(results)
    return Report(call.command, call.now, results, [] if output is None else readings_tables(results))


def _found(
    context: ArchiveContext, within: TimeRange, series: dict[str, str], reach: tuple[timedelta, timedelta]
) -> Readings:
    """Returns the readings of a range, and of so much before and after it."""
    from bucketwise.archivers.reading.readings import Readings

    return Readings(
        context.database,
        context.policy,
        context.store,
        since=within.since and _moved(within.since, -reach[0]),
        until=within.until and _moved(within.until, reach[1]),
        series=series,
        check=context.check,
        keys=context.keys,
    )


@dataclass(frozen=True)
class _Grid:
    instants: Instants
    filling: Filling


def _parse_grid(within: TimeRange, steps: Steps) -> _Grid | None:
    """Returns the grid that is asked for; None where none is. Raises UsageError where it has no ends, or is
    not to be filled."""
    from bucketwise.archivers.reading.gridded import Instants
    from bucketwise.rollups.calendar.windows import span_ms
    from bucketwise.rollups.grids import FILLINGS

    length = steps.length()
    if length is None:
        return None
    if steps.fill is None:
        raise UsageError(
            f"--every {steps.every}: say with --fill what an instant without a reading shows: previous, "
            "linear or null"
        )
    if within.since is None or within.until is None:
        raise UsageError(f"--every {steps.every}: a grid has ends; give --since and --until as well")
    return _Grid(Instants(within.start_ms, within.end_ms, span_ms(length)), FILLINGS[steps.fill])


def _reach(policy: Policy, grid: _Grid | None) -> tuple[timedelta, timedelta]:
    from bucketwise.archivers.reading.gridded import reach_of
    from bucketwise.rollups.grids import gaps

    return (timedelta(0), timedelta(0)) if grid is None else reach_of(gaps(policy), grid.filling)


def _moved(instant: datetime, by: timedelta) -> datetime:
    """Returns an instant moved, as far as the calendar goes."""
    from bucketwise.rollups.calendar.windows import span_ms, to_ms

    return as_date(min(max(to_ms(instant) + span_ms(by), FIRST_MS), LAST_MS)) if by else instant


def _check(call: Call, form: Format, output: Path | None) -> None:
    if output is not None:
        check_output(output)
    if output is None and call.json:
        raise UsageError(
            "--json prints a report, and the readings go to stdout: name a file for them with --output. "
            "Readings as JSON are `--format json`"
        )
    if output is None and form == "parquet" and sys.stdout.isatty():
        raise UsageError("--format parquet: a terminal can't show it; name a file with --output")


def _deliver(found: RowSource, form: Format, output: Path | None, progress: ProgressListener) -> int:
    """Writes them where they are wanted; gives how many."""
    from bucketwise.archivers.reading import formats

    count = 0

    def wrote(more: int) -> None:
        nonlocal count
        count += more
        progress("readings", more)

    if output is not None:
        with write_atomically(output.resolve()) as file:
            return formats.write(found, formats.Format(form), file, wrote)
    try:
        if form == "parquet":
            with tempfile.TemporaryFile() as spool:
                count = formats.write(found, formats.Format(form), spool, wrote)
                spool.seek(0)
                shutil.copyfileobj(spool, sys.stdout.buffer)
        else:
            count = formats.write(found, formats.Format(form), sys.stdout.buffer, wrote)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        discard_buffer(sys.stdout)  # who reads has enough: `head`, for one
    return count


def readings_tables(results: Sequence[Result]) -> list[RenderableType]:
    """Returns what `readings` prints beside its output."""
    (read,) = sums(results, "readings")
    told = closing(results, f"{counted(read, 'reading')} written")
    return [job_table(JOB, results), *leftover_lines(results), *told]


JOB = Job(
    readings,
    body=asking.Readings,
    examples=(
        "bucketwise readings -p ticks --series symbol=MDB --since 2018-06-30 --until 2018-07-01",
        "bucketwise readings -p iot --since 2018-06-01 --format parquet --output iot.parquet",
        "bucketwise readings -p ticks --format json | jq -c 'select(.p > 60)'",
        "bucketwise readings -p iot --since 2018-06-30 --until 2018-07-01 --every 10s --fill linear",
    ),
    title="Readings",
    columns=("output", "readings", "quarantined"),
    reads_departed=True,
    answers=True,
)
