"""How long a run would take, and what it would write and remove, by the last runs of the policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bucketwise.jobs.core.ledger import COMPLETED, SCHEDULED, Ledger, Run
from bucketwise.jobs.core.turn import Step, StepResult, Turn

Body = dict[str, Any]

#: So many of the last runs are asked; fewer readings in all of them tell too little.
_RUNS, _LEAST_READINGS = 10, 1_000


@dataclass(frozen=True)
class Pace:
    """The pace of the last runs: seconds for each reading that they rolled up or archived, bytes in the
    archive for each reading, and bytes of documents for each bucket."""

    seconds_a_reading: float | None
    stored_a_reading: float | None
    removed_a_bucket: float | None

    @classmethod
    def of(cls, runs: Iterable[Run]) -> Pace:
        """Returns the pace of runs, without those that did not come to their end."""
        seconds, worked, readings, buckets, stored, removed, deleted = 0.0, 0, 0, 0, 0, 0, 0
        for run in runs:
            if run.exit_code not in COMPLETED or run.ended is None:
                continue
            archived = _counts(run.counts, "archive")
            rolled_up = _counts(run.counts, "rollup").get("readings", 0)
            if done := rolled_up + archived.get("readings", 0):
                seconds += (run.ended - run.started).total_seconds()
                worked += done
            readings += archived.get("readings", 0)
            buckets += archived.get("buckets", 0)
            stored += archived.get("bytes", 0)
            removed += archived.get("removed_bytes", 0)
            deleted += archived.get("deleted", 0)
        return cls(
            seconds / worked if worked >= _LEAST_READINGS else None,
            stored / readings if readings >= _LEAST_READINGS else None,
            removed / deleted if deleted and readings >= _LEAST_READINGS else None,
        )

    def estimate(self, planned: Mapping[str, Any]) -> Body:
        """Returns the estimates for a plan, as JSON: null where the last runs tell nothing."""
        archived = _counts(planned, "archive")
        readings = archived.get("readings", 0)
        worked = readings + _counts(planned, "rollup").get("readings", 0)
        return {
            "seconds": _times(worked, self.seconds_a_reading),
            "bytes": _whole(_times(readings, self.stored_a_reading)),
            "removed_bytes": _whole(_times(archived.get("deleted", 0), self.removed_a_bucket)),
        }


def _counts(body: Mapping[str, Any], step: str) -> Mapping[str, Any]:
    found = body.get(step)
    return found if isinstance(found, Mapping) else {}


def _times(count: int, each: float | None) -> float | None:
    return None if each is None else round(count * each, 3)


def _whole(count: float | None) -> int | None:
    return None if count is None else round(count)


def _pace(turn: Turn) -> StepResult:
    runs = Ledger(turn.context.database).last_of(turn.policy.identity, [SCHEDULED], _RUNS)
    return StepResult({"pace": Pace.of(runs)})


#: The step that asks the ledger; its body is replaced by the estimates.
ESTIMATE = Step("estimate", _pace, weight=0.0)
