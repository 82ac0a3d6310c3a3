"""`bucketwise unpin`."""

from __future__ import annotations

from jobs.call import Call
from jobs.clock import parse_range
from jobs.options import Since, Until
from jobs.output.report import Report
from jobs.output.text.tables import table_of_verb
from jobs.running.runner import RunOptions, perform
from jobs.steps.working import UNPIN

EXAMPLES = [
    "bucketwise unpin -p ticks",
    "bucketwise unpin -p ticks --since 2018-06-30 --until 2018-07-01",
]


def unpin(call: Call, since: Since = None, until: Until = None) -> Report:
    """Release restored buckets.

    Buckets that were restored into their collection are pinned: no run archives or deletes them. Once they
    are released, the next run takes them as any others. With --since and --until only those with a reading
    in that range are released.
    """
    within = parse_range(since, until)
    results = perform(call, [UNPIN], RunOptions(within))
    return Report(call.command, call.now, results, [table_of_verb("unpin", results)])
