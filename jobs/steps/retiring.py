"""The step that ends a policy which has left the file, in the words of the JSON."""

from __future__ import annotations

from pymongo.client_session import ClientSession

from bucketwise.archivers.records.deletions import last_receipt
from bucketwise.archivers.records.policies import RETIRE
from bucketwise.jobs.running.lease import touching
from bucketwise.jobs.running.turn import Step, StepResult, Turn
from bucketwise.rollups.guarded import transaction


def retire_step(reason: str, by: str) -> Step:
    """Returns the step that writes the receipt."""

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
