"""Where a policy does not fit its documents: found before anything is deleted by it."""

from __future__ import annotations

from collections.abc import Iterable

from bucketwise.archivers.proof.findings import Finding
from bucketwise.buckets.columns import ValueKind
from bucketwise.buckets.fields.selectors import extended_json
from bucketwise.buckets.sampling.fit import Fit
from bucketwise.config.policies import Policy
from bucketwise.config.problems import nearest

#: Findings that stop a run. Where no bucket fits, each is quarantined.
STOPPING = ("value-field-empty", "no-readings")
_HELD = {
    ValueKind.MISSING: "missing or null",
    ValueKind.NONFINITE: "NaN or infinite",
    ValueKind.NONNUMERIC: "no number",
}
#: Fields that are named where none is similar to the one that was meant.
_SHOWN = 10


def misfits(fit: Fit, policy: Policy) -> list[Finding]:
    """Returns how the policy does not fit: nothing where there is no bucket, or none has a reading yet."""
    if fit.sampled and not fit.buckets:
        return [_no_bucket(fit, policy)]
    if fit.is_hollow:
        return [_no_readings(fit, policy)]
    paths = dict(policy.named_values)
    return [_empty(fit, policy, name, paths[name]) for name in fit.empty_fields(policy)]


def _no_bucket(fit: Fit, policy: Policy) -> Finding:
    first = fit.quarantined[0]
    message = (
        f"none of {fit.sampled:,} sampled buckets fits the model. _id {extended_json(first.id)}, "
        f"{first.field}: {first.reason}. Correct the policy; if it is right, correct the buckets"
    )
    return Finding("no-bucket-fits", policy.name, policy.collection, "error", message)


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
    """Returns the fields that the policy doesn't use, as `value_fields` would name them."""
    found = [*fit.fields.unused, *fit.fields.within]
    if policy.model == "samples":
        inside = f"{policy.samples_field}.*."
        return [it.removeprefix(inside) for it in found if it.startswith(inside)]
    if policy.model == "slots":
        return found
    return [it for it in found if "*" not in it.split(".")]


def _listed(fields: Iterable[str]) -> str:
    return ", ".join(f"`{it}`" for it in fields)
