"""`bucketwise erase`."""

from __future__ import annotations

from typing import Annotated

import typer

from bucketwise.archivers.erasing.erasure import Erasure, check_erasure
from bucketwise.config.errors import UsageError
from bucketwise.jobs.call import Call
from bucketwise.jobs.clock import parse_range
from bucketwise.jobs.options import Since, Until, one_policy, parse_series
from bucketwise.jobs.output.report import Report
from bucketwise.jobs.output.text.working import erase_tables, lake_lines
from bucketwise.jobs.running.runner import RunOptions, perform
from bucketwise.jobs.steps.erasing import erase_step
from bucketwise.jobs.steps.lake import registering
from bucketwise.jobs.steps.publish import publishing

EXAMPLES = [
    'bucketwise erase -p iot --series deviceid=1234 --reason "case 17"',
    'bucketwise erase -p iot --series deviceid=1234 --reason "case 17" --confirm iot',
]
Series = Annotated[
    list[str] | None,
    typer.Option("--series", metavar="FIELD=VALUE", help="The series to erase. Repeat for more fields."),
]
Reason = Annotated[
    str,
    typer.Option("--reason", metavar="TEXT", help="Reason. It is kept in the receipt, so name nobody in it."),
]
Confirm = Annotated[
    str | None,
    typer.Option(
        "--confirm",
        metavar="POLICY",
        help="Repeat the name of the policy to erase. Without it, only show what would be erased.",
    ),
]


def erase(
    call: Call,
    *,
    reason: Reason,
    series: Series = None,
    since: Since = None,
    until: Until = None,
    confirm: Confirm = None,
) -> Report:
    """Erase a series for good.

    It goes from its collection, the archive, the summaries, and all that lies beside them. The archive's
    commits that hold it are rewritten without it. Nothing of it can be restored. With --since and --until
    only buckets that lie in that range go. At the end everything is searched for the series, and what
    remains is told. Without --confirm nothing is changed.
    """
    within = parse_range(since, until)
    policy = one_policy(call)
    if confirm not in (None, policy.name):
        raise UsageError(f"--confirm {confirm}: write the name of the policy to erase from: {policy.name}")
    erasure = Erasure(policy, parse_series(series), within, reason)
    check_erasure(erasure)
    known = call.settings.policies.values()
    others = [it for it in known if it.collection == policy.collection and it is not policy]
    found = publishing(call.settings)
    followers = (*registering(call.settings.lake), *((found.follower(),) if found else ()))
    options = RunOptions(within, dry_run=confirm is None, followers=followers)
    results = perform(call, [erase_step(erasure, others, found)], options, policies=[policy])
    return Report(call.command, call.now, results, [*erase_tables(results), *lake_lines(results)])
