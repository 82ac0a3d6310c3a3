"""`bucketwise receipts`."""

from __future__ import annotations

from jobs.call import Call
from jobs.clock import parse_range
from jobs.options import Since, Until
from jobs.output.report import Report
from jobs.output.text.keeping import receipts_table
from jobs.running.runner import RunOptions, perform
from jobs.steps.working import RECEIPT_LIST

EXAMPLES = ["bucketwise receipts -p ticks --since 2018-09-01", "bucketwise receipts -p ticks --json"]


def receipts(call: Call, since: Since = None, until: Until = None) -> Report:
    """List what has been deleted.

    Each delete has a receipt: what went, when, under which policy, and where it is now. --since and --until
    are about when it was deleted.
    """
    within = parse_range(since, until)
    results = perform(call, [RECEIPT_LIST], RunOptions(within, dry_run=True))
    return Report(call.command, call.now, results, [receipts_table(results)])
