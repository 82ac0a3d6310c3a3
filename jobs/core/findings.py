"""The findings of checks and audits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bucketwise.jobs.core.job import Severity
from bucketwise.jobs.core.turn import StepResult, pick

Body = dict[str, Any]


@dataclass(frozen=True)
class Finding:
    """A problem. `code` is stable and for machines; `place` says where; `message` what is wrong, and how to
    fix it."""

    code: str
    policy: str | None  # None: it concerns all
    place: str
    severity: Severity
    message: str


def findings_result(found: Iterable[Any], code: int) -> StepResult:
    """Returns findings as the result of a step: with the exit code `code` where one is an error."""
    findings = [finding_body(it) for it in found]
    return StepResult(
        {"findings": findings}, code if any(it["severity"] == "error" for it in findings) else 0
    )


def finding_body(found: Any) -> Body:
    """Returns a finding as JSON."""
    return pick(found, "code", "policy", "place", "severity", "message")
