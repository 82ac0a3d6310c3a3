"""`bucketwise coverage`: shows where each day is, as a strip, as a table, and as CSV."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import RenderableType
from rich.text import Text

from bucketwise.buckets.fields.times import DAY_MS, as_date
from bucketwise.config.errors import UsageError
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.clock import iso
from bucketwise.jobs.core.job import Job, Series, Since, Until, parse_series
from bucketwise.jobs.core.turn import RunOptions, Step, StepResult, Turn, perform, pick
from bucketwise.jobs.output.bodies import asking
from bucketwise.jobs.output.grid import Grid
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.tables import closing, counted, number

if TYPE_CHECKING:
    from bucketwise.archivers.coverage import HeldCommit, Row
    from bucketwise.buckets.fields.selectors import Selector

Body = dict[str, Any]
ByWhat = Annotated[Literal["day", "hour"], typer.Option("--by", help="A row per UTC day, or per hour.")]

How = Annotated[
    Literal["table", "csv"], typer.Option("--format", help="Output format: a table with a strip, or CSV.")
]

Full = Annotated[bool, typer.Option("--full", help="Print a row for each day or hour, not for each range.")]


@dataclass(frozen=True)
class Shown:
    """The options that say how rows are shown."""

    by: ByWhat = "day"
    form: How = "table"
    full: Full = False


_USUAL = Shown()


def coverage(
    call: Call,
    since: Since = None,
    until: Until = None,
    series: Series = None,
    shown: Shown = _USUAL,
) -> Report:
    """Show where each day is.

    Live, archived (in which commit), both, online, only summarised, expired, or a gap; with counts of
    readings, as ranges of days that are alike and as a calendar. Manifests and summaries tell what is
    archived: no part is read.
    """
    within, selector = call.ranges(since, until), parse_series(series)
    if call.json and shown.form != "table":
        raise UsageError(
            f"--json prints a report, and --format {shown.form}: other output. Give one of the two"
        )
    # It changes nothing, so it needs no lease: dry.
    results = perform(call, [coverage_step(selector, shown.by)], RunOptions(within, dry_run=True))
    tables = coverage_csv(results) if shown.form == "csv" else coverage_tables(results, is_full=shown.full)
    return Report(call.command, call.now, results, tables)


STEPS = {"day": DAY_MS, "hour": DAY_MS // 24}


def coverage_step(series: Selector, by: str) -> Step:
    """Returns the step that tells where each row of the turn's range is."""
    from bucketwise.archivers.coverage import CoverageQuery, coverage_of
    from bucketwise.archivers.kinds import archive_of
    from bucketwise.jobs.core.known_series import require_known_series

    def do(turn: Turn) -> StepResult:
        require_known_series(turn.context, series)
        archived = archive_of(turn.context).evidence
        rows = coverage_of(turn.context, archived, CoverageQuery(turn.within, series, STEPS[by]))
        states = Counter(row.state for row in rows)
        body = {"by": by, "days": [_row_body(row, by) for row in rows], "states": dict(states)}
        return StepResult({**body, "rules": turn.context.rules.words()})

    return Step("coverage", do, preconditions="reading")


def _row_body(row: Row, by: str) -> Body:
    at = as_date(row.start)
    return {
        "day": at.date().isoformat(),
        **({"hour": at.hour} if by == "hour" else {}),
        **pick(row, "state", "readings", "live", "archived", "online", "summarised"),
        **pick(row, "live_buckets", "pinned", "held", "quarantined"),
        "expires_at": row.expires,
        "commits": [_commit_body(it) for it in row.commits],
    }


def _commit_body(commit: HeldCommit) -> Body:
    """Returns a commit as JSON. A command that only reads records nothing: its proof is its commit, and
    drills."""
    proven = [at for at in (commit.committed, commit.drilled) if at is not None]
    return {
        **pick(commit, "commit", "buckets", "readings"),
        "committed_at": commit.committed,
        "verified_at": max(proven),
        "drilled_at": commit.drilled,
        "expires_at": commit.expires,
        "rule": commit.rule or None,
    }


#: How the strip shows a state: its letter, and the style of it.
_SHOWN = {
    "live": ("L", "green"),
    "both": ("B", "cyan"),
    "archived": ("A", "blue"),
    "online": ("O", "blue"),
    "summarised": ("s", "yellow"),
    "expired": ("x", "dim"),
    "gap": (".", "bold red"),
}

_COUNTED = (
    "readings", "live", "archived", "online", "summarised", "live_buckets", "pinned", "held", "quarantined",
)  # fmt: skip


def coverage_tables(results: Sequence[Result], *, is_full: bool) -> list[RenderableType]:
    """Returns a table and a strip for each policy."""
    shown: list[RenderableType] = []
    for result in results:
        if days := result.body.get("days"):
            table = _table if is_full else _ranges
            shown += [table(result.policy, days), *strip(days), _legend(days)]
            if any(it[key] is None for it in days for key in _COUNTED):
                shown.append(Text("? unknown: neither in manifests nor in summaries"))
        elif "days" in result.body:
            shown.append(Text(f"{result.policy}: nothing is known about this range"))
    return [*shown, *closing(results, _sum_of(results))]


