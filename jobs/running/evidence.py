"""The steps that tell where data is, in the words of the JSON."""

from __future__ import annotations

from collections import Counter
from typing import Any

from archivers.evidence.coverage import Asked, HeldCommit, Row, coverage
from buckets.fields.selectors import Selector
from buckets.fields.times import DAY_MS, as_date
from jobs.running.turn import Done, Step, Turn
from rollups.calendar.windows import HOUR

Body = dict[str, Any]
STEPS = {"day": DAY_MS, "hour": HOUR}


def coverage_step(series: Selector, by: str) -> Step:
    """Returns the step that tells where each row of the turn's range is."""

    def do(turn: Turn) -> Done:
        rows = coverage(turn.context, Asked(turn.within, series, STEPS[by]))
        states = Counter(row.state for row in rows)
        return Done({"by": by, "days": [_row_body(row, by) for row in rows], "states": dict(states)})

    return Step("coverage", do)


def _row_body(row: Row, by: str) -> Body:
    at = as_date(row.start)
    return {
        "day": f"{at:%Y-%m-%d}",
        **({"hour": at.hour} if by == "hour" else {}),
        "state": row.state,
        "readings": row.readings,
        "live": row.live,
        "archived": row.archived,
        "online": row.online,
        "summarised": row.summarised,
        "live_buckets": row.live_buckets,
        "pinned": row.pinned,
        "held": 0,
        "quarantined": row.quarantined,
        "commits": [_commit_body(it) for it in row.commits],
    }


def _commit_body(commit: HeldCommit) -> Body:
    return {
        "commit": commit.commit,
        "committed_at": commit.committed,
        "buckets": commit.buckets,
        "readings": commit.readings,
        "verified_at": None,
        "drilled_at": None,
    }
