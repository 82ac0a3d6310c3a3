"""The step that takes an archive over, in the words of the JSON."""

from __future__ import annotations

from bucketwise.archivers.preconditions import OF_READERS
from bucketwise.archivers.proof.adopt import adopt
from bucketwise.jobs.running.turn import Step, StepResult, Turn


def adopt_step(reason: str) -> Step:
    """Returns the step that takes the policy's archive over, where it belongs to another deployment."""

    def do(turn: Turn) -> StepResult:
        adopted = adopt(turn.context, reason)
        if adopted is None:
            return StepResult({"adopted": None})
        told = {"from": adopted.taken_from, "at": adopted.at, "lineage": adopted.lineage}
        return StepResult({"adopted": told})

    return Step("adopt", do, preconditions=OF_READERS)
