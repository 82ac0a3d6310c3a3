"""`bucketwise retire`."""

from __future__ import annotations

from typing import Annotated

import typer

from bucketwise.archivers.records.policies import PolicyRecords
from bucketwise.config.errors import UsageError
from bucketwise.config.policies import Policy
from bucketwise.jobs.call import Call
from bucketwise.jobs.output.report import Report
from bucketwise.jobs.output.text.cells import printable
from bucketwise.jobs.output.text.keeping import retired_lines
from bucketwise.jobs.running.machine import this_user
from bucketwise.jobs.running.runner import RunOptions, perform
from bucketwise.jobs.steps.retiring import retire_step

EXAMPLES = ['bucketwise retire ticks --reason "The feed was switched off in May"']
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name, or id, of a policy that has left the file.")]
Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Reason, kept in the receipt.")]


def retire(call: Call, name: Name, reason: Reason = None) -> Report:
    """End a policy that has left the policy file.

    A receipt records it. Other policies of its collection are then no longer taken for this one under
    another name. Nothing is removed: its archive and its summaries stay, and `-p NAME` reads them.
    """
    why = printable(" ".join((reason or "").split()))
    if not why:
        raise UsageError("retire: say why with --reason TEXT; others will need to know")
    if call.names:
        raise UsageError("retire: it takes the policy as NAME, without --policy")
    policy = _departed(call, name)
    # It waits for no run: none works on a policy that is in no file.
    results = perform(call, [retire_step(why, this_user())], RunOptions(dry_run=True), policies=[policy])
    return Report(call.command, call.now, results, retired_lines(results))


def _departed(call: Call, name: str) -> Policy:
    """Returns the policy as it was last. Raises UsageError where it is in the file, or unknown."""
    for policy in call.settings.policies.values():
        if name in (policy.name, policy.identity):
            raise UsageError(
                f"retire {name}: policy {policy.name} is in {call.settings.path}. Remove it there first; to "
                f"stop it for a while: `bucketwise pause -p {policy.name}`. Nothing was changed"
            )
    with call.database() as database:
        found = PolicyRecords(database, call.store, call.keys).last(name)
    if found is None:
        raise UsageError(f"retire {name}: the database {database.name} has no records of such a policy")
    return found
