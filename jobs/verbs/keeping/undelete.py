"""`bucketwise undelete`."""

from __future__ import annotations

from jobs.call import Call
from jobs.clock import parse_range
from jobs.options import Since, Until
from jobs.output.report import Report
from jobs.output.text.working import undelete_lines
from jobs.running.runner import RunOptions, perform
from jobs.steps.archive_expiry import UNDELETE

EXAMPLES = [
    "bucketwise undelete -p ticks",
    "bucketwise undelete -p ticks --since 2018-06-30 --until 2018-07-01",
]


def undelete(call: Call, since: Since = None, until: Until = None) -> Report:
    """Lift the tombstones of expiring archives.

    What is past `retain.archive` gets a tombstone, and goes for good when that has stood for
    `retain.archive_grace`. Until then this lifts it, for 30 days: change the policy, or place a hold. With
    --since and --until only what touches that range. What has gone does not come back. Waits for no run.
    """
    within = parse_range(since, until)
    # No lease: a run must not be able to delete what somebody is about to keep.
    results = perform(call, [UNDELETE], RunOptions(within, dry_run=True))
    return Report(call.command, call.now, results, undelete_lines(results))
