"""`bucketwise commits`: what the offline archives hold, commit by commit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from bucketwise.buckets.fields.times import DAY_MS
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.job import Job, Since, Until
from bucketwise.jobs.core.turn import RunOptions, Step, StepResult, Turn, perform
from bucketwise.jobs.output.bodies import asking
from bucketwise.jobs.output.grid import Grid
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.tables import closing, counted, instant, number
from bucketwise.jobs.output.text import size

if TYPE_CHECKING:
    from bucketwise.archivers.records.receipts import Document

Body = dict[str, Any]
#: With more commits, the table has a row a month.
_MOST_ROWS = 60

Full = Annotated[
    bool, typer.Option("--full", help="A row for each commit, and ask the store for storage classes.")
]


def commits(call: Call, *, since: Since = None, until: Until = None, full: Full = False) -> Report:
    """List the commits of offline archives.

    What each holds, how large it is, when it was made, and when it was last proven. MongoDB tells; the store
    is asked with --full alone, once a commit. --since and --until are about the readings.
    """
    results = perform(call, [_step(full)], RunOptions(call.ranges(since, until), dry_run=True))
    return Report(call.command, call.now, results, list(commit_tables(results, full)))


def _step(is_full: bool) -> Step:
    from bucketwise.archivers.mirroring.changes import holders
    from bucketwise.archivers.records.receipts import CODEC

    def do(turn: Turn) -> StepResult:
        context, within = turn.context, turn.within
        query = dict(context.receipts.is_current)
        if within.is_bounded:
            first, last = within.start_ms // DAY_MS, (within.end_ms - 1) // DAY_MS
            query["days"] = {"$elemMatch": {"$gte": first, "$lte": last}}
        fields = (
            "first",
            "last",
            "buckets",
            "readings",
            "bytes",
            "committed",
            "drilled",
            "compacted",
            "parts",
        )
        records = context.receipts.collection.with_options(codec_options=CODEC)
        found = records.find(query, dict.fromkeys(fields, 1)).sort([("first", 1), ("_id", 1)])
        copies = holders(context)
        bodies = []
        for record in found:
            context.check()
            if not within.is_bounded or _touches(record, turn):
                storage_class = _storage_class(turn, record) if is_full else None
                bodies.append(_body(record, storage_class, copies(record["_id"]["name"])))
        return StepResult({"commits": bodies})

    return Step("commits", do)


def _touches(record: Document, turn: Turn) -> bool:
    since, until = turn.within
    return (until is None or record["first"] < until) and (since is None or record["last"] >= since)


def _storage_class(turn: Turn, record: Document) -> str | None:
    """Returns the class in which the store has the first part; None where it has no classes, or no such
    part."""
    store = turn.context.store
    found = store.head(record["parts"][0]) if store is not None and record["parts"] else None
    return None if found is None else found.storage_class


def _body(record: Document, storage_class: str | None, copies: list[str]) -> Body:
    """Returns a commit as JSON. It was verified when it was made, and by drills; `until` is its last
    reading."""
    drilled = record.get("drilled")
    return {
        "commit": record["_id"]["name"],
        "since": record["first"],
        "until": record["last"],
        "buckets": record["buckets"],
        "readings": record["readings"],
        "bytes": record["bytes"],
        "created_at": record["committed"],
        "verified_at": max(it for it in (record["committed"], drilled) if it is not None),
        "drilled_at": drilled,
        "compacted": record["compacted"],
        "storage_class": storage_class,
        "copies": copies,
    }


def commit_tables(results: Sequence[Result], is_full: bool) -> Iterator[Any]:
    """Yields a table for each policy, and a line about all of it."""
    for result in results:
        found: list[Body] = result.body.get("commits", [])
        if not found:
            if result.error is None:
                yield Text(f"{result.policy}: there is no commit of an offline archive in this range")
            continue
        yield _by_commit(result, found) if is_full or len(found) <= _MOST_ROWS else _by_month(result, found)
        readings, held = sum(it["readings"] for it in found), sum(it["bytes"] for it in found)
        span = f"{instant(found[0]['since'])} to {instant(max(it['until'] for it in found))}"
        counts = f"{counted(len(found), 'commit')}, {counted(readings, 'reading')}, {size(held)}"
        yield Text(f"{result.policy}: {counts}, {span}")
    everything = [it for result in results for it in result.body.get("commits", ())]
    total = size(sum(it["bytes"] for it in everything))
    yield from closing(results, f"{counted(len(everything), 'commit')}, {total} in all")


def _by_commit(result: Result, found: Sequence[Body]) -> Any:
    heads = ("commit", "since", "until", "buckets", "readings", "bytes", "created", "drilled", "class")
    table = Grid(f"Commits of {result.policy}", heads, minor=("until", "created", "class"))
    for it in found:
        counts = (number(it["buckets"]), number(it["readings"]), size(it["bytes"]))
        times = (instant(it["created_at"]), instant(it["drilled_at"]), it["storage_class"] or "–")
        row = (it["commit"], instant(it["since"]), instant(it["until"]), *counts, *times)
        table.add_row(*row)
    return table


def _by_month(result: Result, found: Sequence[Body]) -> Any:
    heads = ("month", "commits", "buckets", "readings", "bytes", "created")
    table = Grid(f"Commits of {result.policy}, by month of their first reading", heads)
    for month, group in groupby(found, key=lambda it: f"{it['since']:%Y-%m}"):
        some = list(group)
        sums = [number(sum(it[key] for it in some)) for key in ("buckets", "readings")]
        total, newest = size(sum(it["bytes"] for it in some)), instant(max(it["created_at"] for it in some))
        table.add_row(month, number(len(some)), *sums, total, newest)
    return table


JOB = Job(
    commits,
    body=asking.Commits,
    examples=(
        "bucketwise commits -p ticks",
        "bucketwise commits -p ticks --since 2018-06-01 --until 2018-07-01 --full",
    ),
    reads_departed=True,
    answers=True,
)
