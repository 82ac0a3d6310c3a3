"""`bucketwise receipts`: lists what has been deleted, and what else is on record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType

from bucketwise.archivers.records.deletions import legible
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.clock import iso
from bucketwise.jobs.core.job import Job, Since, Until
from bucketwise.jobs.core.runner import RunOptions, perform
from bucketwise.jobs.core.turn import Step, StepResult, Turn
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.tables import instant, number, outcome, outcome_table
from bucketwise.jobs.output.text import printable

Body = dict[str, Any]


def receipts(call: Call, since: Since = None, until: Until = None) -> Report:
    """List what has been deleted.

    Each delete has a receipt: what went, when, under which policy, and where it is now. --since and --until
    are about when it was deleted.
    """
    results = perform(call, [RECEIPT_LIST], RunOptions(call.ranges(since, until), dry_run=True))
    return Report(call.command, call.now, results, [receipts_table(results)])


def _receipts(turn: Turn) -> StepResult:
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


def receipts_table(results: Sequence[Result]) -> RenderableType:
    """Returns what `receipts` prints: a row for each receipt."""
    table = outcome_table(
        "Receipts",
        *("policy", "number", "at", "done at", "by", "from", "buckets", "held by"),
        minor=("done at", "by", "from"),
    )
    for result in results:
        for it in result.body.get("deletes", []):
            held = it.get("held_by") or {}
            place = held.get("commit") or held.get("collection") or event(it)
            when = (number(it["sequence"]), instant(it["at"]), instant(it.get("done_at")), _who(it))
            what = (it.get("collection", "–"), number(it.get("buckets")), place)
            table.add_row(result.policy, *when, *what, outcome(result))
    return table


def _who(receipt: Body) -> str:
    """Returns who wrote a receipt, as `user@host`; a dash where it is of an earlier version."""
    return printable(f"{receipt['user']}@{receipt['host']}") if "user" in receipt else "–"


JOB = Job(
    receipts,
    examples=(
        "bucketwise receipts -p ticks --since 2018-09-01",
        "bucketwise receipts -p ticks --json",
    ),
    reads_departed=True,
    answers=True,
)