def _sum_of(results: Sequence[Result]) -> str:
    """Returns how many days are in each state, and how many readings are known there."""
    rows = [it for result in results for it in result.body.get("days", ())]
    states = Counter(it["state"] for it in rows)
    unit = "hour" if rows and "hour" in rows[0] else "day"
    told = ", ".join(f"{states[it]:,} {it}" for it in _SHOWN if states[it])
    readings = sum(it["readings"] or 0 for it in rows)
    return f"{counted(len(rows), unit)}{f' ({told})' if told else ''} with {counted(readings, 'reading')}"


def coverage_csv(results: Sequence[Result]) -> list[RenderableType]:
    """Returns coverage as CSV: a line a row, empty where a count can't be told."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    by_hour = any("hour" in it for result in results for it in result.body.get("days", ()))
    keys = ("day", *(("hour",) if by_hour else ()), "state", *_COUNTED)
    writer.writerow(("policy", *keys, "commits", "expires_at"))
    for result in results:
        for it in result.body.get("days", ()):
            commits = " ".join(commit["commit"] for commit in it["commits"])
            expires = iso(it["expires_at"]) if it["expires_at"] else None
            writer.writerow((result.policy, *(it[key] for key in keys), commits, expires))
    return [Text(text.getvalue().removesuffix("\n"))]


def _ranges(policy: str, days: Sequence[Body]) -> Grid:
    """Returns a row for each range of adjoining days, or hours, that are alike."""
    has_ends = any(it["expires_at"] for it in days)
    unit = "hours" if "hour" in days[0] else "days"
    heads = (*(it.replace("_", " ") for it in _COUNTED), "commits", *(["expires"] if has_ends else []))
    table = Grid(f"Coverage of {policy}", ("from", "to", "state", unit, *heads))
    for _, some in groupby(days, _likeness):
        alike = list(some)
        state = alike[0]["state"]
        counts = [_together(key, [it[key] for it in alike]) for key in _COUNTED]
        commits = {commit["commit"] for it in alike for commit in it["commits"]}
        ends = [it["expires_at"] for it in alike if it["expires_at"]]
        table.add_row(
            _name(alike[0]),
            _name(alike[-1]),
            Text(state, style=_SHOWN[state][1]),
            f"{len(alike):,}",
            *(number(it, "?") for it in counts),
            f"{len(commits):,}",
            *([f"{min(ends):%Y-%m-%d}" if ends else ""] if has_ends else []),
        )
    return table


def _together(key: str, counts: Sequence[int | None]) -> int | None:
    """Returns a count of all rows of a range; None where one of them is not known."""
    known = [it for it in counts if it is not None]
    if len(known) < len(counts):
        return None
    return max(known) if key == "held" else sum(known)  # one hold covers many days


def _likeness(it: Body) -> tuple[Any, ...]:
    """Returns what adjoining rows of one range have in common."""
    return it["state"], *(bool(it[key]) for key in ("pinned", "held", "quarantined", "expires_at"))


def _table(policy: str, days: Sequence[Body]) -> Grid:
    has_ends = any(it["expires_at"] for it in days)
    heads = [it.replace("_", " ") for it in (*_COUNTED, "commits", *(["expires"] if has_ends else []))]
    table = Grid(f"Coverage of {policy}", ("day", "state", *heads))
    for it in days:
        counts = [number(it[key], "?") for key in _COUNTED]
        state = Text(it["state"], style=_SHOWN[it["state"]][1])
        ends = [f"{it['expires_at']:%Y-%m-%d}" if it["expires_at"] else ""] if has_ends else []
        table.add_row(_name(it), state, *counts, f"{len(it['commits']):,}", *ends)
    return table


def _name(it: Body) -> str:
    return f"{it['day']} {it['hour']:02}h" if "hour" in it else str(it["day"])


def strip(days: Sequence[Body]) -> Iterator[Text]:
    """Yields a line a month, a letter a day; or a line a day, a letter an hour."""
    by_hour = "hour" in days[0]
    for line, some in groupby(days, lambda it: it["day"] if by_hour else it["day"][:7]):
        first, *rest = some
        before = first["hour"] if by_hour else int(first["day"][8:]) - 1
        shown = Text(f"{line}  {' ' * before}")
        for it in (first, *rest):
            shown.append(*_SHOWN[it["state"]])
        yield shown


def _legend(days: Sequence[Body]) -> Text:
    states = {it["state"] for it in days}
    return Text("  ".join(f"{letter} {name}" for name, (letter, _) in _SHOWN.items() if name in states))


JOB = Job(
    coverage,
    body=asking.Coverage,
    examples=(
        "bucketwise coverage",
        "bucketwise coverage -p ticks --since 2018-06-01 --until 2018-07-01 --series symbol=MDB --full",
        "bucketwise coverage -p ticks --since 2018-06-30 --until 2018-07-01 --by hour --format csv",
    ),
    reads_departed=True,
    answers=True,
)
