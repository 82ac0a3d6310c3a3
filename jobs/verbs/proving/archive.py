"""`bucketwise verify`, `sign` and `receipts`: what is in archives, and how it got there."""

from __future__ import annotations

from bucketwise.jobs.call import Call
from bucketwise.jobs.clock import parse_range
from bucketwise.jobs.options import Since, Until
from bucketwise.jobs.output.report import Report
from bucketwise.jobs.output.text.keeping import receipts_table
from bucketwise.jobs.output.text.tables import table_of_verb, verify_tables
from bucketwise.jobs.running.runner import RunOptions, perform
from bucketwise.jobs.steps.working import RECEIPT_LIST, SIGN, VERIFY

EXAMPLES = [
    "bucketwise verify",
    "bucketwise verify -p ticks --since 2018-06-01 --until 2018-07-01",
    "bucketwise sign -p ticks",
    "bucketwise receipts -p ticks --since 2018-09-01",
    "bucketwise receipts -p ticks --json",
]


def verify(call: Call, since: Since = None, until: Until = None) -> Report:
    """Re-read archived parts.

    They are read from where they lie and held against their manifests. A part that is not what its
    manifest says ends with exit code 5: a person must look.
    """
    # It changes nothing, so it needs no lease: dry.
    results = perform(call, [VERIFY], RunOptions(parse_range(since, until), dry_run=True))
    return Report(call.command, call.now, results, verify_tables(results))


def sign(call: Call) -> Report:
    """Sign what has been archived without a signature.

    Needed where store.signing_key was set, changed or taken out for an archive that is there already. All
    is verified first; then each manifest and receipt is signed by the first key. Without a key, signatures
    are taken off.
    """
    results = perform(call, [SIGN])
    return Report(call.command, call.now, results, [table_of_verb("sign", results)])


def receipts(call: Call, since: Since = None, until: Until = None) -> Report:
    """List what has been deleted.

    Each delete has a receipt: what went, when, under which policy, and where it is now. --since and --until
    are about when it was deleted.
    """
    results = perform(call, [RECEIPT_LIST], RunOptions(parse_range(since, until), dry_run=True))
    return Report(call.command, call.now, results, [receipts_table(results)])
