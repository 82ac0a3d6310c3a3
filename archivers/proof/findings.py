"""What `check` and `audit` find."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["ok", "warning", "error"]


@dataclass(frozen=True)
class Finding:
    """`code` is stable and for machines; `place` says where; `message` what is so, and how to mend it."""

    code: str
    policy: str | None  # None: it concerns all
    place: str
    severity: Severity
    message: str
