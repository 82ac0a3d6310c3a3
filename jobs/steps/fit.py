"""Checks whether a policy fits its documents: in a plan, and in each run until a sample has shown it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bucketwise.archivers.proof.findings import Finding
from bucketwise.archivers.proof.misfits import STOPPING, misfits
from bucketwise.archivers.report import ArchiveReport
from bucketwise.buckets.fields.times import as_date
from bucketwise.buckets.sampling.fit import Example, Fit, fit_of
from bucketwise.buckets.sampling.sample import sample
from bucketwise.config.errors import BucketwiseError
from bucketwise.config.policies import Policy
from bucketwise.jobs.running.turn import Turn, pick
from bucketwise.rollups.progress import is_fit_proven, note_fit

Body = dict[str, Any]


def archives_now(turn: Turn) -> bool:
    """Returns whether this turn archives."""
    return turn.policy.archiving is not None and "archive" in turn.steps


def check_fit(turn: Turn) -> Body | None:
    """Returns how the policy fits its documents, from a sample; None if that was shown before."""
    policy = turn.policy
    if not turn.dry_run and is_fit_proven(turn.context.database, policy):
        return None
    source = turn.context.source
    fit = fit_of(sample(source), policy)
    found = misfits(fit, policy)
    if fit.readings and not found and not turn.dry_run:
        note_fit(turn.context.database, policy, turn.context.now)
    return fit_body(fit, policy, found)


def require_fit(fit: Body | None, policy: Policy) -> None:
    """Raises BucketwiseError if the policy does not fit, so that nothing is archived or deleted."""
    if reasons := "; ".join(it["message"] for it in misfits_of(fit)):
        raise BucketwiseError(f"policy {policy.name}: {reasons}. Nothing was archived or deleted")


def misfits_of(fit: Body | None) -> list[Body]:
    """Returns the misfits, except those of buckets that are quarantined in any case."""
    return [it for it in (fit["misfits"] if fit else []) if it["code"] in STOPPING]


def step_body(fit: Body | None) -> Body:
    """Returns the fit as part of the JSON of a step."""
    return {} if fit is None else {"fit": fit}


def fit_body(fit: Fit, policy: Policy, found: Iterable[Finding]) -> Body:
    """Returns the fit as JSON."""
    first, last = fit.span or (None, None)
    return {
        **pick(fit, "sampled", "buckets", "readings", "readings_a_bucket", "finite", "series"),
        "quarantined": len(fit.quarantined),
        "first": None if first is None else as_date(first),
        "last": None if last is None else as_date(last),
        "examples": [_example_body(it, policy) for it in fit.examples],
        "unused_fields": list(fit.fields.unused),
        "misfits": [pick(it, "code", "message") for it in found],
    }


def valueless(report: ArchiveReport, policy: Policy) -> list[Body]:
    """Returns which days of which series stay as they hold no number, in the words of the JSON."""
    names = policy.series_names
    return [
        {"field": it.field, "series": dict(zip(names, it.series, strict=True)), "day": it.date}
        for it in report.valueless
    ]


def _example_body(it: Example, policy: Policy) -> Body:
    series = dict(zip(policy.series_names, it.series, strict=True))
    return {"series": series, "time": as_date(it.time), "values": it.values}
