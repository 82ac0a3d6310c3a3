"""What `check` and `audit` find."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["ok", "warning", "error"]


@dataclass(frozen=True)
class Finding:
    """A problem. `code` is stable and for machines; `place` says where; `message` what is wrong, and how to
    fix it."""

    code: str
    policy: str | None  # None: it concerns all
    place: str
    severity: Severity
    message: str
