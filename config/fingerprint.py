"""Which settings a policy's summaries were made with."""

from __future__ import annotations

import hashlib
import json

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
_DECISIVE_IN_ROLLUP = {"hourly", "daily", "timezone", "percentiles"}


def fingerprint(policy: Policy) -> str:
    """16 hex digits that change where the policy's summaries would; how long what stays does not count."""
    said = policy.model_dump(mode="json", include=_DECISIVE)
    rollup = policy.rollup.model_dump(mode="json", include=_DECISIVE_IN_ROLLUP) if policy.rollup else None
    for later in ("expected_interval", "local_offset_field"):
        if getattr(policy, later) is not None:  # left out where it is not set: older fingerprints stay
            said |= policy.model_dump(mode="json", include={later})
    text = json.dumps({**said, "rollup": rollup}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
