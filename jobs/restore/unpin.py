"""`bucketwise unpin`: releases restored buckets."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from rich.console import RenderableType

from bucketwise.buckets.fields.times import EVER, TimeRange
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.job import Job, Since, Until
from bucketwise.jobs.core.turn import RunOptions, Step, StepResult, perform
from bucketwise.jobs.output.bodies import keeping
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.tables import closing, counted, job_table, sums

if TYPE_CHECKING:
    from bucketwise.archivers.context import ArchiveContext


def unpin(call: Call, since: Since = None, until: Until = None) -> Report:
    """Release restored buckets.

    Buckets that were restored into their collection are pinned: no run archives or deletes them. Once they
    are released, the next run takes them as any others. With --since and --until only those with a reading
    in that range are released.
    """
    results = perform(call, [UNPIN], RunOptions(call.ranges(since, until)))
    return Report(call.command, call.now, results, unpin_tables(results))


def unpin_tables(results: Sequence[Result]) -> list[RenderableType]:
    """Returns what `unpin` prints."""
    (released,) = sums(results, "buckets")
    what = f"{counted(released, 'bucket')} released" if released else "no bucket was pinned"
    return [job_table(JOB, results), *closing(results, what)]


UNPIN = Step("unpin", lambda turn: StepResult({"buckets": release_pins(turn.context, turn.within)}))


def release_pins(context: ArchiveContext, within: TimeRange = EVER) -> int:
    """Releases the pinned buckets with a reading in the range, or all without a range. Returns how many. If
    it is cut off, the next call finishes it."""
    from bucketwise.buckets.decoding.decode import decode
    from bucketwise.rollups.context import transaction

    pins, released = context.pins, 0
    for page in pins.pages():
        context.check()
        ids = page
        if within.is_bounded:
            ids = [
                batch.main.decode_id(i)
                for batch in context.source.by_ids(page)
                for decoded in [decode(batch, context.policy)]
                for i in decoded.units[decoded.touching(within.start_ms, within.end_ms)].tolist()
            ]
        count = transaction(context.database, context.guard, partial(pins.release, ids))
        context.progress("released buckets", count)
        released += count
    return released


JOB = Job(
    unpin,
    body=keeping.Unpin,
    examples=(
        "bucketwise unpin -p ticks",
        "bucketwise unpin -p ticks --since 2018-06-30 --until 2018-07-01",
    ),
    title="Unpin",
    columns=("buckets",),
    reads_departed=True,
)
