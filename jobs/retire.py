"""`bucketwise retire`: ends a policy that has left the file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType

from bucketwise.config.errors import UsageError
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.job import Job
from bucketwise.jobs.core.turn import RunOptions, Step, StepResult, Turn, perform
from bucketwise.jobs.output.bodies import keeping
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.tables import closing
from bucketwise.jobs.output.text import printable

if TYPE_CHECKING:
    from pymongo.client_session import ClientSession

    from bucketwise.config.policies import Policy

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name, or id, of a policy that has left the file.")]
Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Reason, kept in the receipt.")]


def retire(call: Call, name: Name, reason: Reason = None) -> Report:
    """End a policy that has left the policy file.

    A receipt records it. Other policies of its collection are then no longer taken for this one under
    another name. Nothing is removed: its archive and its summaries stay, and `-p NAME` reads them.
    """
    from bucketwise.jobs.core.machine import this_user

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
    from bucketwise.archivers.records.policies import PolicyRecords

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


def retire_step(reason: str, by: str) -> Step:
    """Returns the step that writes the receipt."""
    from bucketwise.archivers.records.deletions import last_receipt
    from bucketwise.archivers.records.policies import RETIRE
    from bucketwise.jobs.core.lease import touching
    from bucketwise.rollups.context import transaction

    def do(turn: Turn) -> StepResult:
        context, records = turn.context, turn.context.policy_records
        facts = {"collection": turn.policy.collection, "reason": reason, "by": by}

        def retire(session: ClientSession) -> None:
            context.deletions.record_event(RETIRE, facts, session)
            receipt = last_receipt(context.receipts, session)
            assert receipt is not None
            records.retire(turn.policy, receipt, session)

        record = records.get(turn.policy.identity)
        is_new = record is None or not records.is_retired(record)
        if is_new:
            transaction(context.database, touching(context.database, turn.policy.identity), retire)
        return StepResult({"retired": is_new})

    return Step("retire", do, by_present=True)


def retired_lines(results: Sequence[Result]) -> list[RenderableType]:
    """Returns the line on the policy that has ended."""
    ended = [(it.policy, it.body["retired"]) for it in results if "retired" in it.body]
    told = (
        f"{policy} {'is' if is_new else 'was'} retired, and -p {policy} reads what it has archived"
        for policy, is_new in ended
    )
    return [*closing(results, "; ".join(told))]


JOB = Job(
    retire,
    body=keeping.Retire,
    rights={
        "bucketwise_lease": ("insert", "update"),
        "bucketwise_receipts": ("insert", "update"),
        "bucketwise_progress": ("insert", "update"),
    },
    examples=('bucketwise retire ticks --reason "The feed was switched off in May"',),
)
