"""`bucketwise receipts`: lists what has been deleted, and what else is on record."""

from __future__ import annotations

from calendar import monthrange
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.clock import iso
from bucketwise.jobs.core.job import Job, Since, Until
from bucketwise.jobs.core.turn import RunOptions, Step, StepResult, Turn, perform
from bucketwise.jobs.output.bodies import proving
from bucketwise.jobs.output.grid import Grid
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.tables import closing, counted, instant, number, number_range
from bucketwise.jobs.output.text import printable

Body = dict[str, Any]
Full = Annotated[bool, typer.Option("--full", help="Print a row for each receipt, not for each range.")]


def receipts(call: Call, since: Since = None, until: Until = None, full: Full = False) -> Report:
    """List what has been deleted.

    Each delete has a receipt: what went, when, under which policy, and where it is now. Consecutive deletes
    of a month are one row, and a calendar shows the days. --since and --until are about when it was deleted.
    """
    results = perform(call, [RECEIPT_LIST], RunOptions(call.ranges(since, until), dry_run=True))
    tables = [receipts_table(results)] if full else ranges_of(results)
    return Report(call.command, call.now, results, [*tables, *closing(results, _sum_of(results))])


def _receipts(turn: Turn) -> StepResult:
    from bucketwise.archivers.records.deletions import legible

    receipts, moved = turn.context.receipts, turn.context.receipt_files
    return StepResult(
        {"deletes": list(legible(receipts, moved, *turn.within)), "policies": receipts.policies()}
    )


RECEIPT_LIST = Step("receipts", _receipts)

#: Events of which their receipts say no more.
EVENTS = {
    "collections": "recorded: the collections of the archive, and how much must stay in them",
    "emptied": "gone: nothing was left in {commit}",
    "gap": "lost, with those before it",
    "gone": "copies removed: erased, or live again",
    "kept": "deleted by somebody else: the copies count",
    "rekept": "versions beside the archive rewritten by an erasure",
    "restore": "restored: live again",
    "rewritten": "archived buckets rewritten without a series that was erased",
    "superseded": "kept beside the archive: versions that count no more",
}


def event(receipt: Body) -> str:
    """Returns the event of a receipt that is not of a delete."""
    if receipt["kind"] in ("hold", "release"):
        did = "placed" if receipt["kind"] == "hold" else "released"
        return f"hold {receipt['hold']} {did} by {receipt['by']}"
    if receipt["kind"] == "expire":
        return f"gone from {receipt.get('commit') or receipt.get('into')}, by retain.archive"
    if receipt["kind"] == "time":
        return f"{iso(receipt['recorded'])} lifted, by {receipt['by']}: {receipt['reason']}"
    if receipt["kind"] == "retire":
        return f"the policy was retired by {receipt['by']}: {receipt['reason']}"
    if receipt["kind"] == "adopt":
        return f"taken over: {receipt['reason']}"
    if receipt["kind"] == "erase":
        return f"erased: {receipt['reason']}"
    if receipt["kind"] in ("tombstones", "undelete"):
        done = "placed" if receipt["kind"] == "tombstones" else "lifted"
        return f"tombstones {done}: {len(receipt['of'])}"
    return EVENTS[receipt["kind"]].format(**receipt)


def ranges_of(results: Sequence[Result]) -> list[RenderableType]:
    """Returns a table of ranges of receipts, and a calendar for each policy."""
    heads = ("policy", "numbers", "from", "buckets", "held by", "until", "receipts", "of", "by")
    table = Grid("Receipts", heads, minor=("by", "of"))
    calendars: list[RenderableType] = []
    for result in results:
        found = result.body.get("deletes", [])
        for _, some in groupby(found, _likeness):
            alike = list(some)
            table.add_row(
                result.policy,
                number_range(alike[0]["sequence"], alike[-1]["sequence"]),
                instant(alike[0]["at"]),
                number(_buckets(alike)),
                _places(alike),
                instant(alike[-1]["at"]),
                f"{len(alike):,}",
                alike[0].get("collection", "–"),
                _who(alike[0]),
            )
        calendars += _calendar(result.policy, found)
    return [table, *calendars]


def _likeness(it: Body) -> tuple[Any, ...]:
    """Returns what receipts of one range have in common: deletes of a month, by the same user, from the same
    collection. An event is a range of its own, with what says the same."""
    if "buckets" in it and "held_by" in it:
        return "delete", it["collection"], f"{it['at']:%Y-%m}", _who(it)
    return it["kind"], it["at"], event(it), _who(it)


def _buckets(alike: Sequence[Body]) -> int | None:
    counts = [it["buckets"] for it in alike if it.get("buckets") is not None]
    return sum(counts) if counts else None


def _places(alike: Sequence[Body]) -> str:
    places = list(dict.fromkeys(map(_place, alike)))
    return places[0] if len(places) == 1 else f"to {counted(len(places), 'commit')}"


def _place(it: Body) -> str:
    held = it.get("held_by") or {}
    return held.get("commit") or held.get("collection") or event(it)


def _calendar(policy: str, found: Sequence[Body]) -> Iterator[Text]:
    """Yields a line for each month that has receipts, with a letter for each day."""
    days = defaultdict[Any, set[str]](set)
    for it in found:
        days[it["at"].date()].add("D" if _likeness(it)[0] == "delete" else "e")
    for month, some in groupby(sorted(days), lambda it: (it.year, it.month)):
        letters = {it.day: "D" if "D" in days[it] else "e" for it in some}
        last = monthrange(*month)[1]
        shown = "".join(letters.get(day, "·") for day in range(1, last + 1))
        yield Text(f"{policy}  {month[0]:04}-{month[1]:02}  {shown}")
    if days:
        yield Text("D deletes  e other events")


def _sum_of(results: Sequence[Result]) -> str:
    found = [it for result in results for it in result.body.get("deletes", ())]
    gone = [it for it in found if _likeness(it)[0] == "delete"]
    if not found:
        return "nothing has been deleted"
    return f"{counted(len(found), 'receipt')}; {counted(_buckets(gone) or 0, 'bucket')} deleted"


def receipts_table(results: Sequence[Result]) -> RenderableType:
    """Returns a row for each receipt."""
    table = Grid(
        "Receipts",
        ("policy", "number", "at", "done at", "by", "from", "buckets", "held by"),
        minor=("done at", "by", "from"),
    )
    for result in results:
        for it in result.body.get("deletes", []):
            when = (number(it["sequence"]), instant(it["at"]), instant(it.get("done_at")), _who(it))
            what = (it.get("collection", "–"), number(it.get("buckets")), _place(it))
            table.add_row(result.policy, *when, *what)
    return table


def _who(receipt: Body) -> str:
    """Returns who wrote a receipt, as `user@host`; a dash where it is of an earlier version."""
    return printable(f"{receipt['user']}@{receipt['host']}") if "user" in receipt else "–"


JOB = Job(
    receipts,
    body=proving.Receipts,
    examples=(
        "bucketwise receipts -p ticks --since 2018-09-01",
        "bucketwise receipts -p ticks --full",
        "bucketwise receipts -p ticks --json",
    ),
    reads_departed=True,
    answers=True,
)
