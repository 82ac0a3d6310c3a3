"""The steps that tell where data is, in the words of the JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from bucketwise.archivers.evidence.coverage import CoverageQuery, HeldCommit, Row, coverage
from bucketwise.archivers.evidence.drill import DrilledDay
from bucketwise.archivers.evidence.explain import ExplainedBucket, ExplainQuery, ExplainResult, explain
from bucketwise.archivers.evidence.kind import Event
from bucketwise.archivers.kinds import archive_of
from bucketwise.archivers.preconditions import OF_READERS
from bucketwise.buckets.fields.selectors import Selector, id_as_json
from bucketwise.buckets.fields.times import DAY_MS, as_date
from bucketwise.config.errors import HaltedError
from bucketwise.config.policies import Policy
from bucketwise.jobs.running.ledger import Ledger
from bucketwise.jobs.running.turn import Step, StepResult, Turn, pick
from bucketwise.jobs.steps.holds import hold_body
from bucketwise.jobs.steps.working import LEFT_SOMETHING, archivable_through
from bucketwise.rollups.calendar.windows import HOUR

Body = dict[str, Any]
#: Fence -> the run under it, and its verb.
Runs = Mapping[int, tuple[str | None, str | None]]
STEPS = {"day": DAY_MS, "hour": HOUR}


def coverage_step(series: Selector, by: str) -> Step:
    """Returns the step that tells where each row of the turn's range is."""

    def do(turn: Turn) -> StepResult:
        archived = archive_of(turn.context).evidence
        rows = coverage(turn.context, archived, CoverageQuery(turn.within, series, STEPS[by]))
        states = Counter(row.state for row in rows)
        return StepResult({"by": by, "days": [_row_body(row, by) for row in rows], "states": dict(states)})

    return Step("coverage", do, preconditions=OF_READERS)


def _row_body(row: Row, by: str) -> Body:
    at = as_date(row.start)
    return {
        "day": at.date().isoformat(),
        **({"hour": at.hour} if by == "hour" else {}),
        **pick(row, "state", "readings", "live", "archived", "online", "summarised"),
        **pick(row, "live_buckets", "pinned", "held", "quarantined"),
        "expires_at": row.expires,
        "commits": [_commit_body(it) for it in row.commits],
    }


def _commit_body(commit: HeldCommit) -> Body:
    """Returns a commit as JSON. A command that only reads records nothing: its proof is its commit, and
    drills."""
    proven = [at for at in (commit.committed, commit.drilled) if at is not None]
    return {
        **pick(commit, "commit", "buckets", "readings"),
        "committed_at": commit.committed,
        "verified_at": max(proven),
        "drilled_at": commit.drilled,
        "expires_at": commit.expires,
    }


def drill_step(days: int, seed: int) -> Step:
    """Returns the step that proves a sample of archived days restorable."""

    def do(turn: Turn) -> StepResult:
        found = archive_of(turn.context).drill(days, seed)
        buckets, equal = sum(it.buckets for it in found), sum(it.equal for it in found)
        body = {
            "days": len(found),
            "buckets": buckets,
            "equal": equal,
            "differing": buckets - equal,
            "summaries_differing": sum(it.summaries for it in found),
            "seed": seed,
            "drilled": [_day_body(it) for it in found],
        }
        if equal != buckets:
            return StepResult(body, HaltedError.exit_code)
        return StepResult(body, LEFT_SOMETHING if body["summaries_differing"] else 0)

    return Step("drill", do, preconditions=OF_READERS)


def _day_body(found: DrilledDay) -> Body:
    counts = pick(found, "commits", "buckets", "equal", "drilled_before")
    return {"day": found.name, **counts, "summaries_differing": found.summaries}


def explain_step(question: ExplainQuery) -> Step:
    """Returns the step that tells what happens to a bucket, or to those of an instant."""

    def do(turn: Turn) -> StepResult:
        archived = archive_of(turn.context).evidence
        answer = explain(turn.context, archived, question, archivable_through(turn), turn.readers)
        fences = {it.fence for bucket in answer.buckets for it in bucket.history if it.fence is not None}
        runs = Ledger(turn.context.database).runs_under(turn.policy.identity, fences)
        return StepResult(_answer_body(answer, turn.policy, runs))

    return Step("explain", do, preconditions=OF_READERS)


def _answer_body(answer: ExplainResult, policy: Policy, runs: Runs) -> Body:
    """Returns the answer as JSON. For one bucket, its values also stand above the list; for several, the
    state that they share."""
    buckets = [_bucket_body(it, policy, runs) for it in answer.buckets]
    states = {it["state"] for it in buckets}
    alone = buckets[0] if len(buckets) == 1 else {}
    state = states.pop() if len(states) == 1 else "both" if states else answer.hour or "unknown"
    searched = answer.searched
    return {
        "state": state,
        "rule": alone.get("rule"),
        "history": alone.get("history", []),
        "next": alone.get("next", {"action": None, "at": None}),
        "holds": alone.get("holds", []),
        "buckets": buckets,
        "searched": None if searched is None else searched._asdict(),
    }


def _bucket_body(it: ExplainedBucket, policy: Policy, runs: Runs) -> Body:
    series = None if it.series is None else dict(zip(policy.series_names, it.series, strict=True))
    return {
        "id": id_as_json(it.id),
        **pick(it, "readings", "versions"),
        "series": series,
        "first": None if it.first is None else as_date(it.first),
        "last": None if it.last is None else as_date(it.last),
        **pick(it.fate, "state", "rule"),
        "history": [_event_body(event, runs) for event in it.history],
        "next": pick(it.fate, "action", "at"),
        "holds": [hold_body(hold) for hold in it.holds],
    }


def _event_body(event: Event, runs: Runs) -> Body:
    """Returns an event as JSON, with the run that did it, if the ledger still knows it."""
    run, verb = runs.get(event.fence, (None, None)) if event.fence is not None else (None, None)
    return {**pick(event, "at", "event", "commit", "receipt", "detail"), "run": run, "verb": verb}
