"""Which settings a policy's summaries were made with."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from config.policies import Policy

#: Counted up by whatever changes what a summary of the same readings is: all summaries are then made anew.
SUMMARY_SCHEMA = 1

_DECISIVE = {
    *("collection", "model", "series_fields", "value_fields"),
    *("time_field", "time_unit", "slot", "slot_levels", "span"),
    *("samples_field", "samples_as", "sample_time_field", "sample_time_unit"),
    *("start_field", "end_field", "count_field", "sum_fields", "overflow"),
    *("attributes_field", "attribute_key", "attribute_value"),
    *("expected_interval", "local_offset_field"),
}
#: Further levels are rolled up without it: what is new of them is made of the summaries that stand.
_DECISIVE_IN_ROLLUP = {"hourly", "daily", "timezone", "percentiles"}


def fingerprint(policy: Policy) -> str:
    """Returns 16 hex digits that change where the policy's summaries would; how long what stays does not
    count."""
    rollup = policy.rollup.model_dump(mode="json", include=_DECISIVE_IN_ROLLUP) if policy.rollup else None
    return _digest({**_layout(policy), "rollup": rollup, "summary_schema": SUMMARY_SCHEMA})


def layout_fingerprint(policy: Policy) -> str:
    """Returns 16 hex digits that change where the policy would read its documents otherwise, or ask more of
    them."""
    return _digest({**_layout(policy), "nonnumeric_ok": sorted(policy.nonnumeric_ok)})


def _layout(policy: Policy) -> dict[str, Any]:
    return policy.model_dump(mode="json", include=_DECISIVE)


def _digest(said: dict[str, Any]) -> str:
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
