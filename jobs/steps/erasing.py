"""The step that erases a series, in the words of the JSON."""

from __future__ import annotations

from collections.abc import Sequence

from archivers.erasing.erase import ErasureFacts, erase, plan_erasure
from archivers.erasing.erasure import Erasure
from config.policies import Policy
from jobs.running.turn import Done, Step, Turn
from jobs.steps.publish import Publishing, once_published
from jobs.steps.working import LEFT_SOMETHING, check_archived, prepare


def erase_step(erasure: Erasure, others: Sequence[Policy], publishing: Publishing | None) -> Step:
    """Returns the step that erases, or counts what it would erase. `others`: policies that read the same
    collection. `publishing`: what has published summaries elsewhere."""

    def do(turn: Turn) -> Done:
        if turn.dry_run:
            check_archived(turn)
            report = plan_erasure(turn.context, erasure, others)
        else:
            prepare(turn)
            turn.context.listener("", (), ())  # summaries are about to go
            report = erase(turn.context, erasure, ErasureFacts(others, turn.is_archived_by_another))
            report.remaining[:0] = (
                publishing.forget(turn, erasure.series) if publishing else once_published(turn)
            )
        remaining = [it._asdict() for it in report.remaining]
        body = {**report.counts, "dry_run": turn.dry_run, "remaining": remaining}
        return Done(body, LEFT_SOMETHING if report.is_found and not turn.dry_run else 0)

    return Step("erase", do)
