"""`bucketwise sign`."""

from __future__ import annotations

from jobs.call import Call
from jobs.output.report import Report
from jobs.output.text.tables import table_of_verb
from jobs.running.runner import perform
from jobs.steps.working import SIGN

EXAMPLES = ["bucketwise sign -p ticks"]


def sign(call: Call) -> Report:
    """Sign what has been archived without a signature.

    Needed where store.signing_key was set, changed or taken out for an archive that is there already. All
    is verified first; then each manifest and receipt is signed by the first key. Without a key, signatures
    are taken off.
    """
    results = perform(call, [SIGN])
    return Report(call.command, call.now, results, [table_of_verb("sign", results)])
