"""Fingerprints of the settings with which a policy's summaries were made."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from bucketwise.config.models import LAYOUT_KEYS
from bucketwise.config.policies import Policy
from bucketwise.config.tables import Table

_DECISIVE = LAYOUT_KEYS | {"collection", "expected_interval", "local_offset_field"}
#: Counted up by whatever changes what a summary of the same readings is: all summaries are then made anew.
SUMMARY_SCHEMA = 1
#: Further levels are rolled up without it: what is new of them is made of the summaries that stand.
_DECISIVE_IN_ROLLUP = {"hourly", "daily", "timezone", "percentiles"}


def fingerprint(policy: Policy) -> str:
    """Returns 16 hex digits that change whenever the policy's summaries would. How long anything is
    kept does not matter."""
    rollup = _changed_keys(policy.rollup, _DECISIVE_IN_ROLLUP) if policy.rollup else None
    return _digest(
        {
            **_changed_keys(policy, {*_DECISIVE, "duplicates"}),
            "rollup": rollup,
            "summary_schema": SUMMARY_SCHEMA,
        }
    )


def layout_fingerprint(policy: Policy) -> str:
    """Returns 16 hex digits that change whenever the policy would read its documents differently, or
    require more of them."""
    sparse = {"sparse_ok"}
    return _digest(
        {**_changed_keys(policy, _DECISIVE | sparse), "nonnumeric_ok": sorted(policy.nonnumeric_ok)}
    )


def _changed_keys(table: Table, keys: set[str]) -> dict[str, Any]:
    """Returns the keys that differ from their defaults: a key that a later release adds changes no
    fingerprint by itself."""
    return table.model_dump(mode="json", include=keys, exclude_defaults=True)


def _digest(values: dict[str, Any]) -> str:
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
