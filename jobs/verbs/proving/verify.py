"""`bucketwise verify`."""

from __future__ import annotations

from jobs.call import Call
from jobs.clock import parse_range
from jobs.options import Since, Until
from jobs.output.report import Report
from jobs.output.text.tables import verify_tables
from jobs.running.runner import RunOptions, perform
from jobs.steps.working import VERIFY

EXAMPLES = ["bucketwise verify", "bucketwise verify -p ticks --since 2018-06-01 --until 2018-07-01"]


def verify(call: Call, since: Since = None, until: Until = None) -> Report:
    """Re-read archived parts.

    They are read from where they lie and held against their manifests. A part that is not what its
    manifest says ends with exit code 5: a person must look.
    """
    within = parse_range(since, until)
    # It changes nothing, so it needs no lease: dry.
    results = perform(call, [VERIFY], RunOptions(within, dry_run=True))
    return Report(call.command, call.now, results, verify_tables(results))
