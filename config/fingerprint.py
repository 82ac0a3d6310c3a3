"""Which settings a policy's summaries were made with."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from config.policies import Policy

_DECISIVE = {
    "collection",
    "model",
    "time_field",
    "series_fields",
    "value_fields",
    "slot",
    "samples_field",
    "sample_time_field",
    "start_field",
    "end_field",
    "count_field",
    "sum_fields",
    "overflow",
}
_LATER = (
    *("expected_interval", "local_offset_field", "time_unit", "sample_time_unit", "slot_levels", "span"),
    *("samples_as", "attributes_field", "attribute_key", "attribute_value"),
)
_DECISIVE_IN_ROLLUP = {"hourly", "daily", "timezone", "percentiles"}


def fingerprint(policy: Policy) -> str:
    """16 hex digits that change where the policy's summaries would; how long what stays does not count."""
    rollup = policy.rollup.model_dump(mode="json", include=_DECISIVE_IN_ROLLUP) if policy.rollup else None
    return _digest({**_layout(policy), "rollup": rollup})


def layout_fingerprint(policy: Policy) -> str:
    """Returns 16 hex digits that change where the policy would read its documents otherwise, or ask more of
    them."""
    return _digest({**_layout(policy), "nonnumeric_ok": sorted(policy.nonnumeric_ok)})


def _layout(policy: Policy) -> dict[str, Any]:
    said = policy.model_dump(mode="json", include=_DECISIVE)
    for later in _LATER:
        if getattr(policy, later) != Policy.model_fields[later].default:  # else left out: older ones stay
            said |= policy.model_dump(mode="json", include={later})
    return said


def _digest(said: dict[str, Any]) -> str:
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
