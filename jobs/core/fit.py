"""Checks whether a policy fits its documents: in a plan, and in each run until a sample has shown it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bucketwise.archivers.records.deletions import last_receipt
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.columns import ValueKind
from bucketwise.buckets.fields.selectors import extended_json
from bucketwise.buckets.fields.times import as_date, as_ms
from bucketwise.buckets.models import model_of
from bucketwise.buckets.sampling.doubts import doubt_of
from bucketwise.buckets.sampling.fit import Example, Fit, fit_of
from bucketwise.buckets.sampling.reading import AsRead, Doubt
from bucketwise.buckets.sampling.sample import sample
from bucketwise.config.checks.names import field_fault
from bucketwise.config.errors import BucketwiseError
from bucketwise.config.policies import Policy
from bucketwise.config.problems import nearest
from bucketwise.jobs.core.turn import Finding, Turn, pick
from bucketwise.rollups.progress import is_fit_proven, note_fit, was_fit_proven
from bucketwise.rollups.summaries.paying import Whole, paying

Body = dict[str, Any]

_NO_BUCKET = "no-bucket-fits"
#: Findings that stop a run.
STOPPING = (
    *(_NO_BUCKET, "value-field-empty", "no-readings"),
    *("slots-sparse", "slots-overlap", "slots-shifted", "samples-unit"),
    *("time-format-unlikely", "zone-unlikely", "days-unlikely"),
)

_HELD = {
    ValueKind.MISSING: "missing or null",
    ValueKind.NONFINITE: "NaN or infinite",
    ValueKind.NONNUMERIC: "no number",
}

#: That a run has found no evidence against the policy.
_CERTAIN = "certain"
#: Fields that are named where none is similar to the one that was meant.
_SHOWN = 10


def misfits(fit: Fit, policy: Policy, doubt: Doubt | None = None) -> list[Finding]:
    """Returns how the policy does not fit: nothing where there is no bucket, or none has a reading yet.
    `doubt`: evidence that it reads times other than they are meant."""
    if fit.sampled and not fit.buckets:
        return [_no_bucket(fit, policy, doubt)]
    if fit.is_hollow:
        return [_no_readings(fit, policy)]
    paths = dict(policy.named_values)
    doubted = [] if doubt is None else [_doubted(doubt, policy)]
    return doubted + [_empty(fit, policy, name, paths[name]) for name in fit.empty_fields(policy)]


def _no_bucket(fit: Fit, policy: Policy, doubt: Doubt | None) -> Finding:
    first = fit.quarantined[0]
    remedy = "Correct the policy" if doubt is None else doubt.remedy
    message = (
        f"none of {fit.sampled:,} sampled buckets fits the model. _id {extended_json(first.id)}, "
        f"{first.field}: {first.reason}. {remedy}; if it is right, correct the buckets"
    )
    return Finding(_NO_BUCKET, policy.name, policy.collection, "error", message)


def _doubted(doubt: Doubt, policy: Policy) -> Finding:
    return Finding(doubt.code, policy.name, policy.collection, "error", f"{doubt.reason}. {doubt.remedy}")


def _no_readings(fit: Fit, policy: Policy) -> Finding:
    message = (
        f"{fit.buckets:,} buckets were sampled, and none has slots at {_listed(policy.value_fields)}: there "
        f"is no reading. {_hint(fit, policy, policy.value_fields[0])} Correct value_fields"
    )
    return Finding("no-readings", policy.name, policy.collection, "error", message)


def _empty(fit: Fit, policy: Policy, name: str, path: str) -> Finding:
    held = ", ".join(
        f"{fit.held[name][kind]:,} {text}" for kind, text in _HELD.items() if fit.held[name][kind]
    )
    message = (
        f"value field `{path}`: of {fit.readings:,} readings in {fit.buckets:,} sampled buckets none holds a "
        f"finite number there ({held}). {_hint(fit, policy, path)} Correct value_fields, or, if it need not "
        f'hold numbers, write nonnumeric_ok = ["{path}"]'
    )
    return Finding("value-field-empty", policy.name, f"{policy.collection}, {path}", "error", message)


def _hint(fit: Fit, policy: Policy, path: str) -> str:
    """Returns what might have been meant."""
    for array in sorted(fit.fields.arrays):
        if path.startswith(f"{array}."):
            return (
                f"`{array}` is an array, and no path looks inside one: if it holds attributes, write "
                f'attributes_field = "{array}"; if it holds samples, model = "samples".'
            )
    near = nearest(path, _candidates(fit, policy))
    if near:
        return f"Did you mean `{near}`?"
    unused = list(fit.fields.unused)
    rest = " and others" if len(unused) > _SHOWN else ""
    return f"The policy does not use {_listed(unused[:_SHOWN])}{rest}." if unused else "It uses all fields."


def _candidates(fit: Fit, policy: Policy) -> list[str]:
    """Returns the fields that the policy doesn't use, as `value_fields` would name them: those that hold
    numbers, and whose name can be written."""
    unused = [it for it in (*fit.fields.unused, *fit.fields.within) if it in fit.fields.readable]
    return [it for it in model_of(policy).value_candidates(unused) if field_fault(it) is None]


def _listed(fields: Iterable[str]) -> str:
    return ", ".join(f"`{it}`" for it in fields)


def larger_summaries(policy: Policy, sampled: Batch, whole: Whole | None = None) -> list[Finding]:
    """Returns a warning where summaries will be larger than the documents that they stand for."""
    found = paying(policy, sampled, whole)
    if not found.larger:
        return []
    costs = "; ".join(
        f"{it.level}: {it.readings:,.3g} readings in {it.document_bytes:,.0f} bytes, a summary of "
        f"{it.summary_bytes:,.0f}"
        for it in found.larger
    )
    best, names = found.best, {it.level for it in found.larger}
    advice = "Fewer statistics (rollup.statistics) make them smaller"
    if best is not None and policy.rollup is not None and best.level not in policy.rollup.targets:
        advice = f"{best.level} summaries would pay. {advice}"
    elif best is not None:
        advice = f"{best.level} summaries pay: {' and '.join(sorted(names))} can be left out. {advice}"
    message = f"summaries will be larger than what they stand for, a window and series: {costs}. {advice}"
    return [Finding("summaries-larger", policy.name, policy.collection, "warning", message)]


def archives_now(turn: Turn) -> bool:
    """Returns whether this turn archives."""
    return turn.policy.archiving is not None and "archive" in turn.steps


def _is_proven(turn: Turn) -> bool:
    """Returns whether the policy is known to fit. Once it is, nobody is asked again in this turn."""
    if not turn.noted.get("fits"):
        turn.noted["fits"] = is_fit_proven(turn.context.database, turn.policy)
    return turn.noted["fits"]


def _once_fitted(turn: Turn) -> bool:
    context = turn.context
    return was_fit_proven(context.database, context.policy) or last_receipt(context.receipts) is not None


def check_fit(turn: Turn) -> Body | None:
    """Returns how the policy fits its documents, from a sample; None if that was shown before."""
    policy = turn.policy
    if not turn.dry_run and _is_proven(turn):
        return None
    source = turn.context.source
    sampled = sample(source)
    fit = fit_of(sampled, policy, turn.context.plausible)
    doubt = None if _CERTAIN in turn.context.state.met else _doubt(turn, sampled)
    found = misfits(fit, policy, doubt)
    if fit.readings and not found and not turn.dry_run:
        note_fit(turn.context.database, policy, turn.context.now)
    if turn.dry_run and not found:
        found = larger_summaries(policy, sampled)
    return fit_body(fit, policy, found)


def _doubt(turn: Turn, sampled: Batch) -> Doubt | None:
    return doubt_of(AsRead(sampled, turn.policy, turn.context.source), as_ms(turn.context.now))


def require_certainty(turn: Turn) -> None:
    """Raises BucketwiseError if a sample shows that the policy reads times other than they are meant, so that
    no summary of wrong times is written: what such a one counts looks like readings that are gone. Not once
    the policy is known to fit."""
    policy = turn.policy
    if turn.dry_run or _is_proven(turn):
        return
    doubt = _doubt(turn, sample(turn.context.source))
    if doubt is not None:
        reason = _doubted(doubt, policy).message
        raise BucketwiseError(f"policy {policy.name}: {reason}. Nothing was rolled up, archived or deleted")
    turn.context.state.met.add(_CERTAIN)


def require_fit(turn: Turn, fit: Body | None) -> None:
    """Raises BucketwiseError if the policy does not fit, so that nothing is archived or deleted. If it once
    did, even before its layout was changed, buckets of which none fits are what is left of others, and are
    quarantined."""
    policy, found = turn.policy, misfits_of(fit)
    if any(it["code"] == _NO_BUCKET for it in found) and _once_fitted(turn):
        found = [it for it in found if it["code"] != _NO_BUCKET]
    if reasons := "; ".join(it["message"] for it in found):
        raise BucketwiseError(f"policy {policy.name}: {reasons}. Nothing was archived or deleted")


def misfits_of(fit: Body | None) -> list[Body]:
    """Returns the misfits that stop a run."""
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
        "kinds": {path: {"keys": keys, "why": why} for path, (keys, why) in fit.kinds.items()},
        "misfits": [pick(it, "code", "message") for it in found],
    }


def _example_body(it: Example, policy: Policy) -> Body:
    series = dict(zip(policy.series_names, it.series, strict=True))
    return {"series": series, "time": as_date(it.time), "values": it.values}
