"""The step that erases a series, in the words of the JSON."""

from __future__ import annotations

from collections.abc import Sequence

from bucketwise.archivers.erasing.erase import ErasureFacts, erase, plan_erasure
from bucketwise.archivers.erasing.erasure import Erasure
from bucketwise.archivers.kinds import series_of
from bucketwise.archivers.preconditions import OF_DESTROYERS, OF_REWRITERS
from bucketwise.config.policies import Policy
from bucketwise.jobs.running.turn import Step, StepResult, Turn
from bucketwise.jobs.steps.publish import Publishing, remaining_in_redis
from bucketwise.jobs.steps.working import LEFT_SOMETHING, prepare


def erase_step(erasure: Erasure, others: Sequence[Policy], publishing: Publishing | None) -> Step:
    """Returns the step that erases, or counts what it would erase. `others`: policies that read the same
    collection. `publishing`: what has published summaries elsewhere."""

    def do(turn: Turn) -> StepResult:
        if turn.dry_run:
            report = plan_erasure(turn.context, series_of(turn.context), erasure, others)
        else:
            prepare(turn)
            turn.context.listener("", (), ())  # summaries are about to go
            facts = ErasureFacts(others, turn.is_archived_by_another)
            report = erase(turn.context, series_of, erasure, facts)
            report.remaining[:0] = (
                publishing.forget(turn, erasure.series) if publishing else remaining_in_redis(turn)
            )
        remaining = [it._asdict() for it in report.remaining]
        body = {**report.counts, "dry_run": turn.dry_run, "remaining": remaining}
        return StepResult(body, LEFT_SOMETHING if report.is_found and not turn.dry_run else 0)

    return Step("erase", do, preconditions=(*OF_REWRITERS, *OF_DESTROYERS))
