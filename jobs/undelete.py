"""`bucketwise undelete`: lifts tombstones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.text import Text

from bucketwise.buckets.fields.times import DAY_MS, EVER, TimeRange, later
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.clock import iso
from bucketwise.jobs.core.job import Job, Since, Until
from bucketwise.jobs.core.turn import RunOptions, Step, StepResult, Turn, perform
from bucketwise.jobs.output.bodies import keeping
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.tables import closing, counted, sums

if TYPE_CHECKING:
    from pymongo.client_session import ClientSession

    from bucketwise.archivers.context import ArchiveContext

Document = dict[str, Any]


def undelete(call: Call, since: Since = None, until: Until = None) -> Report:
    """Lift the tombstones of expiring archives and summaries.

    What is past `retain` gets a tombstone, and goes for good when that has stood for `retain.archive_grace`,
    or, of summaries, for `retain.grace`. Until then this lifts it, for 30 days: change the policy, or place a
    hold. With --since and --until only what touches that range. What has gone does not come back. Waits for
    no run.
    """
    within = call.ranges(since, until)
    # No lease: a run must not be able to delete what somebody is about to keep.
    results = perform(call, [UNDELETE], RunOptions(within, dry_run=True))
    return Report(call.command, call.now, results, undelete_lines(results))


def _undelete(turn: Turn) -> StepResult:
    from bucketwise.jobs.core.lease import touching
    from bucketwise.rollups.rolling.expiry import lift_tombstones
    from bucketwise.rollups.standing import LIFTED_FOR

    context = turn.context
    lifting = replace(context, guard=touching(context.database, turn.policy.identity))  # it takes no lease
    days, summaries = len(lift_archived(lifting, turn.within)), lift_tombstones(lifting, turn.within)
    until = later(context.now, LIFTED_FOR) if days or summaries else None
    return StepResult({"days": days, "summaries": summaries, "until": until})


UNDELETE = Step("undelete", _undelete, by_present=True)
#: Tombstones that one transaction lifts.
AT_ONCE = 1000


def lift_archived(context: ArchiveContext, within: TimeRange = EVER) -> set[int]:
    """Lifts the tombstones on what touches the range. Returns the UTC days that were under them, since 1970.
    If it is cut off, the next call finishes it."""
    from bucketwise.archivers.records.receipts import EMPTIED, TOMBSTONE
    from bucketwise.rollups.context import transaction

    receipts, days = context.receipts, set[int]()
    first, last = within.start_ms // DAY_MS, (within.end_ms - 1) // DAY_MS
    touching = {"$elemMatch": {"$gte": first, "$lte": last}}
    query: Document = {
        "_id.policy": receipts.policy,
        "tombstone.due": {"$exists": True},
        "$or": [
            {"kind": "offline", "state": {"$in": ["open", "closed"]}, "days": touching},
            {"kind": "dropped", "state": EMPTIED, "days": touching},
            {"kind": TOMBSTONE, "day": {"$gte": first, "$lte": last}},
        ],
    }
    while found := list(receipts.collection.find(query, {"day": 1, "days": 1}).limit(AT_ONCE)):
        context.check()
        step = partial(_lift, context, found)
        transaction(context.database, context.guard, step)
        days.update(day for it in found for day in it.get("days", [it.get("day")]))
    return days


def _lift(context: ArchiveContext, found: list[Document], session: ClientSession) -> None:
    """Lifts tombstones in a transaction, except of what has been removed meanwhile."""
    from bucketwise.archivers.expiring.offline import record_lifted
    from bucketwise.archivers.expiring.rule import lifted

    under_tombstone = {"_id": {"$in": [it["_id"] for it in found]}, "tombstone.due": {"$exists": True}}
    names = [it["_id"]["name"] for it in found]
    context.deletions.check_last(session)
    update = {"$set": {"tombstone": record_lifted(context.deletions, names, lifted(context.now), session)}}
    context.receipts.collection.update_many(under_tombstone, update, session=session)


def undelete_lines(results: Sequence[Result]) -> list[RenderableType]:
    """Returns how many tombstones were lifted, and until when."""
    days, summaries = sums(results, "days", "summaries")
    what = f"tombstones of {counted(days, 'day')} and {counted(summaries, 'summary')} were lifted"
    if not days and not summaries:
        what = "no tombstone stands there"
    lifted = [it for it in results if it.body.get("days") or it.body.get("summaries")]
    return [*(Text(_lifted(it)) for it in lifted), *closing(results, what)]


def _lifted(it: Result) -> str:
    days, summaries = it.body["days"], it.body["summaries"]
    what = [counted(days, "archived day")] * bool(days) + [counted(summaries, "summary")] * bool(summaries)
    return f"{it.policy}: tombstones of {' and of '.join(what)} were lifted, until {iso(it.body['until'])}"


JOB = Job(
    undelete,
    body=keeping.Undelete,
    rights={"bucketwise_progress": ("insert", "update")},
    examples=(
        "bucketwise undelete -p ticks",
        "bucketwise undelete -p ticks --since 2018-06-30 --until 2018-07-01",
    ),
    reads_departed=True,
)
